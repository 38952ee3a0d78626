"""Kaldi's nnet3 programs as commands: a module for each group of programs.

Gives commands to the command line. May import every room of this floor.
"""
