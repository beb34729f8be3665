"""What must hold of the tables: custom expectations, one suite a table, and the gate."""
