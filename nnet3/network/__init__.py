"""Networks: Nnet and acoustic models, their edits, adjustments and `.pb` dialect.

Gives `Nnet` and `AmNnetSimple`. May import files, language, components, graph and draw.
"""
