"""Partition expansions: which topics grew, and what that did to the order of keys (docs/expansion.md). A branch."""
