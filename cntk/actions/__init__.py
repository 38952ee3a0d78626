"""The actions of CNTK's commands: training, evaluation, output of values, editing of models.

Gives `run_commands` to programs. May import every room before it.
"""
