"""What became of each offset, record by record: status, changes, intervals, completeness."""
