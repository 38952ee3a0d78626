"""`view`: the page of a net, saved to a file or shown in a notebook."""

from __future__ import annotations

import html
from typing import Any

from ...framework.base.atomic import PathLike, write_atomically
from ...framework.base.scope import Scope
from .cntk_nets import cntk_graph
from .data import page_data
from .graph import NetGraph
from .html import document
from .nnet3_nets import nnet3_graph
from .op_nets import op_net_graph
from .opening import Opened, open_net

_GRAPHS = {"nnet3": nnet3_graph, "cntk": cntk_graph}
_HEIGHT = 620  # pixels of a page in a notebook


class Page:
    """A page to look at a net: one HTML document that needs nothing else and loads nothing.

    Attributes:
        html: the document.
    """

    def __init__(self, text: str) -> None:
        self.html = text

    def save(self, path: PathLike) -> None:
        """Write the document to a file, which any browser opens.

        Raises:
            SaveError: the file cannot be written.
        """
        write_atomically(path, self.html.encode())

    def _repr_html_(self) -> str:
        """The page in a frame of its own, for notebooks."""
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts"'
            f' style="width:100%;height:{_HEIGHT}px;border:1px solid #8888" title="net"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<Page, {len(self.html.encode()) / 1024:.0f} KiB; save(path) writes it>"


def graph_of(opened: Opened) -> NetGraph:
    """What a page shows of a net."""
    graph = _GRAPHS.get(opened.dialect, op_net_graph)(opened.net, opened.title)
    graph.facts = [*opened.facts, *graph.facts]
    return graph


def view(net: Any, *, scope: Scope | None = None) -> Page:
    """A page to look at a net: its graph with groups to open, and all that is known of each part.

    Args:
        net: the path of a file (`.pb`, `.checkpoint`, a model or config of Kaldi's nnet3, a model,
            config, NDL or BrainScript file of CNTK's); or a builder, a net, what `opscope.load`
            gave, a network of Kaldi's or of CNTK's.
        scope: holds the values of a net that is given without them.

    Raises:
        FormatError: the file is missing, damaged, or holds no single net.
        VariableError: `net` is no net.
    """
    opened = open_net(net, scope)
    return Page(document(page_data(graph_of(opened), opened.arrays)))
