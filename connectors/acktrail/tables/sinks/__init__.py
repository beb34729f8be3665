"""The sink for rows of any source: Delta tables of any name."""
