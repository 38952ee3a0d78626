"""Files of FSTs: OpenFst's binary types, n-gram models, text. May import the arrays of FSTs."""
