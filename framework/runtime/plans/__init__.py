"""What about a run depends on shapes and not on data: steps, memory, layouts, switches.

Gives the runtime and nets inside nets a `Plan`. May import base, ir and fusion.
"""
