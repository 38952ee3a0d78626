"""Data types of nnet3: indexes, descriptors, nodes, networks, computations."""

# ruff: noqa: E501  a row of the table is a line
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.claims.claim import Claim, Document, fails, near
from conformance.claims.nnet3_nets import (
    CONFIG,
    NODES,
    RECURRENT,
    compiled,
    descriptor,
    leaf,
    mapped,
    net,
    output,
    trained,
    types,
)
from opscope import nnet3
from opscope.nnet3.compiler.command import Command
from opscope.nnet3.compiler.computation import Computation, MatrixInfo, SubMatrix
from opscope.nnet3.components import Component
from opscope.nnet3.components.base.component import Properties
from opscope.nnet3.index.indexes import format_indexes
from opscope.nnet3.language.nodes import COMPONENT, DESCRIPTOR, DIM_RANGE, INPUT, NetworkNode

C = Claim
COMPUTATION = "src/nnet3/nnet-computation.h"
FRAMES = {(0, t, 0): float(t + 1) for t in range(5)}


def indexes(*rows: tuple[int, int, int]) -> str:
    return format_indexes(np.array(rows))


def is_(text: str, wanted: str) -> Callable[[], bool]:
    """A check that a descriptor is normalized to a text."""
    return lambda: str(descriptor(text)) == wanted


def part(text: str, name: str) -> Callable[[], bool]:
    """A check of the class of a descriptor's first part."""
    return lambda: type(descriptor(text).parts[0]).__name__ == name


def bad(text: str, message: str) -> Callable[[], bool]:
    """A check that a descriptor is refused."""
    return lambda: fails(lambda: descriptor(text), message)


def gives(text: str, wanted: dict[int, Any]) -> Callable[[], bool]:
    """A check of the values of a descriptor of `in`, which holds t + 1 at t = 0 to 4."""
    at = [(0, t, 0) for t in wanted]
    return lambda: (
        output(text, FRAMES, at) == [v if v is None else [*np.ravel(v)] for v in wanted.values()]
    )


def combined(text: str, *present: bool) -> tuple[Any, list[Any]]:
    """Whether a descriptor is computable with these leaves there, and which of them it uses."""
    used: list[Any] = []
    return descriptor(text).combine(iter(present), used), used


def run(line: str = "n=0:1 input=-1:2 output=0") -> tuple[Any, Any]:
    """The document's network run on drawn input: the computer and the input."""
    computer = compiled(line).computer()
    rows = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
    computer.accept_input("input", rows)
    computer.run()
    return computer, rows


def by_hand() -> Any:
    """The same by NumPy."""
    _, rows = run()
    spliced = rows.reshape(2, 48)
    parts = net().components
    hidden = np.maximum(
        spliced @ parts["affine1"].linear_params.T + parts["affine1"].bias_params, 0
    )
    out = hidden @ parts["affine2"].linear_params.T + parts["affine2"].bias_params
    return out - np.log(np.exp(out).sum(1, keepdims=True))


def node(name: str, text: str = CONFIG) -> NetworkNode:
    return net(text).node(name)


def names(text: str = CONFIG) -> list[str]:
    return [each.name for each in net(text).nodes]


def request(**flags: Any) -> nnet3.ComputationRequest:
    inputs = nnet3.IoSpecification("input", np.array([(0, t, 0) for t in (-1, 0, 1, 2)]))
    return nnet3.ComputationRequest(
        [inputs], [nnet3.IoSpecification("output", np.array([(0, 0, 0)]))], **flags
    )


def two_outputs() -> Any:
    text = CONFIG + "output-node name=second input=nonlin1\n"
    return compiled("n=0:1 input=-1:2 output=0 second=0", text).computer()


def shared() -> int:
    """How many nodes have one component, which the graph names."""
    text = """component name=p type=LinearComponent input-dim=2 output-dim=2
        input-node name=input dim=2
        component-node name=one component=p input=input
        component-node name=two component=p input=one
        output-node name=output input=two"""
    found = nnet3.Nnet.from_config_text(text, rng=0)
    return [each.component for each in found.nodes].count("p") + len(found.components)


def flags(kind: str) -> Properties:
    text = {
        "affine": "type=NaturalGradientAffineComponent input-dim=4 output-dim=2",
        "sigmoid": "type=SigmoidComponent dim=4",
        "relu": "type=RectifiedLinearComponent dim=4",
        "statistics": "type=StatisticsExtractionComponent input-dim=4 input-period=1 output-period=1",
    }[kind]
    nodes = "input-node name=i dim=4\ncomponent-node name=n component=c input=i\noutput-node name=o input=n"
    found = nnet3.Nnet.from_config_text(f"component name=c {text}\n{nodes}", rng=0)
    return found.components["c"].properties


def updatable_dims() -> tuple[int, int]:
    part_ = net().components["affine1"]
    return part_.input_dim, part_.output_dim


def edge() -> bool:
    """Whether a recurrence begins where the input does, and reads zero before."""
    first = compiled("n=0 input=0:3 output=0:3", RECURRENT).cindexes
    return first.dependencies("affine_input", 0) == [("input", 0, 0, 0)]


CLAIMS = [
    # -- overview
    C(2, "Frames are spliced within the framework, not by components", gives("Append(Offset(in, -1), in)", {1: [1.0, 2.0]})),
    C(3, "Networks are driven by config files", lambda: len(net().nodes) == 10),
    C(4, "A network is a general graph, class Nnet", lambda: type(net()).__name__ == "Nnet"),
    C(4, "It has components and nodes", lambda: len(net().components) == 4 and len(net().nodes) == 10),
    C(5, "The graph refers to components by name", lambda: node("affine1_node").component == "affine1"),
    C(5, "so that nodes can share a component", lambda: shared() == 3),
    C(5, "Something at time t may depend on t-1", lambda: compiled("n=0 input=0:3 output=0:3", RECURRENT).cindexes.dependencies("affine_input", 2) == [("input", 0, 2, 0), ("relu", 0, 1, 0)]),
    C(5, "The beginning of a file needs no special case", edge),
    C(7, "The example: component affine1 of 48 to 65", lambda: updatable_dims() == (48, 65)),
    C(7, "component relu1 of 65", lambda: net().components["relu1"].input_dim == 65),
    C(7, "component affine2 of 65 to 115", lambda: (net().components["affine2"].input_dim, net().components["affine2"].output_dim) == (65, 115)),
    C(7, "component logsoftmax of 115", lambda: net().components["logsoftmax"].output_dim == 115),
    C(7, "type=NaturalGradientAffineComponent", lambda: net().components["affine1"].type == "NaturalGradientAffineComponent"),
    C(7, "type=RectifiedLinearComponent", lambda: net().components["relu1"].type == "RectifiedLinearComponent"),
    C(7, "type=LogSoftmaxComponent", lambda: net().components["logsoftmax"].type == "LogSoftmaxComponent"),
    C(7, "input-node name=input dim=12", lambda: (node("input").kind, node("input").dim) == (INPUT, 12)),
    C(7, "component-node with a descriptor as its input", lambda: str(node("affine1_node_input").descriptor) == "Append(Offset(input, -1), input, Offset(input, 1), Offset(input, 2))"),
    C(7, "output-node name=output input=output_nonlin", lambda: str(node("output").descriptor) == "output_nonlin"),
    C(7, "# begins a comment", lambda: len(nnet3.Nnet.from_config_text("# nothing\ninput-node name=i dim=1 # here\noutput-node name=output input=i").nodes) == 2),
    C(7, "The network computes what the config says", lambda: near(run()[0].get_output("output"), by_hand(), 1e-4)),
    C(8, "Graph, components, inputs and outputs make a computation graph", lambda: len(compiled("n=0:1 input=-1:2 output=0").cindexes) == 26),
    C(8, "It has no circles: rows that wait for each other cannot be computed", lambda: fails(lambda: compiled("n=0 input=0 output=0", CIRCLE).plain, "1 of 1 output rows are not computable")),
    C(8, "A row is named by node, n, t and x", lambda: compiled("n=0:1 input=-1:2 output=0").cindexes.dependencies("nonlin1_input", 0, 1) == [("affine1_node", 1, 0, 0)]),
    C(8, "x is mostly zero", lambda: next(iter(compiled("n=0 input=-1:2 output=0").cindexes)).x == 0),
    C(9, "An Index is a tuple (n, t, x)", lambda: nnet3.IoSpecification("i", np.array([(1, 2, 3)])).indexes.tolist() == [[1, 2, 3]]),
    C(9, "A Cindex is a node with an Index", lambda: str(next(iter(compiled("n=0 input=-1:2 output=0").cindexes))) == "input(0,-1)"),
    C(9, "An index of two numbers is refused", lambda: fails(lambda: nnet3.IoSpecification("i", np.array([(1, 2)])), "row of whole numbers")),
    C(10, "A request is compiled, then run", lambda: run()[0].get_output("output").shape == (2, 115)),
    # -- indexes
    C(11, "Rows of a matrix are indexes, one to one", lambda: compiled("n=0:1 input=-1:2 output=0").steps[0].indexes.shape == (8, 3)),
    C(11, "The dimension is the number of columns", lambda: compiled("n=0:1 input=-1:2 output=0").plain.matrices[3].cols == 65),
    C(12, "Simplest training: n varies, t is 0", lambda: compiled("n=0:2 input=-1:2 output=0").request.outputs[0].indexes.tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 0]]),
    C(13, "[ (0, 0, 0) (1, 0, 0) (2, 0, 0) ]", lambda: indexes((0, 0, 0), (1, 0, 0), (2, 0, 0)) == "[(0,0), (1,0), (2,0)]"),
    C(14, "Decoding: t varies", lambda: compiled("n=0 input=-1:4 output=0:2").request.outputs[0].indexes.tolist() == [[0, 0, 0], [0, 1, 0], [0, 2, 0]]),
    C(15, "[ (0, 0, 0) (0, 1, 0) (0, 2, 0) ]", lambda: indexes((0, 0, 0), (0, 1, 0), (0, 2, 0)) == "[(0,0:2)]"),
    C(16, "Both vary where there is context", lambda: compiled("n=0:1 input=-1:2 output=0").request.inputs[0].indexes[:5].tolist() == [[0, -1, 0], [0, 0, 0], [0, 1, 0], [0, 2, 0], [1, -1, 0]]),
    C(17, "[ (0, -1, 0) (0, 0, 0) (0, 1, 0) (1, -1, 0) ... ]", lambda: indexes(*[(n, t, 0) for n in (0, 1) for t in (-1, 0, 1)]) == "[(0,-1:1), (1,-1:1)]"),
    C(18, "Indexes are sorted by n, then t, then x", lambda: compiled("n=0:1 input=-1:3 output=0:1").steps[1].indexes.tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]], differs="the rows of a step are sorted by t, then x, then n", source="src/nnet3/nnet-common.h:58"),
    C(18, "x is left out where it is zero", lambda: indexes((0, 0, 0), (1, 0, 5)) == "[(0,0), (1,0,5)]"),
    C(18, "Ranges of t are written with a colon", lambda: indexes((0, 3, 0), (0, 4, 0), (0, 5, 0)) == "[(0,3:5)]"),
    C(19, "[ (0, -1:1) (1, -1:1) ... ]", lambda: "[(0,-1:2), (1,-1:2)]" in compiled("n=0:1 input=-1:2 output=0").plain.to_kaldi()),
    C(20, "The nodes of a network have indexes", lambda: names().index("affine1_node") == 2),
    C(20, "A Cindex is a row of the output of a node", lambda: compiled("n=0:1 input=-1:2 output=0").cindexes["affine1_node"].tolist() == [[0, 0, 0], [1, 0, 0]]),
    C(20, "There is one row for each before optimization", lambda: sum(m.rows for m in compiled("n=0:1 input=-1:2 output=0").plain.matrices) == 26),
    C(20, "affine1 of dimension 1000: a matrix of as many columns", lambda: compiled("n=0 input=-1:2 output=0").plain.matrices[7].cols == 115),
    # -- graph and request
    C(21, "Each Cindex has others that it depends on", lambda: compiled("n=0:1 input=-1:2 output=0").cindexes.dependencies("nonlin1_input", 0) == [("affine1_node", 0, 0, 0)]),
    C(21, "(nonlin1, (1, 0, 0)) depends on (affine1, (1, 0, 0))", lambda: compiled("n=0:1 input=-1:2 output=0").cindexes.dependencies("nonlin1_input", 0, 1) == [("affine1_node", 1, 0, 0)]),
    C(21, "A row has a number, its cindex_id", lambda: len({explorer_id(i) for i in range(13)}) == 13),
    C(22, "A request has named inputs and outputs with indexes", lambda: [io.name for io in (*request().inputs, *request().outputs)] == ["input", "output"]),
    C(22, "Inputs: what is given", lambda: len(request().inputs[0].indexes) == 4),
    C(22, "Outputs: what is wanted", lambda: request().outputs[0].indexes.tolist() == [[0, 0, 0]]),
    C(22, "Flags: which derivatives there are", lambda: request().inputs[0].has_deriv is False and trained().request.inputs[0].has_deriv is True),
    C(22, "Whether the model is updated", lambda: request().need_model_derivative is False and request(need_model_derivative=True).need_model_derivative),
    C(23, "One frame of context: input -1 to 1 for output 0", lambda: bool(compiled("n=0 input=-1:2 output=0").computable)),
    C(23, "Less input is not enough", lambda: not compiled("n=0 input=0:2 output=0").computable),
    C(23, "and an error that names the rows", lambda: fails(lambda: compiled("n=0 input=0:2 output=0").plain, "not computable|cannot be computed")),
    C(23, "In training n varies", lambda: len(compiled("n=0:9 input=-1:2 output=0").request.outputs[0].indexes) == 10),
    C(24, "The objective is the user's: derivatives of outputs are given", lambda: types(trained().plain).count("AcceptInput") == 2),
    C(24, "Several outputs", lambda: two_outputs() is not None),
    C(24, "Several inputs", lambda: [n.name for n in net(TWO_INPUTS).inputs()] == ["one", "two"]),
    C(25, "A computation is compiled of a network and a request", lambda: type(compiled("n=0 input=-1:2 output=0").plain) is Computation),
    C(25, "It is a sequence of commands", lambda: isinstance(compiled("n=0 input=-1:2 output=0").plain.commands, list)),
    C(25, "Propagate", lambda: types(compiled("n=0 input=-1:2 output=0").plain).count("Propagate") == 4),
    C(25, "Copies and sums of matrices", lambda: "MatrixAdd" in types(compiled("n=0 input=-1:2 output=0").plain)),
    C(25, "Rows of one matrix into another", lambda: "AddRows" in types(compiled("n=0:1 input=-1:2 output=0").plain)),
    C(25, "Backprop", lambda: "Backprop" in types(trained().plain)),
    C(25, "Sizes of matrices", lambda: "AllocMatrix" in types(compiled("n=0 input=-1:2 output=0").plain)),
    C(25, "Its variables are matrices", lambda: all(isinstance(m, MatrixInfo) for m in compiled("n=0 input=-1:2 output=0").plain.matrices)),
    C(25, "and sub-matrices, ranges of rows or columns", lambda: all(isinstance(m, SubMatrix) for m in compiled("n=0 input=-1:2 output=0").plain.submatrices)),
    C(25, "and lists of indexes", lambda: any(c.rows is not None for c in compiled("n=0:1 input=-1:2 output=0").plain.commands)),
    C(27, "A computer executes it", lambda: near(run()[0].get_output("output"), by_hand(), 1e-4)),
    # -- components
    C(29, "A Component has Propagate and Backprop: operators of both", lambda: {"Propagate", "Backprop"} <= set(types(trained().plain))),
    C(29, "It may have parameters", lambda: net().components["affine1"].trained == ("linear_params", "bias_params")),
    C(29, "or be a fixed function", lambda: net().components["relu1"].trained == ()),
    C(30, "class Component", lambda: all(isinstance(c, Component) for c in net().components.values())),
    C(32, "Propagate reads a matrix and writes one", lambda: propagates() == [(True, True)] * 4),
    C(35, "Backprop has input value, output value, output derivative and input derivative", lambda: all(len(c.deriv) == 4 for c in trained().plain.commands if c.type == "Backprop")),
    C(40, "Without an update the parameters stay", lambda: "BackpropNoModelUpdate" in types(trained().optimized)),
    C(37, "The input value, where the component needs it", lambda: any(c.deriv[0] for c in trained().plain.commands if c.type == "Backprop")),
    C(38, "The output value, where the component needs it", lambda: any(c.deriv[1] for c in trained().plain.commands if c.type == "Backprop")),
    C(39, "The output derivative", lambda: all(c.deriv[2] for c in trained().plain.commands if c.type == "Backprop")),
    C(42, "The input derivative may be wanted", lambda: types(trained().plain).count("ProvideOutput") == 2),
    C(45, "A component has an input and an output dimension", lambda: updatable_dims() == (48, 65)),
    C(45, "Data are transformed row by row", lambda: near(run()[0].get_output("output")[1:], by_hand()[1:], 1e-4)),
    C(45, "Rows of input and output have the same indexes", lambda: compiled("n=0:1 input=-1:2 output=0").steps[1].indexes.tolist() == compiled("n=0:1 input=-1:2 output=0").steps[2].indexes.tolist()),
    C(46, "Properties are flags", lambda: isinstance(flags("affine"), Properties)),
    C(49, "Properties() of a component", lambda: int(flags("affine")) > 0),
    C(52, "kUpdatableComponent", lambda: Properties.UPDATABLE in flags("affine") and Properties.UPDATABLE not in flags("sigmoid")),
    C(52, "kPropagateInPlace", lambda: Properties.PROPAGATE_IN_PLACE in flags("sigmoid")),
    C(52, "kSimpleComponent", lambda: Properties.SIMPLE in flags("affine")),
    C(52, "The values of the flags are Kaldi's", lambda: (Properties.SIMPLE, Properties.UPDATABLE, Properties.PROPAGATE_IN_PLACE) == (1, 2, 4)),
    C(52, "Non-simple components have other numbers of rows", lambda: Properties.SIMPLE not in flags("statistics")),
    C(52, "Non-simple components are not implemented yet", lambda: Properties.SIMPLE not in flags("statistics"), differs="there are some by now, of statistics and convolutions in time", source="src/nnet3/nnet-general-component.h:201"),
    C(52, "Components do not splice frames", lambda: net().components["affine1"].input_dim == 4 * node("input").dim),
    # -- nodes
    C(53, "A NetworkNode is of one of four kinds", lambda: {n.kind for n in net(RECURRENT).nodes} == {INPUT, DESCRIPTOR, COMPONENT, DIM_RANGE}),
    C(54, "kInput", lambda: node("input").kind == INPUT),
    C(54, "kDescriptor", lambda: node("affine1_node_input").kind == DESCRIPTOR),
    C(54, "kComponent", lambda: node("affine1_node").kind == COMPONENT),
    C(54, "kDimRange", lambda: node("part", RECURRENT).kind == DIM_RANGE),
    C(55, "Input nodes declare their dimension", lambda: node("input").dim == 12),
    C(55, "Output nodes are descriptors", lambda: node("output").kind == DESCRIPTOR),
    C(55, "A component node stands after its own descriptor node", lambda: all(net().nodes[i - 1].name == f"{n.name}_input" for i, n in enumerate(net().nodes) if n.kind == COMPONENT)),
    C(55, "A descriptor that no component follows is an output", lambda: [n.name for n in net().outputs()] == ["output"]),
    C(55, "IsOutputNode", lambda: [n.is_output for n in net().topology().nodes] == [False] * 9 + [True]),
    C(55, "IsComponentInputNode", lambda: [n.name for n in net().nodes if n.kind == DESCRIPTOR and n not in net().outputs()] == ["affine1_node_input", "nonlin1_input", "affine2_input", "output_nonlin_input"]),
    C(57, "Networks are made from config files", lambda: nnet3.Nnet.from_config_text(CONFIG).num_parameters == 48 * 65 + 65 + 65 * 115 + 115),
    C(58, "The example has one hidden layer and splices", lambda: len(node("affine1_node_input").descriptor.parts) == 4),
    C(59, "There is no line for descriptors", lambda: fails(lambda: nnet3.Nnet.from_config_text("descriptor-node name=d input=i"), "descriptor-node")),
    C(59, "A component-node becomes two nodes", lambda: names()[1:3] == ["affine1_node_input", "affine1_node"]),
    C(60, "A dim-range node takes columns of a node", lambda: node("part", RECURRENT).source == "relu"),
    C(61, "dim-range-node name=... input-node=... dim-offset=0 dim=50", lambda: ranged().dim_offset == 0 and ranged().dim == 50),
    C(61, "More columns than there are is an error", lambda: fails(lambda: nnet3.Nnet.from_config_text(CONFIG.replace("output-node", "dim-range-node name=r input-node=affine1_node dim-offset=20 dim=50\noutput-node"), rng=0).check(), "r|50|65")),
    # -- descriptors
    C(62, "Descriptors append", gives("Append(in, in)", {0: [1.0, 1.0]})),
    C(62, "and sum", gives("Sum(in, Offset(in, 1))", {0: 3.0})),
    C(63, "The simplest one is a node's name", is_("a", "a")),
    C(63, "A name that there is not is an error", bad("d", "there is no node 'd'")),
    C(64, "Append(<descriptor>, <descriptor>)", is_("Append(a, b)", "Append(a, b)")),
    C(64, "Append of any number", is_("Append(a, b, c)", "Append(a, b, c)")),
    C(64, "Append inside Append", is_("Append(a, Append(b, c))", "Append(a, b, c)")),
    C(64, "Sum(<descriptor>, <descriptor>)", gives("Sum(in, in)", {2: 6.0})),
    C(64, "Sum of more than two: sums inside one another", is_("Sum(a, b, c)", "Sum(a, Sum(b, c))")),
    C(64, "Const(1.0, 512)", lambda: descriptor("Const(1.0, 512)").dim({}) == 512),
    C(64, "Const has that value", gives("Sum(in, Const(10, 1))", {0: 11.0})),
    C(64, "Scale(-1.0, tdnn2)", gives("Scale(-1.0, in)", {1: -2.0})),
    C(64, "Failover(a, b): the first if it can be computed", gives("Failover(Offset(in, -1), in)", {1: 1.0})),
    C(64, "else the second", gives("Failover(Offset(in, -1), in)", {0: 1.0})),
    C(64, "IfDefined(a): the argument", gives("Sum(in, IfDefined(Offset(in, -1)))", {1: 3.0})),
    C(64, "or else zero", gives("Sum(in, IfDefined(Offset(in, -1)))", {0: 1.0})),
    C(64, "Offset(a, t)", gives("Offset(in, 2)", {0: 3.0, 4: None})),
    C(64, "Offset(a, t, x)", lambda: mapped("Offset(a, 1, 2)", 5, 1) == (0, 6, 3)),
    C(64, "Offsets are integers", bad("Offset(a, 1.5)", "expected an integer, got '1.5'")),
    C(64, "Switch(a, b) chooses by t modulo the number of arguments", lambda: [mapped("Switch(a, b)", t)[0] for t in (0, 1, 2, 3)] == [0, 1, 0, 1]),
    C(64, "Switch of any number", lambda: [mapped("Switch(a, b, c)", t)[0] for t in (-1, 0, 1, 5)] == [2, 0, 1, 2]),
    C(64, "Round(a, m): the next lower multiple of m", lambda: [mapped("Round(a, 3)", t)[1] for t in (-1, 0, 2, 3)] == [-3, 0, 0, 3]),
    C(64, "m is a positive integer", bad("Round(a, 0)", "positive integer, got '0'")),
    C(64, "ReplaceIndex(a, t, value)", lambda: mapped("ReplaceIndex(a, t, 0)", 7, 2) == (0, 0, 2)),
    C(64, "ReplaceIndex(a, x, value)", lambda: mapped("ReplaceIndex(a, x, 4)", 7, 2) == (0, 7, 4)),
    C(64, "as for iVectors at t=0", gives("Append(in, ReplaceIndex(in, t, 0))", {3: [4.0, 1.0]})),
    C(64, "n cannot be replaced", bad("ReplaceIndex(a, n, 0)", "expected 't' or 'x', got 'n'")),
    C(65, "What is written is normalized", is_("Offset(Append(a, b), 1)", "Append(Offset(a, 1), Offset(b, 1))")),
    C(65, "sums of appended parts, too", is_("Sum(Append(a, b), Append(b, a))", "Append(Sum(a, b), Sum(b, a))")),
    C(66, "<descriptor> is class Descriptor", lambda: type(descriptor("a")).__name__ == "Descriptor"),
    C(66, "Append is of sum descriptors", lambda: all(isinstance(p, nnet3.SumDescriptor) for p in descriptor("Append(a, Sum(a, b))").parts)),
    C(66, "One part is as Append with one argument", lambda: len(descriptor("a").parts) == 1),
    C(66, "Sum is a BinarySumDescriptor", part("Sum(a, b)", "BinarySumDescriptor")),
    C(66, "Failover is one, too", part("Failover(a, b)", "BinarySumDescriptor")),
    C(66, "IfDefined is an OptionalSumDescriptor", part("IfDefined(a)", "OptionalSumDescriptor")),
    C(66, "Const is a ConstantSumDescriptor", part("Const(1, 2)", "ConstantSumDescriptor")),
    C(66, "A forwarding descriptor is a SimpleSumDescriptor", part("a", "SimpleSumDescriptor")),
    C(66, "Offset", lambda: type(leaf("Offset(a, 1)")).__name__ == "OffsetForwardingDescriptor"),
    C(66, "Switch", lambda: type(leaf("Switch(a, b)")).__name__ == "SwitchingForwardingDescriptor"),
    C(66, "Round", lambda: type(leaf("Round(a, 2)")).__name__ == "RoundingForwardingDescriptor"),
    C(66, "ReplaceIndex", lambda: type(leaf("ReplaceIndex(a, t, 0)")).__name__ == "ReplaceIndexForwardingDescriptor"),
    C(66, "Scale is innermost", is_("Scale(2, Offset(a, 1))", "Offset(Scale(2, a), 1)")),
    C(66, "Node names are those of input and component nodes: no output", lambda: fails(lambda: nnet3.Nnet.from_config_text(CONFIG + "output-node name=second input=output\n"), "output")),
    C(67, "Descriptors are restricted: no product of two nodes", bad("Times(a, b)", "'Times'")),
    C(68, "Sums of unknown length are components", lambda: "StatisticsExtractionComponent" in component_types()),
    C(70, "ForwardingDescriptor", lambda: issubclass(nnet3.SimpleForwardingDescriptor, nnet3.ForwardingDescriptor)),
    C(72, "MapToInput(index) gives a Cindex", lambda: mapped("b", 3, 1) == (1, 3, 1)),
    C(75, "It refers to another node", lambda: mapped("c", 0)[0] == NODES["c"]),
    C(75, "SimpleForwardingDescriptor holds a node", lambda: leaf("a").node == "a"),
    C(75, "OffsetForwardingDescriptor adds", lambda: mapped("Offset(a, -2)", 1) == (0, -1, 0)),
    C(75, "ReplaceIndexForwardingDescriptor replaces", lambda: mapped("ReplaceIndex(b, t, 9)", 1) == (1, 9, 0)),
    C(76, "SumDescriptor: Sum, Failover, IfDefined", lambda: all(isinstance(descriptor(t).parts[0], nnet3.SumDescriptor) for t in ("Sum(a, b)", "Failover(a, b)", "IfDefined(a)"))),
    C(79, "GetDependencies gives all that may take part", lambda: [tuple(p) for p in descriptor("Failover(Offset(a, 1), b)").get_dependencies(0, 0, NODES)] == [(0, 1, 0), (1, 0, 0)]),
    C(80, "Dependencies are a list", lambda: isinstance(descriptor("Sum(a, b)").get_dependencies(0, 0, NODES), list)),
    C(83, "It gives those of all parts", lambda: len(descriptor("Append(Sum(a, b), c)").get_dependencies(0, 0, NODES)) == 3),
    C(87, "IsComputable tells whether what is there is enough", lambda: combined("Sum(a, b)", True, True)[0] is True),
    C(88, "It is told which rows are there", lambda: not combined("Sum(a, b)", True, False)[0]),
    C(89, "and tells which rows are used", lambda: combined("Sum(a, b)", True, True)[1] == [True, True]),
    C(92, "Sum needs both", lambda: not combined("Sum(a, b)", False, True)[0]),
    C(92, "Failover(X, Y) uses X alone where it is there", lambda: combined("Failover(a, b)", True, True) == (True, [True, False])),
    C(92, "and Y where X is not", lambda: combined("Failover(a, b)", False, True) == (True, [False, True])),
    C(92, "IfDefined is always computable", lambda: combined("IfDefined(a)", False) == (True, [False])),
    C(93, "Descriptor is a vector of sum descriptors", lambda: isinstance(descriptor("a").parts, tuple)),
    C(93, "mostly of length one", lambda: len(descriptor("Sum(a, b)").parts) == 1),
    C(93, "It appends", lambda: descriptor("Append(a, b)").dim({"a": 2, "b": 3}) == 5),
    C(93, "NumParts() and Part(n)", lambda: [str(p) for p in descriptor("Append(a, b)").parts] == ["a", "b"]),
    # -- node and network in detail
    C(95, "enum NodeType", lambda: (INPUT, DESCRIPTOR, COMPONENT, DIM_RANGE) == ("input", "descriptor", "component", "dim-range")),
    C(97, "struct NetworkNode", lambda: type(node("input")) is NetworkNode),
    C(98, "node_type", lambda: "kind" in NetworkNode.__dataclass_fields__),
    C(100, "descriptor, of descriptor nodes alone", lambda: node("input").descriptor is None and node("output").descriptor is not None),
    C(103, "component_index: the component's name", lambda: node("nonlin1").component == "relu1"),
    C(105, "node_index of a dim-range: the source's name", lambda: node("part", RECURRENT).source == "relu"),
    C(109, "dim of an input", lambda: node("input").dim == 12),
    C(109, "dim of a dim-range", lambda: node("part", RECURRENT).dim == 2),
    C(111, "dim_offset of a dim-range", lambda: node("part", RECURRENT).dim_offset == 1),
    C(114, "Nnet stores the whole network", lambda: set(vars(net())) >= {"nodes", "components"}),
    C(119, "component_names_", lambda: list(net().components) == ["affine1", "relu1", "affine2", "logsoftmax"]),
    C(120, "components_", lambda: len(net().components) == 4),
    C(121, "node_names_", lambda: names()[0] == "input"),
    C(122, "nodes_", lambda: len(net().nodes) == 10),
    C(108, "The dimension of a dim-range is the length of the range", lambda: net(RECURRENT).node_dims()["part"] == 2),
    C(110, "Its offset counts columns of the source", lambda: "columns 1:2 of step" in str(compiled("n=0 input=0:3 output=0", RECURRENT).steps)),
    C(124, "Each node has a name", lambda: len(set(names())) == 10),
    C(124, "Descriptors are called as their component node, with _input", lambda: "nonlin1_input" in names()),
    C(124, "Such names do not stand in the config", lambda: not any("_input" in line for line in net().config_lines())),
    # -- computation in detail
    C(125, "NnetComputation is compiled", lambda: type(compiled("n=0 input=-1:2 output=0").optimized) is Computation),
    C(127, "kAllocMatrixUndefined", lambda: "AllocMatrix" in types(compiled("n=0 input=-1:2 output=0").plain), differs="the command is called kAllocMatrix", source=f"{COMPUTATION}:289"),
    C(127, "kAllocMatrixZeroed", lambda: types(compiled("n=0 input=-1:2 output=0").plain).count("SetConst") == 9, differs="kSetConst follows kAllocMatrix", source=f"{COMPUTATION}:289"),
    C(128, "kDeallocMatrix", lambda: "DeallocMatrix" in types(compiled("n=0 input=-1:2 output=0").plain)),
    C(128, "kPropagate", lambda: Command.propagate(1, 2, 3, 4, 0, False, False).type == "Propagate"),
    C(128, "kStoreStats", lambda: any(c.store_stats for c in trained().plain.commands if c.type == "Propagate"), differs="it is an argument of kPropagate", source=f"{COMPUTATION}:197"),
    C(128, "kBackprop", lambda: Command.backprop(1, 2, (1, 2, 3, 4), 0, False, False).type == "Backprop"),
    C(129, "kMatrixCopy", lambda: "MatrixCopy" in types(compiled("n=0 input=-1:2 output=0").optimized)),
    C(129, "kMatrixAdd", lambda: "MatrixAdd" in types(trained().optimized)),
    C(129, "kCopyRows", lambda: "CopyRows" in types(compiled("n=0:1 input=-1:2 output=0").optimized)),
    C(129, "kAddRows", lambda: "AddRows" in types(trained().plain)),
    C(130, "kCopyRowsMulti", lambda: "CopyRowsMulti" in types(trained().optimized)),
    C(130, "kCopyToRowsMulti", lambda: "CopyToRowsMulti" in types(trained().optimized)),
    C(130, "kAddRowsMulti", lambda: "AddRowsMulti" in types(trained().plain)),
    C(130, "kAddToRowsMulti", lambda: "AddToRowsMulti" in types(trained().plain)),
    C(131, "kAddRowRanges", lambda: Command.add_row_ranges(1, 2, 1.0, np.array([[0, 1]])).type == "AddRowRanges"),
    C(131, "kNoOperation", lambda: not hasattr(Command, "no_operation"), absent="passes of optimization take commands out of a list; no place is left for them to remove"),
    C(131, "kNoOperationMarker", lambda: types(compiled("n=0 input=-1:2 output=0").plain).count("NoOperationMarker") == 1),
    C(132, "struct Command: a type and arguments", lambda: {"type", "target", "source", "rows", "node"} <= set(Command.__dataclass_fields__)),
    C(134, "command_type", lambda: Command.no_operation_marker().type == "NoOperationMarker"),
    C(135, "Arguments are indexes of sub-matrices", lambda: Command.matrix_add(1, 2, 1.0).target == 1),
    C(143, "struct MatrixInfo", lambda: MatrixInfo._fields[:2] == ("rows", "cols")),
    C(144, "num_rows", lambda: compiled("n=0:1 input=-1:2 output=0").plain.matrices[1].rows == 8),
    C(145, "num_cols", lambda: compiled("n=0:1 input=-1:2 output=0").plain.matrices[1].cols == 12),
    C(147, "struct SubMatrixInfo", lambda: SubMatrix._fields == ("matrix", "row", "rows", "col", "cols")),
    C(148, "matrix_index", lambda: all(s.matrix < len(compiled("n=0 input=-1:2 output=0").plain.matrices) for s in compiled("n=0 input=-1:2 output=0").plain.submatrices)),
    C(149, "row_offset", lambda: SubMatrix(1, 2, 3, 4, 5).row == 2),
    C(150, "num_rows of a sub-matrix", lambda: SubMatrix(1, 2, 3, 4, 5).rows == 3),
    C(151, "col_offset", lambda: {s.col for s in compiled("n=0:1 input=-1:2 output=0").plain.submatrices} == {0, 12, 24, 36}),
    C(152, "num_cols of a sub-matrix", lambda: SubMatrix(1, 2, 3, 4, 5).cols == 5),
    C(157, "commands", lambda: len(compiled("n=0:1 input=-1:2 output=0").plain.commands) == 43),
    C(158, "matrices", lambda: len(compiled("n=0:1 input=-1:2 output=0").plain.matrices) == 11),
    C(159, "submatrices", lambda: len(compiled("n=0:1 input=-1:2 output=0").plain.submatrices) == 15),
    C(161, "indexes of rows stand in the commands", lambda: next(c.rows.tolist() for c in compiled("n=0:1 input=-1:2 output=0").plain.commands if c.type == "AddRows") == [0, 4]),
    C(165, "indexes_multi: pairs of sub-matrix and row", lambda: next(c.rows.shape[1] for c in trained().plain.commands if c.type == "AddRowsMulti") == 2),
    C(163, "(-1, -1) means that nothing is done for a row", lambda: multi_with_gap()),
    C(168, "indexes_ranges: pairs of begin and end", lambda: Command.add_row_ranges(1, 2, 1.0, np.array([[0, 3]])).listed().tolist() == [[0, 3]]),
    C(171, "input_output_info", lambda: {"AcceptInput", "ProvideOutput"} <= set(types(compiled("n=0 input=-1:2 output=0").plain)), differs="commands kAcceptInput and kProvideOutput say where inputs and outputs live", source=f"{COMPUTATION}:436"),
    C(172, "need_model_derivative", lambda: trained().plain.need_model_derivative is True and compiled("n=0 input=-1:2 output=0").plain.need_model_derivative is False),
    C(174, "component_precomputed_indexes, the first of them none", lambda: compiled("n=0 input=-1:2 output=0").plain.precomputed == [None]),
    C(177, "Lists of rows are arguments of commands", lambda: next(c.rows.dtype for c in compiled("n=0:1 input=-1:2 output=0").plain.commands if c.type == "AddRows") == np.int32),
    C(178, "Each command has a text", lambda: "AddRows(1, m1[0, 4])" in compiled("n=0:1 input=-1:2 output=0").plain.to_kaldi()),
]  # fmt: skip

CIRCLE = """component name=c type=SigmoidComponent dim=1
input-node name=input dim=1
component-node name=a component=c input=Sum(input, b)
component-node name=b component=c input=a
output-node name=output input=b
"""
TWO_INPUTS = """input-node name=one dim=2
input-node name=two dim=3
output-node name=output input=Append(one, two)
"""


def explorer_id(place: int) -> tuple[Any, ...]:
    return tuple(list(compiled("n=0 input=-1:2 output=0").cindexes)[place])


def propagates() -> list[tuple[bool, bool]]:
    found = [c for c in compiled("n=0 input=-1:2 output=0").plain.commands if c.type == "Propagate"]
    return [(c.source > 0, c.target > 0) for c in found]


def ranged() -> NetworkNode:
    text = (
        CONFIG
        + "dim-range-node name=dim-range-node1 input-node=affine1_node dim-offset=0 dim=50\noutput-node name=second input=dim-range-node1\n"
    )
    return net(text).node("dim-range-node1")


def component_types() -> list[str]:
    from opscope.nnet3.components import COMPONENTS

    return list(COMPONENTS)


def multi_with_gap() -> bool:
    """Whether a row of a sum over several steps may have no source."""
    lists = [
        c.rows for c in trained().plain.commands if c.type in ("AddRowsMulti", "AddToRowsMulti")
    ]
    optional = compiled("n=0 input=0:3 output=0:3", GAP).plain
    lists += [c.rows for c in optional.commands if c.type == "AddRowsMulti"]
    return any((rows == -1).all(1).any() for rows in lists)


GAP = """component name=c type=SigmoidComponent dim=2
input-node name=input dim=2
component-node name=a component=c input=input
component-node name=b component=c input=a
output-node name=output input=Sum(a, IfDefined(Failover(Offset(Switch(a, b), -1), Offset(b, -2))))
"""

DOCUMENT = Document("000", "Data types of nnet3", CLAIMS)
