"""Rows of a table as a pandas frame, with the columns that an expectation compares them with."""
