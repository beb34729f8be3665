"""Changes to share groups: planned, approved, executed, verified, undone; `api` has a function for each step."""
