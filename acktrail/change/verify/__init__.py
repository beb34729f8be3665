"""What became of a change: the state topic and the brokers, asked afterwards."""
