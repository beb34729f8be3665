"""The Connect-style contract: sources, tasks, sinks and positions, and the worker that moves batches between them."""
