"""What a scoring is asked for."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...framework.base.errors import OpscopeError

if TYPE_CHECKING:
    from ...nnet3.inference.pieces import ChunkOptions

_OF_CHUNKS = {"chunks_per_batch": "minibatch_size"}
"""Fields of `ChunkOptions` that Kaldi's programs call otherwise."""


@dataclass(frozen=True)
class ScoreOptions:
    """How utterances are computed. All of it is part of what a result is.

    Attributes:
        frames_per_chunk, extra_left_context, extra_right_context, extra_left_context_initial,
            extra_right_context_final, frame_subsampling_factor, acoustic_scale, minibatch_size: of
            nnet3 models, as `nnet3-compute` takes them; see `ChunkOptions`.
        ivectors, utt2spk, online_ivectors, online_ivector_period: of nnet3 models: tables.
        use_priors, apply_exp: of nnet3 models: what is done with the output.
        input, output: of CNTK models and saved nets: what is fed and what is written; empty: the
            only one there is.
        rows_per_batch: of CNTK models and saved nets: utterances are computed together until they
            have so many rows.
        threads: of each shard. The sums of some matrix products depend on it.
    """

    frames_per_chunk: int = 50
    extra_left_context: int = 0
    extra_right_context: int = 0
    extra_left_context_initial: int = -1
    extra_right_context_final: int = -1
    frame_subsampling_factor: int = 1
    acoustic_scale: float = 1.0
    minibatch_size: int = 16
    ivectors: str = ""
    utt2spk: str = ""
    online_ivectors: str = ""
    online_ivector_period: int = 0
    use_priors: bool = False
    apply_exp: bool = False
    input: str = ""
    output: str = ""
    rows_per_batch: int = 4096
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("rows_per_batch", "threads"):
            if getattr(self, name) < 1:
                raise OpscopeError(f"{name} is {getattr(self, name)}; it must be at least 1")

    def chunks(self) -> ChunkOptions:
        """The options of chunks. Raises OpscopeError: a value is out of range."""
        from ...nnet3.inference.chunk_lengths import of_programs  # the command line needs none
        from ...nnet3.inference.pieces import ChunkOptions

        names = [field.name for field in dataclasses.fields(ChunkOptions)]
        given = {name: getattr(self, _OF_CHUNKS.get(name, name)) for name in names}
        given["frames_per_chunk"] = of_programs(self.frames_per_chunk)
        return ChunkOptions(**given)

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
