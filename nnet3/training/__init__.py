"""Training as Kaldi's nnet3 does it: objectives, natural-gradient SGD, and the tools around.

Gives `NnetTrainer` and its options to programs and recipes. May import chain, cache and every room
before it. Names are looked up on first use: programs for examples need none of them.
"""

from typing import TYPE_CHECKING

from ...framework.base.python.lazy_names import lazy_names

if TYPE_CHECKING:
    from .objectives import FrameObjectives, Objective, Outcome
    from .options import NnetTrainerOptions
    from .trainer import NnetTrainer

__all__ = ["FrameObjectives", "NnetTrainer", "NnetTrainerOptions", "Objective", "Outcome"]
_HOMES = {
    **dict.fromkeys(("FrameObjectives", "Objective", "Outcome"), ".objectives"),
    "NnetTrainerOptions": ".options",
    "NnetTrainer": ".trainer",
}
__getattr__, __dir__ = lazy_names(__name__, globals(), _HOMES)
