"""Arrow schemas of every table."""
