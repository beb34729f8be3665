"""A broker's replay of all share partitions at once, on columns."""
