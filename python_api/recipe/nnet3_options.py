"""The settings of a training from features to the final nnet3 model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ...framework.base.errors import AttributeTypeError
from ...nnet3.egs.merging import MinibatchRule
from ...nnet3.training import NnetTrainerOptions
from ...nnet3.training.schedule import proportion_at


@dataclass(frozen=True)
class RecipeOptions:
    """All settings of a training.

    Attributes:
        feats, targets: rspecifiers; targets are class ids, posteriors or matrices, by utterance.
        network: an xconfig, a config, or a raw network to go on training.
        dir: the folder of the experiment.
        ivectors, online_ivector_period: rspecifier of iVectors, and frames between two of them.
        num_frames: chunk lengths, as `--num-frames` of nnet3-get-egs.
        chunk_left_context, chunk_right_context: frames besides those that the network needs;
            recurrent networks learn from them.
        frame_subsampling_factor: input frames for one frame of targets.
        valid_utterances: how many utterances, drawn at random, are held out.
        epochs, minibatch: passes over the data; examples in a minibatch, as `--minibatch-size`.
        initial_lr, final_lr: the learning rate falls exponentially from one to the other.
        momentum, max_param_change, l2_regularize_factor: see `NnetTrainerOptions`.
        backstitch_training_scale, backstitch_training_interval: see there, too.
        dropout_schedule: `PROPORTION@SHARE,...`: the dropout proportion at shares of the training,
            linear between them; changed with each epoch.
        average_last: of how many epochs the models may be averaged at the end: as many of the last
            ones as do best on held-out examples.
        checkpoint_minutes: time between checkpoints, besides those after each epoch.
        seed: of all that is random.
        skip_nan: pass over utterances with NaN, in place of refusing.
    """

    feats: str
    targets: str
    network: str
    dir: str
    ivectors: str = ""
    online_ivector_period: int = 1
    num_frames: str = "8"
    chunk_left_context: int = 0
    chunk_right_context: int = 0
    frame_subsampling_factor: int = 1
    valid_utterances: int = 30
    epochs: int = 4
    minibatch: str = "64,1:32"
    initial_lr: float = 0.002
    final_lr: float = 0.002
    momentum: float = 0.0
    max_param_change: float = 2.0
    l2_regularize_factor: float = 1.0
    backstitch_training_scale: float = 0.0
    backstitch_training_interval: int = 1
    dropout_schedule: str = ""
    average_last: int = 2
    checkpoint_minutes: float = 5.0
    seed: int = 0
    skip_nan: bool = False

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
