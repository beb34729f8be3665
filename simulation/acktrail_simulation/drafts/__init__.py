"""Simulated writers and cleaners of the drafted record formats."""
