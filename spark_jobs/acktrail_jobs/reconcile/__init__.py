"""States beside what brokers said: verdicts and findings."""
