"""Reconciliation without Spark: exported records to states, states and observations to verdicts."""
