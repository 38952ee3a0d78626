"""How a network of CNTK's carries out edits: a function for each kind of `framework/editing`.

Gives `perform` to MEL and to `bridges/edit`. May import what `network` may.
"""
