"""The page and the section of the report."""
