"""When an utterance is over: Kaldi's rules on the silence at its end.

Source: Kaldi's `online2/online-endpoint.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.options.option_fields import option
from ...nnet3.programs.base.program import Option, from_values, options_of
from ..search.decoder import Decoder


@dataclass(frozen=True)
class EndpointRule:
    """A rule, which holds where all of its parts hold; times are in seconds.

    Raises:
        OpscopeError: a value is NaN.
    """

    must_contain_nonsilence: bool = option(
        True, "The rule holds only where the best path has more than silence"
    )
    min_trailing_silence: float = option(1.0, "Seconds of silence that the best path must end with")
    max_relative_cost: float = option(
        math.inf, "Most that final states may cost above the best one"
    )
    min_utterance_length: float = option(0.0, "Seconds that the utterance must last")

    def __post_init__(self) -> None:
        for each in fields(self)[1:]:
            if math.isnan(getattr(self, each.name)):
                raise OpscopeError(f"{each.name.replace('_', '-')} of an endpoint rule is NaN")

    def holds(self, silence: np.float32, relative_cost: float, length: np.float32) -> bool:
        """Whether the utterance is over by this rule."""
        return bool(
            (length > silence or not self.must_contain_nonsilence)
            and silence >= np.float32(self.min_trailing_silence)
            and relative_cost <= np.float32(self.max_relative_cost)
            and length >= np.float32(self.min_utterance_length)
        )


_PIECE = 32  # frames of a path whose phones are looked up at a time

DEFAULT_RULES = (
    EndpointRule(must_contain_nonsilence=False, min_trailing_silence=5.0),
    EndpointRule(min_trailing_silence=0.5, max_relative_cost=2.0),
    EndpointRule(min_trailing_silence=1.0, max_relative_cost=8.0),
    EndpointRule(min_trailing_silence=2.0),
    EndpointRule(False, min_trailing_silence=0.0, min_utterance_length=20.0),
)


_BY_PREFIX = {f"endpoint.rule{number}.": rule for number, rule in enumerate(DEFAULT_RULES, 1)}
SILENCE = Option(
    "endpoint.silence-phones", "", "Phones that are silence to the rules, with ':' between"
)
ENDPOINT = (
    SILENCE,
    *(each for prefix, rule in _BY_PREFIX.items() for each in options_of(rule, prefix)),
)
"""The options of all rules, whose defaults are `DEFAULT_RULES`."""


def rules_from(values: Mapping[str, Any]) -> tuple[EndpointRule, ...]:
    """The rules that values of these options make. Raises OpscopeError: one is out of range."""
    return tuple(from_values(EndpointRule, values, prefix) for prefix in _BY_PREFIX)


@dataclass(frozen=True)
class EndpointOptions:
    """What ends an utterance: any of the rules.

    Attributes:
        silence_phones: phones that count as silence, each once.
        rules: Kaldi's rule1 to rule5.
    """

    silence_phones: tuple[int, ...] = ()
    rules: tuple[EndpointRule, ...] = field(default=DEFAULT_RULES)

    def __post_init__(self) -> None:
        if len(set(self.silence_phones)) < len(self.silence_phones):
            raise OpscopeError(f"endpoint.silence-phones has a phone twice: {self.silence_phones}")


def trailing_silence(decoder: Decoder, phones: np.ndarray, silence: Iterable[int]) -> int:
    """Frames of silence at the end of the best path so far.

    Args:
        phones: of each transition-id. silence: phones that are silence.
    """
    silent = frozenset(silence)
    ids = decoder.traced().ids
    count = 0
    for end in range(len(ids), 0, -_PIECE):  # most often, the last piece tells
        for phone in phones[ids[max(end - _PIECE, 0) : end]][::-1].tolist():
            if phone not in silent:
                return count
            count += 1
    return count


@dataclass(frozen=True)
class Endpoint:
    """Why an utterance is over: the number of the rule, and what it went by; times in seconds."""

    rule: int
    silence: float
    relative_cost: float
    length: float

    def __str__(self) -> str:
        speech = str(self.length > self.silence).lower()
        return (
            f"Endpointing rule rule{self.rule} activated: {speech},{self.silence:g},"
            f"{self.relative_cost:g},{self.length:g}"
        )


def endpoint(
    decoder: Decoder, phones: np.ndarray, options: EndpointOptions, frame_shift: float
) -> Endpoint | None:
    """The first rule by which the utterance is over; None: it continues.

    Args:
        phones: of each transition-id. frame_shift: seconds from one frame of the decoder to the
            next.
    """
    frames = decoder.frames_decoded
    if not frames:
        return None
    shift = np.float32(frame_shift)
    length = np.float32(frames) * shift
    silence = np.float32(trailing_silence(decoder, phones, options.silence_phones)) * shift
    for number, rule in enumerate(options.rules, 1):
        if not rule.holds(silence, -math.inf, length):  # whatever it costs to end
            continue
        relative_cost = decoder.final_relative_cost()
        if rule.holds(silence, relative_cost, length):
            return Endpoint(number, float(silence), relative_cost, float(length))
    return None


def endpoint_detected(
    decoder: Decoder, phones: np.ndarray, options: EndpointOptions, frame_shift: float
) -> bool:
    """Whether the utterance is over; arguments as for `endpoint`."""
    return endpoint(decoder, phones, options, frame_shift) is not None
