"""The action plot (topo): a network as a graph in Graphviz's language.

Source: CNTK's `ActionsLib/OtherActions.cpp` (DoTopologyPlot), `ComputationNetwork.cpp`
(DescribeNetworkUsingDot).
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator

from ...framework.base.errors import RunError
from ...framework.base.options.settings import switch
from ..base.write import write_text
from ..config.parameters import ConfigParameters
from ..network.network import Network
from ..network.nodes.node import Node
from .common import Run, load, refuse_overwriting

_STYLES = (  # operations, and how their nodes look
    ("parameter", "shape = box, color = gray, style = rounded"),
    ("feature", "shape = ellipse, color = red, style = filled, fillcolor = white"),
    ("label", "shape = diamond, color = brown, style = filled, fillcolor = white"),
    ("criterion", "shape = doublecircle, color = green, style = filled, fillcolor = white"),
    ("statistic", 'shape = box, color = black, style = "dashed, filled", fillcolor = limegreen'),
    ("delay", "shape = box3d, color = lightgray, style = filled, fillcolor = white"),
)
_PLAIN = "shape = ellipse, color = blue, style = filled, fillcolor = white"


def plot(run: Run, section: ConfigParameters) -> None:
    """Write the graph of a model as `outputDotFile`, and have `renderCmd` draw it.

    In `renderCmd`, `<IN>` stands for the graph's file and `<OUT>` for `outputFile`. It runs
    only with `OPSCOPE_PIPES=files`: a config must not be able to start programs on its own.

    Raises:
        FormatError: there is no way to draw `outputFile`, or the command may not run. RunError: the
            command failed.
    """
    model, path, drawn, command = files_and_command(section)
    refuse_command(section)
    refuse_overwriting(section, [path], ("outputdotfile",))
    write_text(path, dot(load(section, model)))
    run.say(f"Created network description in dot format: {path}\n")
    if command:
        words = [
            word.replace("<IN>", path).replace("<OUT>", drawn) for word in shlex.split(command)
        ]
        run.say(f"Executing third-party tool for rendering dot:\n{' '.join(words)}\n")
        try:
            subprocess.run(words, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise RunError(f"plot: {' '.join(words)}: {error}") from None
    run.say("Done.\n")


def files_and_command(section: ConfigParameters) -> tuple[str, str, str, str]:
    """The model, the graph's file, the drawing ("" for none), and the command that draws.

    Raises:
        FormatError: there is no way to draw `outputFile`.
    """
    model = section.string("modelPath")
    path = section.string("outputDotFile", "") or f"{model}.dot"
    drawn, command = section.string("outputFile", ""), section.string("renderCmd", "")
    if drawn and not command:
        raise section["outputFile"].error(
            "plot: If you specify an outputFile, you also need a renderCmd."
        )
    return model, path, drawn, command


def refuse_command(section: ConfigParameters) -> None:
    """Refuse to run `renderCmd` where that is not allowed.

    Raises:
        FormatError: there is one, and `OPSCOPE_PIPES` is not `files`.
    """
    if section.string("renderCmd", "") and switch("OPSCOPE_PIPES") != "files":
        raise section["renderCmd"].error(
            f"plot: this config names a command, {section.string('renderCmd')!r}, and to run it is"
            " not allowed; set OPSCOPE_PIPES=files where you trust its origin, or leave out"
            " renderCmd and draw the graph's file yourself"
        )


def dot(network: Network) -> str:
    """A validated network as a graph: inputs at the bottom, criteria and outputs at the top."""
    groups = network.groups
    kinds: dict[str, list[Node]] = {name: [] for name, _ in _STYLES}
    for node in network.sorted_nodes():
        kind = _kind(network, node)
        if kind:
            kinds[kind].append(node)
    lines = ["strict digraph {", "rankdir = BT ;", "// special nodes"]
    lines += [
        f"node [ {style} ] {' '.join(map(_quoted, kinds[name]))} ;"
        for name, style in _STYLES
        if kinds[name]
    ]
    lines += [f"node [ {_PLAIN} ]", "", "// add labels and operation name"]
    for node in network.sorted_nodes():
        dims = " x ".join(map(str, node.shape or ()))
        axis = " x *" if node.axis is not None else ""
        label = _escaped(f"{node.name} [{dims}{axis}]") + "\\n" + node.operation
        lines.append(f'{_quoted(node)} [ label = "{label}" ] ;')
    sinks = dict.fromkeys([*groups["criterion"], *groups["output"], *groups["evaluation"]])
    for rank, nodes in (("source", groups["feature"]), ("sink", sinks)):
        lines += ["subgraph {", f"\trank={rank} ; {' '.join(map(_quoted, nodes))}", "}"]
    lines += _arcs(network)
    return "\n".join([*lines, "}", ""])


def _kind(network: Network, node: Node) -> str:
    if node.is_parameter:
        return "parameter"
    if node.kind.precompute:
        return "statistic"
    if node.kind.delay:
        return "delay"
    return next(
        (name for name in ("feature", "label", "criterion") if node in network.groups[name]), ""
    )


def _arcs(network: Network) -> Iterator[str]:
    """Arrows from inputs to nodes. The output of a delay starts at a node of its own, so that
    loops are open."""
    for node in network.sorted_nodes():
        for child in node.inputs:
            if child is None:
                continue
            if not child.kind.delay:
                yield f"{_quoted(child)} -> {_quoted(node)} ;"
                continue
            name = _escaped(f"{child.name}.dummy")
            label = _escaped(child.name) + f"\\n({child.operation})"
            yield f'"{name}" [ {dict(_STYLES)["delay"]}, label = "{label}" ] ;'
            yield f'"{name}" -> {_quoted(node)} ;'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _quoted(node: Node) -> str:
    return f'"{_escaped(node.name)}"'
