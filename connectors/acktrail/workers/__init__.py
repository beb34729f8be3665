"""Work on state partitions in parallel: how it is divided, and how its results return."""
