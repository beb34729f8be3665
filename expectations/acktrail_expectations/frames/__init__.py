"""The frames that suites read: rows of the tables, each beside its limits."""
