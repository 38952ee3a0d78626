"""What trainings of any front end share: the history of epochs, metrics, Ctrl-C, resuming, locks.

Gives `History`, `Metric`, `CtrlC`, the lock of a folder, and what a changed training takes over
from a checkpoint. May import base, ir, passes, runtime and files.
"""
