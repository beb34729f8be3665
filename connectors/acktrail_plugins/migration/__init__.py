"""Start offsets of share groups carried to another cluster: what the source had, and where that is on the target."""
