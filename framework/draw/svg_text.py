"""Text in SVG: escaped, and how wide it is in a monospace font."""

from __future__ import annotations

import unicodedata
from html import escape


def escaped(text: str) -> str:
    """Text for XML: escaped, without the control characters that XML cannot hold."""
    return escape("".join(char if char.isprintable() else " " for char in text))


def columns_of(text: str) -> int:
    """Columns of a monospace font; wide characters take two."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide
