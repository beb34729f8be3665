"""Evidence of a run: what was read, what was checked, and which files of the tables it was made of."""
