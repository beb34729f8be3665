"""Changes to share groups that are planned, previewed, approved, executed, verified and undone."""
