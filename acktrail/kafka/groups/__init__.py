"""Share groups: requests and responses, changes, observations."""
