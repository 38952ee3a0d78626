"""Names of other systems and what they are called here: PyTorch, Keras, Paddle, CNTK, Kaldi, Vosk.

A module for each; `rows.py` says what a row is and searches all of them. May import the builder and
all floors below; only the command line and the pages of the documentation import it.
"""
