-- What became of records. Ranges of a share partition are disjoint, so sum(records) counts each record once.
-- An offset has the outcome of the last change that finished it. To find that change without comparing every change with
-- every other one, changes lie in layers that overlap nowhere: a layer ends where offsets were taken back (a reset, a
-- deletion) or lost (a gap). Along the offsets of a layer, a running sum of the changes' numbers is the change in force.
WITH
history AS (
  SELECT h.cluster_id, h.group_id, h.topic_id, h.partition AS part, h.state_partition, h.record_offset,
    h.first_offset, h.last_offset, h.record_timestamp_ms, h.is_dated, h.cause, h.standing, h.delivery_state,
    h.delivery_count,
    CASE WHEN h.standing = 'unknown' THEN 'lost' WHEN h.before_standing = 'unknown' THEN 'found'
         WHEN h.before_standing = 'absent' THEN 'begun' ELSE 'none' END AS knowledge,
    CASE WHEN h.delivery_state IN (2, 4) THEN 1 ELSE 0 END AS is_end,
    CASE WHEN h.is_dated AND COALESCE(h.before_state, 0) <> COALESCE(h.delivery_state, 0) THEN 1 ELSE 0 END AS is_new,
    CASE WHEN h.before_standing = 'below_start' OR (h.before_state IN (2, 4) AND h.standing <> 'below_start')
         THEN 1 ELSE 0 END AS takes_back,
    CASE WHEN h.standing = 'unknown' THEN 1 ELSE 0 END AS loses
  FROM delivery_history AS h
),
numbered AS (
  SELECT h.*,
    ROW_NUMBER() OVER (PARTITION BY group_id, topic_id, part ORDER BY record_offset, first_offset) AS number,
    MAX(CASE WHEN takes_back = 1 THEN record_offset ELSE -1 END) OVER (
      PARTITION BY group_id, topic_id, part ORDER BY record_offset, takes_back DESC, first_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS life,
    MAX(CASE WHEN loses = 1 THEN record_offset ELSE -1 END) OVER (
      PARTITION BY group_id, topic_id, part ORDER BY record_offset, loses DESC, first_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS era
  FROM history AS h
  WHERE is_end = 1 OR takes_back = 1 OR knowledge <> 'none'
),
places AS (
  SELECT group_id, topic_id, part, MIN(cluster_id) AS cluster_id, MIN(state_partition) AS state_partition,
    MAX(state_partition) AS last_state_partition
  FROM numbered WHERE is_end = 1 OR knowledge <> 'none'
  GROUP BY group_id, topic_id, part
),
kinds AS (
  SELECT 'new' AS kind UNION ALL SELECT 'again' AS kind UNION ALL SELECT 'lost' AS kind
  UNION ALL SELECT 'found' AS kind UNION ALL SELECT 'seen' AS kind
),
marks AS (
  SELECT n.group_id, n.topic_id, n.part, k.kind, n.first_offset, n.last_offset, n.number,
    CASE WHEN k.kind = 'seen' THEN -1 WHEN k.kind IN ('new', 'again') THEN n.life ELSE n.era END AS layer
  FROM numbered AS n CROSS JOIN kinds AS k
  WHERE (k.kind = 'new' AND n.is_end = 1 AND n.is_new = 1) OR (k.kind = 'again' AND n.is_end = 1 AND n.is_new = 0)
    OR k.kind = n.knowledge OR (k.kind = 'seen' AND (n.is_end = 1 OR n.knowledge <> 'none'))
  UNION ALL
  SELECT a.group_id, a.topic_id, a.partition AS part, 'no_record' AS kind, a.first_offset, a.last_offset, 1 AS number,
    -1 AS layer
  FROM archived_offsets AS a WHERE NOT a.is_record
),
steps AS (
  SELECT group_id, topic_id, part, kind, layer, step_at, SUM(step) AS step, SUM(depth) AS depth
  FROM (
    SELECT group_id, topic_id, part, kind, layer, first_offset AS step_at, number AS step, 1 AS depth FROM marks
    UNION ALL
    SELECT group_id, topic_id, part, kind, layer, last_offset + 1 AS step_at, -number AS step, -1 AS depth FROM marks
    WHERE last_offset IS NOT NULL
  ) AS ends
  GROUP BY group_id, topic_id, part, kind, layer, step_at
),
edges AS (
  SELECT DISTINCT group_id, topic_id, part, step_at
  FROM (
    SELECT group_id, topic_id, part, step_at FROM steps
    UNION ALL
    SELECT group_id, topic_id, part, 0 AS step_at FROM places
  ) AS all_edges
),
layers AS (SELECT DISTINCT group_id, topic_id, part, kind, layer FROM steps),
grid AS (
  SELECT e.group_id, e.topic_id, e.part, l.kind, l.layer, e.step_at, COALESCE(s.step, 0) AS step,
    COALESCE(s.depth, 0) AS depth
  FROM edges AS e
  JOIN layers AS l ON l.group_id = e.group_id AND l.topic_id = e.topic_id AND l.part = e.part
  LEFT JOIN steps AS s ON s.group_id = e.group_id AND s.topic_id = e.topic_id AND s.part = e.part
    AND s.kind = l.kind AND s.layer = l.layer AND s.step_at = e.step_at
),
running AS (
  SELECT group_id, topic_id, part, kind, step_at,
    SUM(step) OVER (PARTITION BY group_id, topic_id, part, kind, layer ORDER BY step_at
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS number,
    SUM(depth) OVER (PARTITION BY group_id, topic_id, part, kind, layer ORDER BY step_at
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS depth
  FROM grid
),
cells AS (
  SELECT group_id, topic_id, part, step_at,
    MAX(CASE WHEN kind IN ('new', 'again') THEN number ELSE 0 END) AS finished_by,
    MAX(CASE WHEN kind IN ('lost', 'found') THEN number ELSE 0 END) AS known_by,
    SUM(CASE WHEN kind = 'new' AND depth > 0 THEN 1 ELSE 0 END) AS times,
    MAX(CASE WHEN kind = 'seen' AND depth > 0 THEN 1 ELSE 0 END) AS is_seen,
    MAX(CASE WHEN kind = 'no_record' AND depth > 0 THEN 1 ELSE 0 END) AS is_no_record,
    MAX(CASE WHEN kind <> 'seen' AND kind <> 'no_record' AND depth > 1 THEN 1 ELSE 0 END) AS is_unclear
  FROM running
  GROUP BY group_id, topic_id, part, step_at
),
ranges AS (
  SELECT c.*,
    LEAD(step_at) OVER (PARTITION BY group_id, topic_id, part ORDER BY step_at) AS next_at
  FROM cells AS c
),
doubts AS (
  SELECT r.state_partition, MAX(r.offset) AS record_offset
  FROM state_records AS r
  WHERE r.group_id IS NULL AND r.decode_status <> 'decoded' AND r.decode_status <> 'unknown_type'
  GROUP BY r.state_partition
),
log_ends AS (
  SELECT q.topic_id, q.partition AS part, MAX(q.log_end_offset) AS log_end
  FROM queue_statuses AS q
  GROUP BY q.topic_id, q.partition
),
judged AS (
  SELECT p.cluster_id, r.group_id, r.topic_id, r.part, r.step_at AS first_offset, r.next_at - 1 AS last_offset, r.times,
    e.log_end, f.delivery_count, f.state_partition, f.record_offset, f.record_timestamp_ms, f.is_dated,
    CASE WHEN p.state_partition <> p.last_state_partition THEN 'two_state_partitions'
         WHEN r.is_unclear = 1 THEN 'changes_missing'
         WHEN r.is_seen = 0 THEN 'not_kept'
         WHEN COALESCE(f.record_offset, -1) < COALESCE(d.record_offset, -1) THEN 'unreadable'
         WHEN COALESCE(f.record_offset, -1) >= k.record_offset OR k.record_offset IS NULL THEN 'known'
         WHEN k.standing = 'unknown' AND k.cause = 'gap' THEN 'gap'
         WHEN k.standing = 'unknown' AND k.cause = 'unreadable' THEN 'unreadable'
         WHEN k.standing = 'unknown' THEN 'no_snapshot'
         WHEN k.standing = 'below_start' THEN 'before_first_record'
         ELSE 'known' END AS doubt,
    CASE WHEN p.state_partition <> p.last_state_partition OR r.is_unclear = 1 THEN 'unknown'
         WHEN f.delivery_state = 2 THEN 'acknowledged'
         WHEN f.delivery_state = 4 THEN 'archived' ELSE 'unknown' END AS outcome
  FROM ranges AS r
  JOIN places AS p ON p.group_id = r.group_id AND p.topic_id = r.topic_id AND p.part = r.part
  LEFT JOIN numbered AS f ON f.group_id = r.group_id AND f.topic_id = r.topic_id AND f.part = r.part
    AND f.number = r.finished_by
  LEFT JOIN numbered AS k ON k.group_id = r.group_id AND k.topic_id = r.topic_id AND k.part = r.part
    AND k.number = r.known_by
  LEFT JOIN doubts AS d ON d.state_partition = p.state_partition
  LEFT JOIN log_ends AS e ON e.topic_id = r.topic_id AND e.part = r.part
  WHERE r.is_no_record = 0
),
fates AS (
  SELECT cluster_id, group_id, topic_id, part, first_offset,
    CASE WHEN outcome <> 'unknown' OR log_end IS NULL OR last_offset < log_end THEN last_offset
         ELSE log_end - 1 END AS last_offset,
    outcome,
    CASE WHEN outcome <> 'unknown' AND is_dated THEN record_timestamp_ms END AS finished_ms,
    CASE WHEN outcome = 'unknown' THEN doubt WHEN doubt <> 'known' THEN 'may_have_changed'
         WHEN NOT is_dated THEN 'time_not_known' END AS reason,
    CASE WHEN outcome <> 'unknown' THEN delivery_count END AS delivery_count,
    CASE WHEN outcome = 'unknown' THEN NULL WHEN times = 0 THEN 1 ELSE times END AS times_finished,
    CASE WHEN outcome <> 'unknown' THEN state_partition END AS state_partition,
    CASE WHEN outcome <> 'unknown' THEN record_offset END AS record_offset
  FROM judged
  WHERE (outcome <> 'unknown' OR doubt <> 'known') AND (outcome <> 'unknown' OR log_end IS NULL OR first_offset < log_end)
  UNION ALL
  SELECT q.cluster_id, q.group_id, q.topic_id, q.partition AS part, 0 AS first_offset, q.log_end_offset - 1 AS last_offset,
    'unknown' AS outcome, NULL AS finished_ms, 'no_history' AS reason, NULL AS delivery_count, NULL AS times_finished,
    NULL AS state_partition, NULL AS record_offset
  FROM queue_statuses AS q
  LEFT JOIN places AS p ON p.group_id = q.group_id AND p.topic_id = q.topic_id AND p.part = q.partition
  WHERE p.part IS NULL AND q.partition IS NOT NULL AND (q.log_end_offset IS NULL OR q.log_end_offset > 0)
)
SELECT f.cluster_id, f.group_id, t.topic, f.topic_id, f.part AS partition,
  f.first_offset, f.last_offset, f.last_offset - f.first_offset + 1 AS records, f.outcome,
  instant_of_ms(f.finished_ms) AS finished_at, f.reason, f.delivery_count,
  CAST(f.times_finished AS BIGINT) AS times_finished, f.state_partition,
  f.record_offset
FROM fates AS f
LEFT JOIN topics AS t ON t.topic_id = f.topic_id
