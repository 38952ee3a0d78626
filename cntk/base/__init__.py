"""Source text with places, and the random generators that CNTK draws from.

Gives `Text`, errors that point, and generators to every room. May import framework.
"""
