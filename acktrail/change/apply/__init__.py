"""Execution of a plan: lease, last look, one request a group."""
