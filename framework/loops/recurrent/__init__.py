"""RecurrentNet: a step net over the steps of sequences, and its gradient.

Gives `RecurrentNet`; a step net is bound once for each signature. May import loops and below.
"""
