"""Whether a scheduled reconciliation is due."""
