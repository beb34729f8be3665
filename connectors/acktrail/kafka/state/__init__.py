"""The state topic, read from a cluster."""
