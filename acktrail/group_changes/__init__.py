"""Groups or their offsets deleted, their configurations changed: kinds of changes, one request a group."""
