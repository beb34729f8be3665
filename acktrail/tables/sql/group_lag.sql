SELECT q.cluster_id, q.group_id, q.topic, q.topic_id, q.partition, q.observed_at,
  r.described_start_offset_after AS start_offset, q.log_end_offset, q.unfinished_records, r.described_lag_after AS lag,
  q.status,
  CASE WHEN q.unfinished_records IS NOT NULL THEN NULL
       WHEN q.completeness <> 'complete' THEN q.completeness
       WHEN q.log_end_offset IS NULL THEN 'log_end_not_known'
       WHEN q.verdict = 'match' AND q.first_unfinished_offset IS NULL THEN 'not_initialized'
       ELSE 'not_known' END AS reason,
  q.verdict
FROM queue_statuses AS q
LEFT JOIN reconciliations AS r ON r.run_id = q.run_id AND r.group_id = q.group_id AND r.topic_id = q.topic_id
  AND r.partition = q.partition
