"""What a worker shows to Prometheus."""
