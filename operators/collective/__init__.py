"""Operators that exchange values between ranks, through the communicator of the run.

Sums, gathering, broadcasting, synchronized batch normalization, averages of parameters. May import
base, math and optim. A run without a communicator is one of one rank.
"""
