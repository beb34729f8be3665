-- What became of records. Ranges of a share partition are disjoint, so sum(records) counts each record once.
-- An offset has the outcome of the last change that finished it. To find that change without comparing every change with
-- every other one, changes lie in layers that overlap nowhere: a layer ends where offsets were taken back (a reset, a
-- deletion) or lost (a gap). Along the offsets of a layer, running sums of what begins and what ends are the numbers of
-- the one change in force; where two overlap all the same (depth 2), the history is damaged.
WITH
history AS (
  SELECT h.cluster_id, h.group_id, h.topic_id, h.partition AS part, h.state_partition, h.record_offset,
    h.first_offset, h.last_offset,
    COALESCE(h.record_timestamp_ms, 0) AS ms, COALESCE(h.delivery_count, 0) AS delivery_count,
    CASE WHEN h.delivery_state IN (2, 4) THEN h.delivery_state ELSE 0 END AS outcome,
    CASE WHEN h.is_dated AND h.record_timestamp_ms IS NOT NULL THEN 1 ELSE 0 END AS is_dated,
    CASE WHEN h.is_dated AND COALESCE(h.before_state, 0) <> COALESCE(h.delivery_state, 0) THEN 1 ELSE 0 END AS is_new,
    CASE WHEN h.standing = 'unknown' THEN 'lost' WHEN h.before_standing = 'unknown' THEN 'found'
         WHEN h.before_standing = 'absent' THEN 'begun' ELSE 'none' END AS knowledge,
    CASE WHEN h.standing = 'unknown' AND h.cause = 'gap' THEN 1
         WHEN h.standing = 'unknown' AND h.cause = 'unreadable' THEN 2
         WHEN h.standing = 'unknown' THEN 3
         WHEN h.standing = 'below_start' THEN 4 ELSE 0 END AS doubt,
    CASE WHEN h.before_standing = 'below_start' OR (h.before_state IN (2, 4) AND h.standing <> 'below_start')
         THEN 1 ELSE 0 END AS takes_back
  FROM delivery_history AS h
),
numbered AS (
  SELECT h.*,
    ROW_NUMBER() OVER (PARTITION BY group_id, topic_id, part ORDER BY record_offset, first_offset) AS number,
    MAX(CASE WHEN takes_back = 1 THEN record_offset ELSE -1 END) OVER (
      PARTITION BY group_id, topic_id, part ORDER BY record_offset, takes_back DESC, first_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS life,
    MAX(CASE WHEN knowledge = 'lost' THEN record_offset ELSE -1 END) OVER (
      PARTITION BY group_id, topic_id, part ORDER BY record_offset, knowledge DESC, first_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS era
  FROM history AS h
  WHERE outcome > 0 OR takes_back = 1 OR knowledge <> 'none'
),
kinds AS (
  SELECT 'new' AS kind UNION ALL SELECT 'again' AS kind UNION ALL SELECT 'lost' AS kind
  UNION ALL SELECT 'found' AS kind UNION ALL SELECT 'seen' AS kind
),
marks AS (
  SELECT n.cluster_id, n.group_id, n.topic_id, n.part, k.kind, n.first_offset, n.last_offset, n.number,
    CASE WHEN k.kind = 'seen' THEN -1 WHEN k.kind IN ('new', 'again') THEN n.life ELSE n.era END AS layer,
    n.state_partition, n.record_offset, n.ms, n.delivery_count, n.outcome, n.is_dated, n.doubt
  FROM numbered AS n CROSS JOIN kinds AS k
  WHERE (k.kind = 'new' AND n.outcome > 0 AND n.is_new = 1) OR (k.kind = 'again' AND n.outcome > 0 AND n.is_new = 0)
    OR k.kind = n.knowledge OR (k.kind = 'seen' AND (n.outcome > 0 OR n.knowledge <> 'none'))
  UNION ALL
  SELECT NULL AS cluster_id, a.group_id, a.topic_id, a.partition AS part, 'no_record' AS kind, a.first_offset,
    a.last_offset, 0 AS number, -1 AS layer, NULL AS state_partition, 0 AS record_offset, 0 AS ms, 0 AS delivery_count,
    0 AS outcome, 0 AS is_dated, 0 AS doubt
  FROM archived_offsets AS a WHERE NOT a.is_record
),
sides AS (SELECT 1 AS side UNION ALL SELECT -1 AS side UNION ALL SELECT 0 AS side),
steps AS (
  SELECT m.group_id, m.topic_id, m.part, m.kind, m.layer, m.cluster_id, m.state_partition, s.side AS depth,
    CASE WHEN s.side = 1 THEN m.first_offset WHEN s.side = -1 THEN m.last_offset + 1 ELSE 0 END AS step_at,
    s.side * m.number AS number, s.side * m.record_offset AS record_offset, s.side * m.ms AS ms,
    s.side * m.delivery_count AS delivery_count, s.side * m.outcome AS outcome, s.side * m.is_dated AS is_dated,
    s.side * m.doubt AS doubt
  FROM marks AS m CROSS JOIN sides AS s
  WHERE (s.side = 1 OR (s.side = -1 AND m.last_offset IS NOT NULL)) OR (s.side = 0 AND m.kind = 'seen')
),
layers AS (SELECT DISTINCT group_id, topic_id, part, kind, layer FROM steps),
grid AS (
  SELECT s.group_id, s.topic_id, s.part, l.kind, l.layer, s.step_at, MIN(s.cluster_id) AS cluster_id,
    MIN(s.state_partition) AS state_partition, MAX(s.state_partition) AS last_state_partition,
    SUM(CASE WHEN s.kind = l.kind AND s.layer = l.layer THEN s.depth ELSE 0 END) AS depth,
    SUM(CASE WHEN s.kind = l.kind AND s.layer = l.layer THEN s.number ELSE 0 END) AS number,
    SUM(CASE WHEN s.kind = l.kind AND s.layer = l.layer THEN s.record_offset ELSE 0 END) AS record_offset,
    SUM(CASE WHEN s.kind = l.kind AND s.layer = l.layer THEN s.ms ELSE 0 END) AS ms,
    SUM(CASE WHEN s.kind = l.kind AND s.layer = l.layer THEN s.delivery_count ELSE 0 END) AS delivery_count,
    SUM(CASE WHEN s.kind = l.kind AND s.layer = l.layer THEN s.outcome ELSE 0 END) AS outcome,
    SUM(CASE WHEN s.kind = l.kind AND s.layer = l.layer THEN s.is_dated ELSE 0 END) AS is_dated,
    SUM(CASE WHEN s.kind = l.kind AND s.layer = l.layer THEN s.doubt ELSE 0 END) AS doubt
  FROM steps AS s JOIN layers AS l ON l.group_id = s.group_id AND l.topic_id = s.topic_id AND l.part = s.part
  GROUP BY s.group_id, s.topic_id, s.part, l.kind, l.layer, s.step_at
),
running AS (
  SELECT group_id, topic_id, part, step_at, cluster_id, state_partition, last_state_partition,
    CASE WHEN kind IN ('new', 'again') THEN 'end' WHEN kind IN ('lost', 'found') THEN 'sight' ELSE kind END AS kind,
    CASE WHEN kind = 'new' THEN 1 ELSE 0 END AS is_new,
    SUM(depth) OVER along AS depth, SUM(number) OVER along AS number, SUM(record_offset) OVER along AS record_offset,
    SUM(ms) OVER along AS ms, SUM(delivery_count) OVER along AS delivery_count, SUM(outcome) OVER along AS outcome,
    SUM(is_dated) OVER along AS is_dated, SUM(doubt) OVER along AS doubt
  FROM grid
  WINDOW along AS (PARTITION BY group_id, topic_id, part, kind, layer ORDER BY step_at
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
),
newest AS (
  SELECT r.*,
    ROW_NUMBER() OVER (PARTITION BY group_id, topic_id, part, step_at, kind ORDER BY number DESC) AS age
  FROM running AS r WHERE depth > 0 OR kind = 'seen'
),
cells AS (
  SELECT group_id, topic_id, part, step_at, MIN(cluster_id) AS cluster_id, MIN(state_partition) AS state_partition,
    MAX(last_state_partition) AS last_state_partition,
    MAX(CASE WHEN kind = 'end' AND age = 1 THEN outcome ELSE 0 END) AS outcome,
    MAX(CASE WHEN kind = 'end' AND age = 1 THEN record_offset ELSE -1 END) AS record_offset,
    MAX(CASE WHEN kind = 'end' AND age = 1 THEN ms ELSE 0 END) AS ms,
    MAX(CASE WHEN kind = 'end' AND age = 1 THEN is_dated ELSE 0 END) AS is_dated,
    MAX(CASE WHEN kind = 'end' AND age = 1 THEN delivery_count ELSE 0 END) AS delivery_count,
    MAX(CASE WHEN kind = 'sight' AND age = 1 THEN doubt ELSE 0 END) AS doubt,
    MAX(CASE WHEN kind = 'sight' AND age = 1 THEN record_offset ELSE -1 END) AS doubt_offset,
    SUM(CASE WHEN kind = 'end' THEN is_new ELSE 0 END) AS times,
    MAX(CASE WHEN kind = 'seen' AND depth > 0 THEN 1 ELSE 0 END) AS is_seen,
    MAX(CASE WHEN kind = 'no_record' THEN 1 ELSE 0 END) AS is_no_record,
    MAX(CASE WHEN kind IN ('end', 'sight') AND depth > 1 THEN 1 ELSE 0 END) AS is_unclear
  FROM newest
  GROUP BY group_id, topic_id, part, step_at
),
ranges AS (
  SELECT group_id, topic_id, part, step_at, outcome, record_offset, ms, is_dated, delivery_count, doubt, doubt_offset,
    times, is_seen, is_no_record, is_unclear,
    MIN(cluster_id) OVER whole AS cluster_id, MIN(state_partition) OVER whole AS state_partition,
    MAX(last_state_partition) OVER whole AS last_state_partition,
    LEAD(step_at) OVER (PARTITION BY group_id, topic_id, part ORDER BY step_at) AS next_at
  FROM cells
  WINDOW whole AS (PARTITION BY group_id, topic_id, part)
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
  SELECT r.cluster_id, r.group_id, r.topic_id, r.part, r.step_at AS first_offset, r.next_at - 1 AS last_offset, r.times,
    e.log_end, r.delivery_count, r.state_partition, r.record_offset, r.ms, r.is_dated,
    CASE WHEN r.state_partition <> r.last_state_partition THEN 'two_state_partitions'
         WHEN r.is_unclear = 1 THEN 'changes_missing'
         WHEN r.is_seen = 0 THEN 'not_kept'
         WHEN r.record_offset < COALESCE(d.record_offset, -1) THEN 'unreadable'
         WHEN r.record_offset >= r.doubt_offset OR r.doubt = 0 THEN 'known'
         WHEN r.doubt = 1 THEN 'gap'
         WHEN r.doubt = 2 THEN 'unreadable'
         WHEN r.doubt = 3 THEN 'no_snapshot'
         ELSE 'before_first_record' END AS doubt,
    CASE WHEN r.state_partition <> r.last_state_partition OR r.is_unclear = 1 THEN 'unknown'
         WHEN r.outcome = 2 THEN 'acknowledged'
         WHEN r.outcome = 4 THEN 'archived' ELSE 'unknown' END AS outcome
  FROM ranges AS r
  LEFT JOIN doubts AS d ON d.state_partition = r.state_partition
  LEFT JOIN log_ends AS e ON e.topic_id = r.topic_id AND e.part = r.part
  WHERE r.is_no_record = 0 AND r.state_partition IS NOT NULL
),
known AS (
  SELECT DISTINCT h.group_id, h.topic_id, h.partition AS part
  FROM delivery_history AS h
  WHERE h.delivery_state IN (2, 4) OR h.standing = 'unknown' OR h.before_standing IN ('unknown', 'absent')
),
fates AS (
  SELECT cluster_id, group_id, topic_id, part, first_offset,
    CASE WHEN outcome <> 'unknown' OR log_end IS NULL OR last_offset < log_end THEN last_offset
         ELSE log_end - 1 END AS last_offset,
    outcome,
    CASE WHEN outcome <> 'unknown' AND is_dated = 1 THEN CAST(ms AS BIGINT) END AS finished_ms,
    CASE WHEN outcome = 'unknown' THEN doubt WHEN doubt <> 'known' THEN 'may_have_changed'
         WHEN is_dated = 0 THEN 'time_not_known' END AS reason,
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
  LEFT JOIN known AS k ON k.group_id = q.group_id AND k.topic_id = q.topic_id AND k.part = q.partition
  WHERE k.part IS NULL AND q.partition IS NOT NULL AND (q.log_end_offset IS NULL OR q.log_end_offset > 0)
)
SELECT f.cluster_id, f.group_id, t.topic, f.topic_id, f.part AS partition, f.first_offset, f.last_offset,
  f.last_offset - f.first_offset + 1 AS records, f.outcome, instant_of_ms(f.finished_ms) AS finished_at,
  f.reason, CAST(f.delivery_count AS SMALLINT) AS delivery_count, CAST(f.times_finished AS BIGINT) AS times_finished,
  CAST(f.state_partition AS INT) AS state_partition, CAST(f.record_offset AS BIGINT) AS record_offset
FROM fates AS f
LEFT JOIN topics AS t ON t.topic_id = f.topic_id
