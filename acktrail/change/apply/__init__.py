"""Carrying out a plan: approval, leases, comparison with the cluster, one request a group."""
