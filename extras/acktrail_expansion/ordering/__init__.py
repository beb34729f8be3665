"""What an expansion of a topic's partitions means for records of one key (KIP-253)."""
