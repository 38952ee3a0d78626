"""Numbers of bytes as people write them."""

from __future__ import annotations

import re
from typing import Any

from ..errors import OpscopeError

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}
_UNITS |= {letter: 1024**power for power, letter in enumerate("kmgt", 1)}
"""Of 1000 as in MB, of 1024 as in MiB; M alone is MiB."""
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?) ?([a-z]{0,3})", re.IGNORECASE)
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,18})?) ?%")
_FORMS = "a number of bytes, or a text such as 8GB (of 1000), 512MiB (of 1024) or 80%"


def read_bytes(text: str) -> int | None:
    """The bytes of `8GB`, `512MiB`, `16G` or `4096`; None where it is none of these.

    GB and its like are powers of 1000, GiB powers of 1024, and a letter alone is the latter.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match[2].lower())
    if match is None or unit is None:
        return None
    return int(match[1]) * unit if "." not in match[1] else int(float(match[1]) * unit)


def byte_size(given: Any, what: str, whole: int | None = None) -> int:
    """The bytes that an option wants.

    Args:
        given: a number, a text as `read_bytes` takes it, or a share such as `80%`.
        what: the option, for messages.
        whole: what shares are of; None where it is not known.

    Raises:
        OpscopeError: it is none of these, or less than a byte; or a share of what is not known.
    """
    size: int | None = None
    if isinstance(given, str):
        share = _SHARE.fullmatch(given.strip())
        if share is not None and whole is None:
            raise OpscopeError(
                f"{what}={given!r}: the memory of the device is not known; give a size, such as 8GB"
            )
        if share is None:
            size = read_bytes(given)
        elif float(share[1]) <= 100:
            assert whole is not None
            size = int(whole * float(share[1]) / 100)
    elif isinstance(given, int) and not isinstance(given, bool):
        size = given
    if size is None or size < 1:
        raise OpscopeError(f"{what}={given!r}: want {_FORMS}")
    return size


def size_text(count: float) -> str:
    """A number of bytes in the unit that fits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
