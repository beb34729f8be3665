"""What must hold of the tables: expectations, one suite a table, and the gate."""
