"""Runs connectors: a task, a connector, a worker with its connectors."""
