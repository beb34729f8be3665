"""What ``acktrail doctor`` checks."""
