"""What a validation reads of the tables."""
