"""Share-group state as values, and the rules of Kafka's coordinator as pure functions."""
