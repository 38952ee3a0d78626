"""Training as Kaldi's nnet3 does it: objectives, natural-gradient SGD, and the tools around.

Gives `NnetTrainer` and its options to programs and recipes. May import chain, cache and every room
before it.
"""

from .objectives import FrameObjectives, Objective, Outcome
from .options import NnetTrainerOptions
from .trainer import NnetTrainer

__all__ = ["FrameObjectives", "NnetTrainer", "NnetTrainerOptions", "Objective", "Outcome"]
