"""The settings of a training from features to the final nnet3 model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ...framework.base.errors import AttributeTypeError
from ...framework.base.options.option_fields import option
from ...nnet3.egs.merging import MinibatchRule
from ...nnet3.training import NnetTrainerOptions
from ...nnet3.training.schedule import proportion_at


@dataclass(frozen=True)
class RecipeOptions:
    """All settings of a training: options of `opscope nnet3 train`, as its help lists them.

    `num_frames` and `minibatch` are as `--num-frames` of nnet3-get-egs and `--minibatch-size` of
    nnet3-merge-egs have them; the trainer's settings as in `NnetTrainerOptions`. The network may
    be a raw one, to go on training. Recurrent networks learn from additional context of chunks.
    The utterances held out are drawn at random. The learning rate falls exponentially from
    `initial_lr` to `final_lr`. A dropout schedule, `PROPORTION@SHARE,...`, gives the proportion at
    shares of the training, linear between them; it is changed with each epoch. Of the last
    `average_last` epochs as many models are averaged as do best on held-out examples. Checkpoints
    are also written after each epoch.

    Raises:
        AttributeTypeError: a value out of bounds, or one that cannot be understood.
    """

    feats: str = option(doc="Rspecifier of features, e.g. ark:feats.ark.")
    targets: str = option(doc="Rspecifier of targets: class ids, posteriors or matrices.")
    network: str = option(doc="An xconfig, a config, or a raw network.")
    dir: str = option(doc="Folder of the experiment.")
    ivectors: str = option("", "Rspecifier of iVectors, as matrices.")
    online_ivector_period: int = option(1, "Frames between two iVectors.")
    num_frames: str = option(
        "8", "Frames of targets in an example: the principal number, then others."
    )
    chunk_left_context: int = option(0, "Frames of left context besides what the network needs.")
    chunk_right_context: int = option(0, "Frames of right context besides what the network needs.")
    frame_subsampling_factor: int = option(1, "Input frames for one frame of targets.")
    valid_utterances: int = option(30, "Utterances to hold out.")
    epochs: int = option(4, "Passes over the data.")
    minibatch: str = option(
        "64,1:32", "Examples in a minibatch, as --minibatch-size of nnet3-merge-egs."
    )
    initial_lr: float = option(0.002, "Learning rate at the start.")
    final_lr: float = option(0.002, "Learning rate at the end.")
    momentum: float = option(0.0, "Share of the last change that is added again.")
    max_param_change: float = option(2.0, "Largest change in one minibatch.")
    l2_regularize_factor: float = option(1.0, "Factor of the components' L2 regularization.")
    backstitch_training_scale: float = option(0.0, "Scale of backstitch; 0 = none.")
    backstitch_training_interval: int = option(1, "Backstitch with one of so many minibatches.")
    dropout_schedule: str = option("", "Dropout proportions, e.g. 0,0.2@0.5,0.")
    average_last: int = option(2, "Epochs whose models may be averaged at the end.")
    checkpoint_minutes: float = option(5.0, "Time between checkpoints.")
    seed: int = option(0, "Of all that is random.")
    skip_nan: bool = option(False, "Pass over utterances with NaN, in place of refusing.")

    def __post_init__(self) -> None:
        positive = ("epochs", "average_last", "online_ivector_period", "initial_lr", "final_lr")
        for name in positive:
            if not getattr(self, name) > 0:
                raise AttributeTypeError(f"{name}={getattr(self, name)} must be positive")
        MinibatchRule(self.minibatch)
        self.trainer()
        self.dropout(0.0)

    def trainer(self) -> NnetTrainerOptions:
        """The settings of the trainer."""
        names = {field.name for field in dataclasses.fields(NnetTrainerOptions)}
        chosen = {name: value for name, value in vars(self).items() if name in names}
        return NnetTrainerOptions(**chosen)

    def learning_rate(self, share: float) -> float:
        """The learning rate after a share of the training."""
        return self.initial_lr * (self.final_lr / self.initial_lr) ** share

    def dropout(self, share: float) -> float | None:
        """The dropout proportion after a share of the training; None = as in the network.

        Raises:
            AttributeTypeError: the schedule cannot be understood.
        """
        if not self.dropout_schedule:
            return None
        return proportion_at(self.dropout_schedule, share)
