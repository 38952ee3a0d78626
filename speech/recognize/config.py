"""The configs of a model folder: `conf/model.conf`, with Kaldi's names, and the configs of
features."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.untrusted.values import whole_number
from ...kaldi.lattices.determinize import DeterminiseOptions
from ...nnet3 import LoopedOptions
from ...nnet3.programs.base.options import UNUSED
from ...nnet3.programs.base.program import Option, from_values, options_of
from ..features.computers import Fbank, MelFeatures, Mfcc
from ..features.options import config_lines, config_values
from ..features.pitch_processing import Pitch
from ..lattice.incremental import ChunkOptions
from ..search.options import DECODING_SCALE, SearchOptions
from .endpoint import ENDPOINT, SILENCE, EndpointOptions, rules_from

_log = logging.getLogger(__name__)
_Features = TypeVar("_Features", bound=Mfcc | Fbank)
_PRUNE_SCALE = 0.01  # of Kaldi's incremental decoder
_MOST_PHONE = 1 << 20
_OF_COMPILATION = ("optimization.", "computation.")
"""How names of options begin that compile a network."""

_WITHOUT_EFFECT = (Option("hash-ratio", 2.0, UNUSED), Option("debug-computation", False, UNUSED))
_FORBIDDEN = {"word_determinize": True, "minimize": False}
_OPTIONS = {
    each.name: each
    for each in (
        *options_of(SearchOptions),
        *options_of(LoopedOptions(acoustic_scale=DECODING_SCALE)),
        *options_of(DeterminiseOptions),
        *options_of(ChunkOptions),
        *ENDPOINT,
        *_WITHOUT_EFFECT,
    )
}

_OLD_LAYOUT = {
    "max_active": 7000,
    "beam": 13.0,
    "lattice_beam": 6.0,
    "acoustic_scale": 1.0,
    "frame_subsampling_factor": 3,
    SILENCE.attribute: "1:2:3:4:5:6:7:8:9:10",
}
"""What Vosk takes for folders without a model.conf; its rules of endpoints are Kaldi's."""


@dataclass(frozen=True)
class ModelConfig:
    """How a model decodes.

    Attributes:
        search: pruning. network: chunks of the network, and the scale of its output.
        lattice: determinization. chunks: of it. endpoint: when utterances are over.
    """

    search: SearchOptions
    network: LoopedOptions
    lattice: DeterminiseOptions
    chunks: ChunkOptions
    endpoint: EndpointOptions

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ModelConfig:
        """Read a `model.conf`; a warning lists options that mean nothing here.

        Raises:
            FormatError: it cannot be read, names an unknown option, or a value is none.
            OpscopeError: a value is out of range.
        """
        lines = config_lines(path)
        others = [line for line in lines if not line[0].startswith(_OF_COMPILATION)]
        values = config_values(others, _OPTIONS)
        unused = [
            name
            for name in dict.fromkeys(line[0] for line in lines)
            if name.startswith(_OF_COMPILATION) or _OPTIONS[name] in _WITHOUT_EFFECT
        ]
        if unused:
            _log.warning("%s: without effect here: --%s", os.fspath(path), ", --".join(unused))
        for name, wanted in _FORBIDDEN.items():
            if values.get(name, wanted) != wanted:
                said = f"--{name.replace('_', '-')} must be {str(wanted).lower()}"
                raise FormatError(f"{os.fspath(path)}: {said}")
        try:
            return cls._of(values)
        except OpscopeError as error:
            raise type(error)(f"{os.fspath(path)}: {error}") from None

    @classmethod
    def of_old_layout(cls) -> ModelConfig:
        """What Vosk takes for folders of its first layout, which have no model.conf."""
        return cls._of(_OLD_LAYOUT)

    @classmethod
    def _of(cls, changes: dict[str, Any]) -> ModelConfig:
        values: dict[str, Any] = {each.attribute: each.default for each in _OPTIONS.values()}
        values |= changes
        return cls(
            from_values(SearchOptions, values, prune_scale=_PRUNE_SCALE),
            from_values(LoopedOptions, values),
            from_values(DeterminiseOptions, values),
            from_values(ChunkOptions, values),
            EndpointOptions(_phones(values[SILENCE.attribute]), rules_from(values)),
        )


def _phones(text: str) -> tuple[int, ...]:
    """The numbers of a list like 1:2:3."""
    parts = [part for part in text.replace(",", ":").split(":") if part]
    return tuple(whole_number(part, f"--{SILENCE.name}", 1, _MOST_PHONE) for part in parts)


def features_of(kind: type[_Features], config: str, dither: float | None = None) -> _Features:
    """The features of a config, as recognizers compute them: see `Model` for dither.

    Raises:
        FormatError: the config is wrong.
    """
    is_set = dither is not None or any(name == "dither" for name, *_ in config_lines(config))
    changed = {} if dither is None else {"dither": dither}
    # Vosk allows it, whatever the file says.
    options = replace(kind(config=config).options, allow_downsample=True, **changed)
    return kind(options, dither_still=not is_set)


def pitch_beside(features: MelFeatures, config: str | None) -> Pitch:
    """Features of the pitch that stand beside others; config None: with Kaldi's defaults.

    Raises:
        FormatError: the config is wrong, or its frames differ from the features' frames.
    """
    pitch = Pitch(config=config)
    ours, theirs = pitch.tracking.frame_shift, features.options.frame_shift
    if ours != theirs:
        raise FormatError(
            f"{config or 'pitch'}: frames of the pitch every {ours:g} ms, of the other features"
            f" every {theirs:g} ms"
        )
    return pitch
