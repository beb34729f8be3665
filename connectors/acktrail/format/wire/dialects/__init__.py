"""Every byte form a state record was ever specified in, by the name of its dialect."""
