"""The demo workload: real share groups on a real broker, with an exact account of what they did."""
