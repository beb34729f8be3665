"""Expectations about the tables, one suite a table, and the gate."""
