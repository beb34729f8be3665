"""Words and rows that people see, without layout; messages about changes."""
