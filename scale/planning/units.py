"""Bandwidths and latencies as people write them."""

from __future__ import annotations

import re

from ...framework.base.errors import OpscopeError

_BITS = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)"


def bandwidth(text: str) -> float:
    """Bytes a second of `100G`, which is 100 Gbit/s; units are powers of 1000.

    Raises:
        OpscopeError: no number, another unit, or 0.
    """
    return _read(text, "link", _BITS, "bits a second, as in 100G for 100 Gbit/s") / 8


def seconds(text: str, what: str) -> float:
    """Seconds of `2us`, `0.5ms` or `1s`.

    Args:
        text: a number above 0 with a unit. what: it is, for messages.

    Raises:
        OpscopeError: no number, another unit, or 0.
    """
    return _read(text, what, _SECONDS, "time, as in 2us")


def _read(text: str, what: str, units: dict[str, float], kind: str) -> float:
    match = re.fullmatch(_NUMBER + "(" + "|".join(units) + ")", text)
    value = float(match[1]) * units[match[2]] if match else 0.0
    if value <= 0:
        raise OpscopeError(
            f"{what} {text!r}: want a number above 0 and a unit of {kind}; units:"
            f" {', '.join(units)}"
        )
    return value


def time_text(value: float) -> str:
    """Seconds in the unit that suits, `12.3 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return (
                f"{value / size:.3g} {unit}"
                if value < 999.5 * size
                else f"{value / size:.0f} {unit}"
            )
    return f"{value / 1e-9:.3g} ns" if value else "0"


def bytes_text(value: float) -> str:
    """A size in the unit that suits, powers of 1000, `12.3 MB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} B"
