"""Requests, responses and records in the forms that the simulation and its tests exchange."""
