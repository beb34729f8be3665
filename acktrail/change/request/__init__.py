"""What a person asks for: groups, share partitions, targets, times."""
