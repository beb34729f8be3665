"""Compares states with the brokers' descriptions: verdicts and findings."""
