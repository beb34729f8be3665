"""What the newest runs found, for a person on call and for Prometheus: statuses, findings, freshness, completeness."""
