"""The settings of a training of a recognizer."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ...framework.base.errors import ArgumentError
from ...framework.base.options.option_fields import option
from ...nnet3.egs.merging import MinibatchRule
from ...nnet3.egs.splitting import ExampleGenerationOptions
from ..language_model.smoothing import METHODS

_CONTEXTS = ("none", "left")
SPLIT = ("test_speakers", "hold_out", "skip_bad", "rate", "speed_step", "seed")
"""Settings of the check of the data."""
COURSE = ("minibatch", "initial_lr", "final_lr", "average_last", "seed", "copies")
"""Settings of every training of a network."""
FLAT_START, TDNNF = "flat-start", "tdnnf"
SUBSAMPLING = 3
"""Frames of features for one of a network's output."""
_FIRST_RATES = (0.002, 0.001)
"""Learning rates at the start of a training from nothing, and of fine-tuning."""
_OF_NETWORKS = (
    *("rate", "look_ahead", "model", "context", "min_pairs", "network", "width", "ivectors"),
    *("leaves", "tdnnf_network", "tdnnf_width", "tdnnf_epochs"),
)
"""Settings of networks that are trained from nothing, and of their features and graphs."""
_NOT_NEGATIVE = (
    *("rate", "width", "epochs", "ivectors", "leaves", "tdnnf_width", "tdnnf_epochs"),
    *("min_pairs", "checkpoint_minutes", "seed", "initial_lr", "final_lr", "body_rate"),
)


@dataclass(frozen=True)
class RecognizerOptions:
    """All settings of a training: options of `opscope train-recognizer`, as its help lists them.

    Raises:
        ArgumentError: a value out of bounds. AttributeTypeError: sizes of minibatches or lengths of
            chunks that cannot be understood.
    """

    lexicon: str = option(
        "", "Words and their phones, or Kaldi's dict folder; without one, characters are the units."
    )
    text: str = option(
        "", "Sentences for the language model, one a line, in place of what was said in training."
    )
    lm: str = option("", "An ARPA file that is the language model.")
    order: int = option(3, "Words of the longest n-grams of a text.")
    method: str = option("witten-bell", "How n-grams that a text lacks get a probability.")
    look_ahead: bool = option(
        False, "Write HCLr.fst and Gr.fst, which take phrases and new words at run time."
    )
    test_speakers: str = option("", "Speakers that are held out, with commas between them.")
    hold_out: float = option(
        0.1, "Share of the utterances that is held out, by speakers where there are several."
    )
    skip_bad: bool = option(False, "Leave out recordings that cannot be used, and count them.")
    rate: int = option(
        0, "Sampling rate of the features; by default the most common one, at most 16000."
    )
    base: str = option(
        "",
        "The folder of a model of Kaldi or Vosk that is fine-tuned; its words and grammar stay.",
        name="from",
    )
    body_rate: float = option(
        0.25, "Factor of the learning rates of all but the last layers of a model in fine-tuning."
    )
    model: str = option(
        "",
        "flat-start; or tdnnf: a factorized TDNN, with a tree by clustering, trained on the flat"
        " start's alignments. By default tdnnf where an hour or more is trained on.",
    )
    copies: int = option(
        3,
        "Copies of each utterance, at different speeds and volumes; of three or more, one keeps its"
        " speed and has more silence.",
    )
    volumes: str = option(
        "0.25,2", "The least and the greatest factor of the volume of copies; 1,1: it stays."
    )
    speed_step: float = option(
        0.12, "Relative difference of the lengths that copies are brought to."
    )
    context: str = option("left", "Whether outputs depend on the phone before: none or left.")
    min_pairs: int = option(
        20, "Least count of a pair of phones in training that has outputs of its own."
    )
    network: str = option("", "An xconfig whose output node is called output; input is given.")
    width: int = option(0, "Columns of the layers of the network; by default by the hours.")
    epochs: int = option(0, "Passes over the examples; by default by the hours.")
    ivectors: int = option(
        0, "Elements of the iVectors that tdnnf takes, of an extractor that is trained; 0: none."
    )
    leaves: int = option(0, "Most outputs of the tree by clustering; by default by the hours.")
    chunks: str = option(
        "150,110,90,60,40",
        "Frames of the examples of tdnnf, the principal length first; -1: whole utterances.",
    )
    tdnnf_network: str = option(
        "", "An xconfig for tdnnf, with output and, for cross-entropy beside, output-xent."
    )
    tdnnf_width: int = option(0, "Columns of the layers of tdnnf; by default by the hours.")
    tdnnf_epochs: int = option(0, "Passes over the examples of tdnnf; by default by the hours.")
    minibatch: str = option("16,8,4,2,1", "Examples in a minibatch, for Kaldi's sizes.")
    initial_lr: float = option(
        0.0, "Learning rate at the start; by default 0.002, in fine-tuning 0.001."
    )
    final_lr: float = option(0.0, "Learning rate at the end; by default a tenth of the first one.")
    average_last: int = option(4, "Epochs whose models may be averaged at the end.")
    checkpoint_minutes: float = option(5.0, "Time between checkpoints, in minutes.")
    jobs: int = option(1, "Processes that compute features and recognize what is held out.")
    seed: int = option(0, "Of all that is random.")

    def __post_init__(self) -> None:
        for name in ("order", "copies", "average_last", "jobs"):
            if not getattr(self, name) > 0:
                raise ArgumentError(f"{name}={getattr(self, name)} must be positive")
        for name in _NOT_NEGATIVE:
            if not getattr(self, name) >= 0:
                raise ArgumentError(f"{name}={getattr(self, name)} must not be negative")
        if not 0 < self.hold_out < 1:
            raise ArgumentError(f"hold_out={self.hold_out:g}: a share between 0 and 1 is wanted")
        if not 0.01 <= self.speed_step <= 0.5:
            raise ArgumentError(f"speed_step={self.speed_step:g} is from 0.01 to 0.5")
        for name, known in (
            ("context", _CONTEXTS),
            ("method", tuple(METHODS)),
            ("model", ("", FLAT_START, TDNNF)),
        ):
            if getattr(self, name) not in known:
                names = ", ".join(filter(None, known))
                raise ArgumentError(f"{name}={getattr(self, name)!r} is none of {names}")
        if self.text and self.lm:
            raise ArgumentError("text and lm: one of them is wanted")
        for each in fields(self):
            value = getattr(self, each.name)
            if self.base and each.name in _OF_NETWORKS and value != each.default:
                raise ArgumentError(
                    f"{each.name}={value!r}: a model that is tuned keeps its features, network and"
                    " kind of graph"
                )
            if not self.base and each.name == "body_rate" and value != each.default:
                raise ArgumentError(f"body_rate={value!r}: no model is given that is tuned")
        if self.ivectors and self.model == FLAT_START:
            raise ArgumentError(f"ivectors={self.ivectors}: the network of tdnnf takes them")
        if not 0 < self.volume_range[0] <= self.volume_range[1] < math.inf:
            raise ArgumentError(f"volumes={self.volumes}: two positive factors, rising, are wanted")
        MinibatchRule(self.minibatch)
        lengths = ExampleGenerationOptions(ExampleGenerationOptions.parse_frames(self.chunks))
        # Of an example with one output frame, no epoch can shift the input: see `shifted`.
        if any(frames <= SUBSAMPLING for frames in lengths.num_frames):
            raise ArgumentError(
                f"chunks={self.chunks}: chunks of {SUBSAMPLING + 1} frames or more are wanted"
            )

    @property
    def volume_range(self) -> tuple[float, float]:
        """The least and the greatest factor of volumes; NaN where they cannot be understood."""
        try:
            least, most = map(float, self.volumes.split(","))
        except ValueError:
            return math.nan, math.nan
        return least, most

    def learning_rate(self, share: float) -> float:
        """The learning rate after a share of the training."""
        first = self.initial_lr or _FIRST_RATES[bool(self.base)]
        return first * ((self.final_lr or first / 10) / first) ** share
