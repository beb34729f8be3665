"""Changes of the status of records, and the proof that nothing was lost."""
