"""Operations on acceptors and transducers. May import the arrays of FSTs and their files."""
