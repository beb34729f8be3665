"""Commands of the export, named after what a user types."""
