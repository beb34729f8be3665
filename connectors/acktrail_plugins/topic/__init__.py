"""Topics that acktrail writes: rows and positions in one transaction (KIP-618's way)."""
