"""Values of nodes in the log, whenever they are computed.

A config names them by `traceNodeNamesReal`, `traceNodeNamesCategory` and `traceNodeNamesSparse`;
Trace nodes show their input. Source: CNTK's `ComputationNode::Trace` and `SpecialPurposeNodes.cpp`
(TraceNode). Inside of loops CNTK shows a Trace node step by step; here all steps come at once, and
gradients not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..config.parameters import ConfigParameters
from ..network.describe import prototype
from ..network.nodes.node import Node
from .runtime import BoundNet, CntkNet
from .value_format import NodeWriter, WriteFormat, read_labels
from .values import NodeValue

TRACED = {
    "traceNodeNamesReal": "real",
    "traceNodeNamesCategory": "category",
    "traceNodeNamesSparse": "sparse",
}
"""Parameters that name nodes to trace, and how their values are shown."""
_MOST_ELEMENTS, _MOST_SAMPLES = 3, 8  # of nodes that a config names
_STRINGS = {  # attributes of a Trace node's format, and of `WriteFormat`
    "prologue": "prologue",
    "epilogue": "epilogue",
    "sequenceSeparator": "sequence_separator",
    "sequencePrologue": "sequence_prologue",
    "sequenceEpilogue": "sequence_epilogue",
    "elementSeparator": "element_separator",
    "sampleSeparator": "sample_separator",
    "precisionFormat": "precision",
}

Say = Callable[[str], None]


def names_of(section: ConfigParameters) -> dict[str, str]:
    """The nodes that a section wants traced: name -> "real", "category" or "sparse"."""
    return {
        name: kind
        for parameter, kind in TRACED.items()
        for name in section.array(parameter, "").strings()
        if name
    }


def trace(net: CntkNet, names: Mapping[str, str], say: Say) -> None:
    """Have values of a network's nodes logged from now on.

    Args:
        names: of nodes, with the kinds of `names_of`; Trace nodes are followed without being named.

    Raises:
        FormatError: a Trace node's file of labels cannot be read.
    """
    network = net.network
    named: dict[Node, str] = {}
    for name, kind in names.items():
        if name in network:
            named[network.find(name)] = kind
        else:
            say(f"EnableNodeTracing: No node named '{name}'; skipping\n")
    traces = [node for node in network.order if node.operation == "Trace"]
    if named or traces:
        looping = {node for loop in network.loops for node in loop.nodes}
        net.watcher = _Tracer(named, [_TraceNode(node, node in looping) for node in traces], say)


class _TraceNode:
    """A Trace node, and how often it was computed."""

    def __init__(self, node: Node, looping: bool) -> None:
        values = node.attributes
        self.node = node
        self.source = node.inputs[0]
        self.runs = 0
        self.gradient = bool(values["logGradientToo"]) and not looping
        self._form = _format_of(values["format"] or {})
        self._writer = NodeWriter(
            node.name,
            self.source.shape or (1,),
            self._form,
            most_elements=values["onlyUpToRow"],
            most_samples=values["onlyUpToT"],
        )

    @property
    def due(self) -> bool:
        """Whether this run is one to show."""
        first, every = (self.node.attributes[name] for name in ("logFirst", "logFrequency"))
        return self.runs <= first or (every > 0 and (self.runs - 1) % every == 0)

    def prologue(self) -> str:
        return self._writer.fragment(self._form.prologue, self.runs)

    def text(self, value: NodeValue, of: str = "") -> str:
        head = f"------- Trace[] {self.node.attributes['say']} {of}--> {prototype(self.source)}\n"
        return head + self._writer.text(value, self.runs)


class _Tracer:
    """See `opscope.cntk.run.runtime.Watcher`."""

    def __init__(self, named: Mapping[Node, str], traces: Sequence[_TraceNode], say: Say) -> None:
        self._named = named
        self._traces = traces
        self._say = say
        self._writers = {node: _writer(node, kind) for node, kind in named.items()}

    def nodes(self, below: Sequence[Node]) -> list[Node]:
        """See `Watcher.nodes`."""
        sources = [one.source for one in self._traces if one.node in below]
        return [node for node in below if node in self._named] + sources

    def extra_gradients(self, below: Sequence[Node]) -> list[Node]:
        """See `Watcher.extra_gradients`."""
        return [one.source for one in self._traces if one.gradient and one.node in below]

    def show(self, bound: BoundNet) -> None:
        """See `Watcher.show`."""
        for node, writer in self._writers.items():
            if node in bound.below:
                self._say(f"Trace --> {prototype(node)}\n{writer.text(bound.value(node), 0)}")
        for one in self._traces:
            if one.node not in bound.below:
                continue
            one.runs += 1
            if one.runs == 1:
                self._say(one.prologue())
            if not one.due:
                continue
            self._say(one.text(bound.value(one.source)))
            gradient = bound.gradient(one.source) if one.gradient else None
            if gradient is not None:
                self._say(one.text(gradient, "(gradient) "))


def _writer(node: Node, kind: str) -> NodeWriter:
    form = WriteFormat(
        kind=kind,
        transpose=False,
        sequence_prologue="  ",
        sample_separator="\n  ",
        precision="13.10",
    )
    shape = node.shape or (1,)
    if kind == "sparse":
        return NodeWriter(node.name, shape, form)
    return NodeWriter(
        node.name,
        shape,
        form,
        most_elements=_MOST_ELEMENTS,
        most_samples=_MOST_SAMPLES,
        letter="f",
    )


def _format_of(values: Mapping[str, object]) -> WriteFormat:
    """The format that a Trace node holds."""
    kind = str(values.get("type", "real"))
    for flag, name in (("isCategoryLabel", "category"), ("isSparse", "sparse")):
        kind = name if values.get(flag) else kind
    path = str(values.get("labelMappingFile", ""))
    given = {ours: str(values[name]) for name, ours in _STRINGS.items() if name in values}
    return WriteFormat(
        kind=kind,
        labels=read_labels(path) if path and kind != "real" else [],
        transpose=bool(values.get("transpose", True)),
        **given,
    )
