"""Nets as NetBuilder code: of saved nets, and of CNTK's networks.

Gives code to the command line. May import builder.
"""
