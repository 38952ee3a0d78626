"""Where the time of a net goes: `profile(net_or_path)`, a table, a Chrome trace, a flame graph.

Measures what `view --profile` shows, on the same graph. May import bridges/view and what that may.
"""
