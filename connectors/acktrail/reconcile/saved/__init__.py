"""What one reconciliation saves for the next one, and how the next one resumes from it."""
