"""The rows of a report, read from the tables of one run."""
