"""CNTK's SimpleNetworkBuilder: standard networks from a few sizes.

Gives whole networks to `run.build`. May import network and config.
"""
