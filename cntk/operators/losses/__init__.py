"""Criteria of CNTK, over samples, rankings, and paths of labels. May import the other operators."""
