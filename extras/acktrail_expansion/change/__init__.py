"""More partitions for a topic: looks at it, the plan, the change, and when producers and groups are past it."""
