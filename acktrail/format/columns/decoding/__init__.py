"""Raw records to decoded columns."""
