"""The worker's REST interface, with the paths, bodies, codes and errors of Kafka Connect's."""
