"""What an edit of a network is: typed operations, patterns of names, and the text of a difference.

Languages of edits (Kaldi's directives, MEL) make `Edit`s of their texts, networks carry them out:
each kind has a function `perform(network, edit)`. May import base and ir.
"""
