"""Delta tables: create, append, upsert, read, and their errors."""
