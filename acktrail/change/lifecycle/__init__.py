"""The life of a plan: approval, status, undo."""
