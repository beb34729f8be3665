"""HTTP servers: one with a bounded number of connections, who may call it, and what Prometheus scrapes."""
