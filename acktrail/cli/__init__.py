"""The ``acktrail`` command: one module for the commands of a subject, each light to import."""
