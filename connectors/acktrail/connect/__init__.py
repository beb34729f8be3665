"""The Connect contract: connectors, tasks, batches, positions and configuration, and the worker that runs them."""
