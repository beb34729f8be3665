"""The edge to object storage: Delta tables, their commits and reads."""
