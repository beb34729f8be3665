"""The audit of changes: a chain of rows, and the tables beside it."""
