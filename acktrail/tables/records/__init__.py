"""The tables that the exporter writes: records, ranges, and whether they are whole."""
