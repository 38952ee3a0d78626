"""Ranks: communicators of several, and the comparison of what they are about to run.

Gives `DryWorld`, `EchoCommunicator`, `MpiCommunicator` and `NcclCommunicator`, `handshake` and
`launched_ranks`. May import base and ir. The interface itself is in framework/base/communicator.py.
"""
