"""What an utterance may consist of: made, cut, converted. May import graphs of phones."""
