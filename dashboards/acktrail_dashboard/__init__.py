"""What a person sees of the tables: web pages, the report of a run in one file, and its evidence."""
