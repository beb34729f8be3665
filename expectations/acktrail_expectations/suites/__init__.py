"""What must hold of each table: one module, one function, one ordered tuple of checks."""
