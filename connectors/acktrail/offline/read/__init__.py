"""Files of copied records: dumps, log segments, Parquet and Arrow."""
