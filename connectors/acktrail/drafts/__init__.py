"""The record formats that were drafted before Kafka 4.0 (generations i to iv): layouts, replay and JSON."""
