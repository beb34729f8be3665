"""The bytes, pure. Readers are functions ``(buffer, position) -> (value, next position)``."""
