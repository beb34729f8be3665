"""The delivery history, saved states, and replay from the tables."""
