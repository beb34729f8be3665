"""The domain, pure: share partitions, delivery states, batches, the laws of replay and of reconciliation."""
