"""What a reset means for the order of keys."""
