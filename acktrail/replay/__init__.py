"""Replay of many share partitions at once."""
