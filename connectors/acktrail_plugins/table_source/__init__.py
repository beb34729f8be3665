"""Delta tables as the origin of a connector."""
