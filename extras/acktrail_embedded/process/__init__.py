"""Child processes that end with their owner."""
