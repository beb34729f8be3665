"""Delta tables: create, append, upsert, read, and their errors."""

from acktrail.config import native_log_filter

with native_log_filter("warn,aws_config=off"):
    import deltalake as deltalake  # reads its log's levels when it is imported; an error says what its warnings do
