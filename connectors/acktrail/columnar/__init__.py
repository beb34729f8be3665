"""The same laws on millions of records at once: Arrow schemas, Arrow decode."""
