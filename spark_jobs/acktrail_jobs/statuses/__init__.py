"""The status of each group and share partition, judged by a window of observations."""
