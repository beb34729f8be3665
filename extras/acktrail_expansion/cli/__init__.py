"""``acktrail expand``: more partitions for a topic, and what that means for the order of keys."""
