"""The configs of a model folder: `conf/model.conf`, with Kaldi's names, and those of features."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from ...framework.base.errors import FormatError, OpscopeError, nearest
from ...framework.base.untrusted.values import whole_number
from ...nnet3 import LoopedOptions
from ...nnet3.programs.base.program import Option
from ..features.computers import Fbank, Mfcc
from ..features.options import config_lines
from ..lattice.determinise import DeterminiseOptions
from ..lattice.incremental import ChunkOptions
from ..search.options import MOST_ACTIVE, SearchOptions
from .endpoint import DEFAULT_RULES, EndpointOptions, EndpointRule

_log = logging.getLogger(__name__)
_Features = TypeVar("_Features", bound=Mfcc | Fbank)
_PRUNE_SCALE = 0.01  # of Kaldi's incremental decoder
_MOST_PHONE = 1 << 20

_SEARCH = {
    "beam": 16.0,
    "max-active": MOST_ACTIVE,
    "min-active": 200,
    "lattice-beam": 10.0,
    "prune-interval": 25,
    "beam-delta": 0.5,
}
_NETWORK = {
    "acoustic-scale": 0.1,
    "frames-per-chunk": 24,
    "frame-subsampling-factor": 1,
    "extra-left-context-initial": 0,
}
_LATTICE = {"delta": 1 / 1024, "max-mem": 50_000_000, "phone-determinize": True}
_CHUNKS = {each.name.replace("_", "-"): each.default for each in fields(ChunkOptions)}
_WITHOUT_EFFECT = {"hash-ratio": 2.0, "debug-computation": False}
_FORBIDDEN = {"word-determinize": True, "minimize": False}
_PHONES = "endpoint.silence-phones"

_RULES: dict[str, Any] = {
    f"endpoint.rule{number}.{each.name.replace('_', '-')}": getattr(rule, each.name)
    for number, rule in enumerate(DEFAULT_RULES, 1)
    for each in fields(EndpointRule)
}
_DEFAULTS: dict[str, Any] = {
    **_SEARCH,
    **_NETWORK,
    **_LATTICE,
    **_CHUNKS,
    **_WITHOUT_EFFECT,
    **_FORBIDDEN,
    **_RULES,
    _PHONES: "",
}

_OLD_LAYOUT = {
    "max-active": 7000,
    "beam": 13.0,
    "lattice-beam": 6.0,
    "acoustic-scale": 1.0,
    "frame-subsampling-factor": 3,
    _PHONES: "1:2:3:4:5:6:7:8:9:10",
}
"""What Vosk takes for folders without a model.conf; its rules of endpoints are Kaldi's."""


@dataclass(frozen=True)
class ModelConfig:
    """How a model decodes.

    Attributes:
        search: pruning. network: chunks of the network, and the scale of its output.
        lattice: determinisation. chunks: of it. endpoint: when utterances are over.
    """

    search: SearchOptions
    network: LoopedOptions
    lattice: DeterminiseOptions
    chunks: ChunkOptions
    endpoint: EndpointOptions

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ModelConfig:
        """Read a `model.conf`; options that mean nothing here are told in a warning.

        Raises:
            FormatError: it cannot be read, names an unknown option, or a value is none.
            OpscopeError: a value is out of range.
        """
        known = {name: Option(name, default, "") for name, default in _DEFAULTS.items()}
        values: dict[str, Any] = {}
        for name, value, place in config_lines(path):
            if name.startswith(("optimization.", "computation.")):
                values[name] = value
                continue
            if name not in known:
                raise FormatError(f"{place}: invalid option --{name}{nearest(name, known)}")
            try:
                values[name] = known[name].parse(value)
            except FormatError as error:
                raise FormatError(f"{place}: {error}") from None
        unused = [name for name in values if name in _WITHOUT_EFFECT or name not in known]
        if unused:
            _log.warning("%s: without effect here: --%s", os.fspath(path), ", --".join(unused))
        for name, wanted in _FORBIDDEN.items():
            if values.get(name, wanted) != wanted:
                raise FormatError(f"{os.fspath(path)}: --{name} must be {str(wanted).lower()}")
        try:
            return cls._of(values)
        except OpscopeError as error:
            raise type(error)(f"{os.fspath(path)}: {error}") from None

    @classmethod
    def of_old_layout(cls) -> ModelConfig:
        """What Vosk takes for folders of its first layout, which have no model.conf."""
        return cls._of(_OLD_LAYOUT)

    @classmethod
    def _of(cls, given: dict[str, Any]) -> ModelConfig:
        values = {**_DEFAULTS, **given}

        def named(names: Sequence[str] | dict[str, Any]) -> dict[str, Any]:
            return {name.replace("-", "_"): values[name] for name in names}

        rules = []
        for number in range(1, len(DEFAULT_RULES) + 1):
            parts = {
                each.name: values[f"endpoint.rule{number}.{each.name.replace('_', '-')}"]
                for each in fields(EndpointRule)
            }
            rules.append(EndpointRule(**parts))
        return cls(
            SearchOptions(**named(_SEARCH), prune_scale=_PRUNE_SCALE),
            LoopedOptions(**named(_NETWORK)),
            DeterminiseOptions(**named(_LATTICE)),
            ChunkOptions(**named(_CHUNKS)),
            EndpointOptions(_phones(values[_PHONES]), tuple(rules)),
        )


def _phones(text: str) -> tuple[int, ...]:
    """The numbers of a list like 1:2:3."""
    parts = [part for part in text.replace(",", ":").split(":") if part]
    return tuple(whole_number(part, f"--{_PHONES}", 1, _MOST_PHONE) for part in parts)


def features_of(kind: type[_Features], config: str, dither: float | None = None) -> _Features:
    """The features of a config, as recognisers compute them: see `Model` for dither.

    Raises:
        FormatError: the config is wrong.
    """
    told = dither is not None or any(name == "dither" for name, *_ in config_lines(config))
    changed = {} if dither is None else {"dither": dither}
    # Vosk allows it, whatever the file says.
    options = replace(kind(config=config).options, allow_downsample=True, **changed)
    return kind(options, dither_still=not told)
