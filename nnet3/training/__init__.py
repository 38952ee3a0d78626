"""Training as Kaldi's nnet3 does it: objectives, natural-gradient SGD, and the tools around."""

from .objectives import FrameObjectives, Objective, Outcome
from .options import NnetTrainerOptions
from .trainer import NnetTrainer

__all__ = ["FrameObjectives", "NnetTrainer", "NnetTrainerOptions", "Objective", "Outcome"]
