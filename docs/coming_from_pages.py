"""Fills the pages of names from PyTorch, Keras, Paddle, CNTK, Kaldi and Vosk."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from cntk_pages import table

from opscope.python_api.coming_from.cntk import sections
from opscope.python_api.coming_from.rows import PEERS, rows

_LIBRARY2 = """Models of this library are read as older models are. What its functions build in
Python, a [NetBuilder](reference/builder.md), `b` below, or a `cntk.Network` builds here."""


def cntk() -> Iterator[str]:
    """CNTK's names, a table for each kind."""
    for title, found in sections():
        yield f"## {title}"
        if "CNTK 2.0" in title:
            yield _LIBRARY2
        yield table(("CNTK's name", "here", "documented in"), found)


def names(peer: str) -> Iterator[str]:
    """The names of a system as one table."""
    cells = (
        (f"`{row.theirs}`", ", ".join(f"`{name}`" for name in row.ours.split(", ")), row.note)
        for row in rows(peer)
    )
    yield table((PEERS[peer], "opscope", "what differs"), cells)


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    f"coming_from_{peer}.md": functools.partial(names, peer) for peer in PEERS if peer != "cntk"
}
