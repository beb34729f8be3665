"""Edge to files: records of the state topic that somebody copied out of a cluster."""
