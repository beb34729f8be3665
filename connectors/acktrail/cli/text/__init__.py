"""Text for people and JSON for programs."""
