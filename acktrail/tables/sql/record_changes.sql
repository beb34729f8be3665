SELECT h.cluster_id, h.group_id, t.topic, h.topic_id, h.partition, h.first_offset, h.last_offset,
  h.last_offset - h.first_offset + 1 AS records,
  instant_of_ms(h.record_timestamp_ms) AS changed_at, h.is_dated, h.cause,
  COALESCE(b.word, h.before_standing) AS before, h.before_count, COALESCE(a.word, h.standing) AS after, h.delivery_count,
  h.state_partition, h.record_offset
FROM delivery_history AS h
LEFT JOIN topics AS t ON t.topic_id = h.topic_id
LEFT JOIN delivery_states AS b ON b.delivery_state = h.before_state
LEFT JOIN delivery_states AS a ON a.delivery_state = h.delivery_state
