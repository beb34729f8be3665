"""Connectors beside the core: Parquet files, Kafka topics, tables as a source, transforms of rows."""
