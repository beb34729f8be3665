"""Connections to a cluster: settings, coordinators, retries, and what errors mean."""
