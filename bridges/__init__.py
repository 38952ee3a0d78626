"""Bridges: what stands above all front ends and joins them.

Rooms: `view`, the page to look at a net. May import proto, framework, operators, nnet3 and cntk;
python_api stands above.
"""
