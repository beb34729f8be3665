"""Sink connectors and their tasks: Delta tables, and Kafka topics in transactions (KIP-618)."""
