"""Airflow provider for share groups: connection type, hook, sensors that wait without a slot, operators of a change."""
