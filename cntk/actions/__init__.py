"""The actions of CNTK's commands: what a config makes happen."""
