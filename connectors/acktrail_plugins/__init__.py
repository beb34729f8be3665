"""Connectors beside the core: Parquet files, Kafka topics, tables as a source, transforms of rows; and suites of tests
for those who write connectors."""
