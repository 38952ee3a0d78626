"""Options of CTC models: as arguments, and as lines of a folder's `ctc.conf`."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields
from typing import Any

from ...framework.base.errors import OpscopeError, nearest
from ...framework.base.options.option_fields import option
from ...framework.base.untrusted.opener import path_text
from ...nnet3.programs.base.options import errors_tell
from ...nnet3.programs.base.program import from_values, options_of
from ..features.options import config_lines, config_values
from ..search.options import SearchOptions

_SEARCH = SearchOptions(max_active=7000, lattice_beam=6.0)
_BLANK = "blank"


@dataclass(frozen=True)
class CtcOptions:
    """What a network of CTC takes, and how its words are searched.

    Raises:
        OpscopeError: a value is out of range.
    """

    sample_rate: float = option(16000.0, "Sampling rate of what the network hears, in Hz")
    normalize: bool = option(False, "Give samples of recordings a mean of 0 and a variance of 1")
    snip_edges: bool = option(False, "Filter banks only of frames that are wholly in the signal")
    low_freq: float = option(20.0, "Low cutoff frequency of filter banks")
    high_freq: float = option(-400.0, "High cutoff frequency (if <= 0, offset from Nyquist)")
    window: float = option(30.0, "Seconds that the network hears at once; 0: whole recordings")
    grammar_scale: float = option(1.0, "Factor of the grammar's costs")
    word_cost: float = option(0.0, "Added to the cost of each word")
    summed: int = option(100, "Best texts whose alignments are all added up; 0: their best one")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not math.isfinite(value):
                raise OpscopeError(f"{each.name}={value}: a number is wanted")
        if self.sample_rate <= 0:
            raise OpscopeError(f"sample_rate={self.sample_rate:g}: a number above 0 is wanted")
        if self.window < 0 or 0 < self.window < 1:
            raise OpscopeError(f"window={self.window:g}: 0, or 1 second at least, is wanted")
        if self.summed < 0:
            raise OpscopeError(f"summed={self.summed}: 0 at least is wanted")
        if self.grammar_scale < 0:
            raise OpscopeError(f"grammar_scale={self.grammar_scale:g}: 0 at least is wanted")


_OPTIONS = {each.name: each for each in (*options_of(CtcOptions), *options_of(_SEARCH))}


@dataclass(frozen=True)
class Settings:
    """All that options say: of the model, of the search, the blank's text or number."""

    model: CtcOptions
    search: SearchOptions
    blank: str | int | None


def settings_of(path: str | os.PathLike[str] | None, changes: dict[str, Any]) -> Settings:
    """The options of a `ctc.conf`, and those that replace them.

    Args:
        path: of the file; None: there is none. changes: by the names of fields.

    Raises:
        FormatError: the file cannot be read, has an unknown option, or a value that is none.
        OpscopeError: a value is out of range, or no option has a name.
    """
    values: dict[str, Any] = {each.attribute: each.default for each in _OPTIONS.values()}
    lines = [] if path is None else config_lines(path)
    blanks = [text for name, text, _ in lines if name == _BLANK and text]
    blank = blanks[-1] if blanks else None
    if blank is not None and blank.isascii() and blank.isdigit():
        blank = int(blank)
    values |= config_values((line for line in lines if line[0] != _BLANK or not line[1]), _OPTIONS)
    if path is not None:
        with errors_tell(path_text(path)):
            _made(values)
    for name, value in changes.items():
        if name not in values:
            raise OpscopeError(f"there is no option {name!r}{nearest(name, values)}")
        values[name] = value
    return Settings(*_made(values), blank)


def _made(values: dict[str, Any]) -> tuple[CtcOptions, SearchOptions]:
    return from_values(CtcOptions, values), from_values(SearchOptions, values)
