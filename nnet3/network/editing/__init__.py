"""How an `Nnet` carries out edits: a function for each kind of `framework/editing`.

Gives `perform` to the edit directives and to `bridges/edit`. May import what `network` may.
"""
