"""The format: messages, arrays and what lies beside a file, read with suspicion and written whole.

Gives `read_model`, `write_model`, `Graph`. May import framework and proto.
"""
