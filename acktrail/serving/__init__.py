"""HTTP servers: bounded connections, access, metrics."""
