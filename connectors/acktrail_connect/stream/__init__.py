"""``acktrail run stream``: the export by Spark's Structured Streaming."""
