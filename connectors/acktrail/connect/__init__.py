"""The Connect contract: connectors, tasks, batches, positions and configuration; and what executes a task."""
