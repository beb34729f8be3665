"""Connectors that only a worker runs: topics with records about share groups, Delta tables of any rows."""
