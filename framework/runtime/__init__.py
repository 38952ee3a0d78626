"""Running a list: PlainNet, plans, frames, hooks, and first values of parameters.

Gives nets that run in any scope. May import base, ir, passes and fusion. Importing any module of
this room registers PlainNet, so that `Net.create` can make one.
"""

from . import plain_net

__all__ = ["plain_net"]
