"""Language models: n-grams in ARPA and const-ARPA files, counted, smoothed, mixed, pruned, judged,
as FSTs and automata; recurrent ones.

May import `fst` and the floors below.
"""
