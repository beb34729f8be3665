"""Expansions, fences, dependencies and the audit of their order, for all topics and groups at once."""
