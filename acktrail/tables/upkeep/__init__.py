"""Upkeep of the tables: small files, logs, files that no version needs, rows that are not kept, growth."""
