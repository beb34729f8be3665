"""PySpark jobs over the tables."""
