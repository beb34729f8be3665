"""What became of a change, by the state topic and the brokers."""
