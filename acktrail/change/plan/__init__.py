"""A plan: the snapshot of the cluster that it is made from, impact, rules, and the file it is kept in."""
