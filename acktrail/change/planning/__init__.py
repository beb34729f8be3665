"""A plan: strategies, impact, rules, and the file it is kept in."""
