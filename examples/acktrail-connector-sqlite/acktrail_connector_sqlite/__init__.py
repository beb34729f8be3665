"""An acktrail sink for SQLite databases, and a transform that keeps some columns."""
