"""A simulated share coordinator: what ``ShareCoordinatorShard`` does with each request."""
