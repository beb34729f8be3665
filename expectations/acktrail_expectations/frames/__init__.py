"""The frames that suites look at: rows of the tables, each beside what bounds it."""
