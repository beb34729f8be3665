"""The ``acktrail`` command: one module a command, each light to import."""
