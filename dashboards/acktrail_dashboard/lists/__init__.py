"""What pages list: pure functions from tables to frozen rows, one page at a time."""
