"""What programs share: the command in the manner of Kaldi's, common options, origins of messages.

Gives `program` and `Option`. May import every room of this floor.
"""
