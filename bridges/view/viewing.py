"""`view`: the page of a net, saved to a file or shown in a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from ...framework.base.errors import VariableError, nearest
from ...framework.base.files.atomic import PathLike, write_atomically
from ...framework.base.python.gc_disabled import gc_disabled
from ...framework.base.scope import Scope
from ...framework.base.sizes.byte_sizes import size_text
from ...framework.ir.printer import type_text
from ..model.model import Model
from ..model.opening import open_model
from .cntk_nets import cntk_graph
from .data import page_data
from .graph import Facts, Item, NetGraph
from .html import document
from .nnet3_nets import nnet3_graph
from .op_nets import op_net_graph
from .texts import count_text, cut

_GRAPHS = {"nnet3": nnet3_graph, "cntk": cntk_graph}
ROWS = 32
"""Rows of a batch, or frames, that a profile runs where no number is given."""

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
        return f"<Page, {size_text(len(self.html.encode()))}; save(path) writes it>"


def graph_of(model: Model) -> NetGraph:
    """What a page shows of a network."""
    graph = _GRAPHS.get(model.dialect, op_net_graph)(model.desc, model.title)
    graph.facts = [*_facts(model), *graph.facts]
    inferred, missing = model.inferred()
    for var in inferred:
        if var.name in graph.values:
            graph.values[var.name].type = type_text(var)
    if missing:
        graph.facts.append(("shapes", f"not all are known: {cut(missing)}"))
    return graph


def _facts(model: Model) -> Facts:
    """About the whole network."""
    bare = ", without parameters" if model.is_bare else ""
    facts = [("file", f"{model.title}{bare}")] if model.path else []
    return facts + [
        (name, count_text(value) if isinstance(value, int) else value)
        for name, value in model.facts
    ]


def _put_numbers(graph: NetGraph, numbers: Mapping[str, float], title: str) -> None:
    """Put numbers into the items that compute the values of these names."""
    writers: dict[str, Item] = {}
    for item in (*graph.groups.values(), *graph.items.values()):
        writers.setdefault(item.name, item)
        for _, keys in item.writes:
            writers.update((graph.values[key].name, item) for key in keys)
    for name, number in numbers.items():
        if not name or name not in writers:
            raise VariableError(f"nothing computes {name!r}{nearest(name, writers)}")
        item = writers[name]
        item.number_shown = float(number)
        item.lines = [*item.lines, f"{number:.3g}"]
    graph.numbers = title


@gc_disabled()
def view(
    net: Any,
    *,
    scope: Scope | None = None,
    against: Any = None,
    profile: bool = False,
    rows: int = ROWS,
    network: str = "",
    numbers: Mapping[str, float] | None = None,
    numbers_are: str = "numbers",
) -> Page:
    """A page to look at a net: its graph with groups to open, and all that is known of each part.

    Args:
        net: the path of a file (`.pb`, `.checkpoint`, a model or config of Kaldi's nnet3, a model,
            config, NDL or BrainScript file of CNTK's, an ONNX model); or a builder, a net, what
            `opscope.load` gave, a network of Kaldi's or of CNTK's.
        scope: holds the values of a net that is given without them.
        against: a net or file that the net is compared with; what was added, removed and changed
            since has a color, and removed parts are also shown.
        profile: run the net forward on random inputs, and show time and memory of operators.
        rows: of the batch of a profile, or its frames.
        numbers: a number for some variables or nodes, by name, to color what computes them: for
            example how far values differ from another run.
        numbers_are: what the numbers are, for the page.
        network: the command of a config of CNTK's whose network is meant, where it has several.

    Raises:
        FormatError: a file is missing, damaged, or holds no single net.
        VariableError: `net` is no net; it cannot run, where a profile is wanted; nothing in it
            computes a variable that has a number.
    """
    model = open_model(net, scope, network=network, use="to look at")
    if profile:
        model = model.in_operators(rows)
    graph = graph_of(model)
    arrays = dict(model.arrays)
    if profile:
        from .profile import profile as measure

        measure(graph, model, rows)
    if numbers is not None:
        _put_numbers(graph, numbers, numbers_are)
    if against is not None:
        from .difference import mark_difference

        other = open_model(against, use="to look at")
        if other.dialect != model.dialect:
            raise VariableError(
                f"{model.title} and {other.title} are not of one kind"
                f" ({model.dialect or 'operators'}, {other.dialect or 'operators'}): nothing in"
                " them can be the same"
            )
        mark_difference(graph, arrays, graph_of(other), other.arrays)
        arrays = {**other.arrays, **arrays}
    return Page(document(page_data(graph, arrays)))
