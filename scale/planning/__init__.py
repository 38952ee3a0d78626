"""What a training step would take on many ranks, planned on one.

Gives the record of a step, its plan, the fit of a link and their text to the command
`opscope plan-scale`.
"""
