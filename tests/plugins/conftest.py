"""Servers of other tests that those of the branch use."""

from tables.conftest import object_storage

__all__ = ["object_storage"]
