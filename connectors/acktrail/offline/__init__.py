"""Records of the state topic in files: copied segments, dumps and tables."""
