"""Simulated share-partition leaders: acquisition, acknowledgement, sessions."""
