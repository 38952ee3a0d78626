"""Operators that exchange values between ranks, through the communicator of the run.

Sums, gathering, broadcasting, synchronised batch normalisation, averages of parameters. May import
base, math and optim. A run without a communicator is one of one rank.
"""
