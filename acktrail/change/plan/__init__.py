"""What is asked of brokers and tables before a plan is made, and again before it is executed."""
