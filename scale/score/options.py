"""What a scoring is asked for."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...framework.base.errors import OpscopeError
from ...framework.base.options.option_fields import option

if TYPE_CHECKING:
    from ...nnet3.inference.pieces import ChunkOptions


@dataclass(frozen=True)
class ScoreOptions:
    """How utterances are computed: the options of `opscope score`, as its help lists them.

    A result depends on all of it. Options of nnet3 models are as `nnet3-compute` takes them;
    see `ChunkOptions`. Utterances are computed together until they have `rows_per_batch` rows. The
    sums of some matrix products depend on `threads`.

    Raises:
        OpscopeError: no rows, or no threads.
    """

    frames_per_chunk: int = option(
        50, "nnet3: frames computed in one piece, before any subsampling."
    )
    extra_left_context: int = option(0, "nnet3: frames of left context besides those needed.")
    extra_right_context: int = option(0, "nnet3: frames of right context besides those needed.")
    extra_left_context_initial: int = option(
        -1, "nnet3: the same at the start of an utterance, if >= 0."
    )
    extra_right_context_final: int = option(
        -1, "nnet3: the same at the end of an utterance, if >= 0."
    )
    frame_subsampling_factor: int = option(1, "nnet3: input frames for one output frame.")
    acoustic_scale: float = option(1.0, "nnet3: factor for the output.")
    minibatch_size: int = option(
        16, "nnet3: chunks, of several utterances, that are computed at once."
    )
    ivectors: str = option("", "nnet3: rspecifier of iVectors, one for each utterance or speaker.")
    utt2spk: str = option("", "nnet3: rspecifier of the speaker of each utterance, for --ivectors.")
    online_ivectors: str = option(
        "", "nnet3: rspecifier of iVectors estimated online, as matrices."
    )
    online_ivector_period: int = option(
        0, "nnet3: frames between two iVectors of --online-ivectors."
    )
    use_priors: bool = option(False, "nnet3: subtract the logarithms of the model's priors.")
    apply_exp: bool = option(False, "nnet3: write the exponential function of the output.")
    input: str = option("", "CNTK, .pb: the input that gets the features; by default the only one.")
    output: str = option("", "CNTK, .pb: what is written; by default the only output.")
    rows_per_batch: int = option(
        4096, "CNTK, .pb: rows of the utterances that are computed at once."
    )
    threads: int = option(1, "Threads of each shard.")

    def __post_init__(self) -> None:
        for name in ("rows_per_batch", "threads"):
            if getattr(self, name) < 1:
                raise OpscopeError(f"{name} is {getattr(self, name)}; it must be at least 1")

    def chunks(self) -> ChunkOptions:
        """The options of chunks. Raises OpscopeError: a value is out of range."""
        from ...nnet3.inference.chunk_lengths import of_programs  # the command line needs none
        from ...nnet3.inference.pieces import ChunkOptions
        from ...nnet3.programs.base.program import from_values

        length = of_programs(self.frames_per_chunk)
        return from_values(ChunkOptions, vars(self), frames_per_chunk=length)

    def changed(self) -> dict[str, Any]:
        """The values that are not the defaults, by name."""
        return {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    def check_kind(self, what: str, nnet3: bool) -> None:
        """Refuse options that mean nothing to a kind of model.

        Raises:
            OpscopeError: one is given.
        """
        of_nets = {"input", "output", "rows_per_batch"}
        for name in self.changed():
            if name != "threads" and (name in of_nets) == nnet3:
                option = name.replace("_", "-")
                raise OpscopeError(f"--{option} has no meaning for {what}")
