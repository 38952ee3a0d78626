"""Compilation in nnet3: computation graph, steps, commands, derivatives, shortcuts."""

# ruff: noqa: E501  a row of the table is a line
from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from conformance.claims.claim import Claim, Document, fails, near, parameters
from conformance.claims.nnet3_nets import CONFIG, RECURRENT, compiled, net, trained, types
from opscope import nnet3
from opscope.nnet3.compiler.command import Command
from opscope.nnet3.compiler.compiler import Compiler
from opscope.nnet3.compiler.computation import Computation, MatrixInfo
from opscope.nnet3.compiler.locations import (
    ensure_contiguous,
    single_source,
    split_locations,
    split_locations_backward,
)
from opscope.nnet3.compiler.shortcut import decompose
from opscope.nnet3.graph.computable import COMPUTABLE, NOT_COMPUTABLE, UNKNOWN, Explorer
from opscope.nnet3.graph.graph import Graph, NotComputableError
from opscope.nnet3.index.indexes import as_indexes

C = Claim
COMPILE = "src/nnet3/nnet-compile.cc"
COMPUTATION = "src/nnet3/nnet-computation.h"
LINE = "n=0:1 input=-1:2 output=0"
LOOP = "n=0:1 input=0:3 output=0:3"
SUMS = """component name=c type=SigmoidComponent dim=2
input-node name=input dim=2
component-node name=a component=c input=input
output-node name=output input=Sum(a, {other})
"""


def loop() -> Any:
    return compiled(LOOP, RECURRENT)


def plain(line: str = LINE, text: str = CONFIG) -> Any:
    return compiled(line, text).plain


@cache
def explored(line: str = LOOP, text: str = RECURRENT) -> Explorer:
    """The rows of one sequence that were looked at, in Kaldi's order."""
    return compiled(line, text)._exploration.groups[0].explorer


def states(line: str = LOOP, text: str = RECURRENT) -> dict[tuple[str, int], int]:
    found, nodes = explored(line, text), net(text).nodes
    return {(nodes[row[0]].name, row[1]): found.state[i] for i, row in enumerate(found.rows)}


def usable(name: str, t: int) -> int:
    found, nodes = explored(), net(RECURRENT).nodes
    return next(
        found.usable[i] for i, r in enumerate(found.rows) if (nodes[r[0]].name, r[1]) == (name, t)
    )


@cache
def compiler(text: str = RECURRENT, derivatives: bool = True) -> Compiler:
    """A compiler that has run on the request of `trained`, or on one without derivatives."""
    request = trained(text).request if derivatives else compiled(LOOP, text).request
    made = Compiler(net(text).topology(), request)
    made.compile()
    return made


def steps(line: str = LOOP, text: str = RECURRENT) -> list[str]:
    """The nodes of the steps, in order."""
    found = compiled(line, text).steps
    return [found.name(i) for i in range(len(found))]


def step_rows(number: int, line: str = LOOP, text: str = RECURRENT) -> list[list[int]]:
    return compiled(line, text).steps[number].indexes.tolist()


def before_each() -> bool:
    """Whether all that a step reads is in earlier steps."""
    found, dependencies = loop().steps, loop().cindexes
    there: set[tuple[str, int, int, int]] = set()
    for number in range(len(found)):
        name, rows = found.name(number), found[number].indexes.tolist()
        if not found[number].is_input:
            for n, t, x in rows:
                if not {tuple(d) for d in dependencies.dependencies(name, t, n, x)} <= there:
                    return False
        there |= {(name, *row) for row in rows}
    return len(there) == len(dependencies)


def pairs(part: Any) -> list[Any]:
    return [summand.single for summand in part.summands]


def derivatives_of(text: str) -> set[str]:
    """The nodes that have derivatives where only the model's are wanted."""
    request = nnet3.ComputationRequest.parse(
        "input input has_deriv=0 0,-1:2,0\noutput output has_deriv=1 0,0,0\n"
        "need_model_derivative=1 store_component_stats=0"
    )
    made = Compiler(net(text).topology(), request)
    made.compile()
    names = [net(text).nodes[step.node].name for step in made.steps.steps]
    return {name for name, needed in zip(names, made.deriv_needed, strict=True) if needed}


def split(rows: list[list[tuple[int, int]]], backward: bool = False) -> list[list[list[int]]]:
    """The lists that sums of (sub-matrix, row) are split into, each as pairs."""
    width = max(map(len, rows))
    padded = np.array([[*row, *[(-1, -1)] * (width - len(row))] for row in rows])
    function = split_locations_backward if backward else split_locations
    found = function(padded[..., 0].copy(), padded[..., 1].copy())
    return [np.stack(pair, 1).tolist() for pair in found]


def marker(computation: Any) -> int:
    return types(computation).index("NoOperationMarker")


def allocated(computation: Any, kind: str) -> set[int]:
    return {
        computation.submatrices[c.target].matrix for c in computation.commands if c.type == kind
    }


def ran(optimize: bool, shortcut: bool = True) -> Any:
    rows = np.random.default_rng(0).normal(size=(20, 12)).astype(np.float32)
    computer = compiled(
        "n=0:4 input=-1:2 output=0", optimize=optimize, shortcut=shortcut
    ).computer()
    computer.accept_input("input", rows)
    computer.run()
    return computer.get_output("output")


def given_component() -> Any:
    """A request in which values of a component node are given."""
    inputs = [
        nnet3.IoSpecification("affine1_node", as_indexes([(0, 0, 0)])),
    ]
    outputs = [nnet3.IoSpecification("output", as_indexes([(0, 0, 0)]))]
    return nnet3.compile(net(), nnet3.ComputationRequest(inputs, outputs))


def ordered() -> list[int]:
    """The times of an output that was asked for in another order."""
    outputs = nnet3.IoSpecification("output", as_indexes([(0, 1, 0), (0, 0, 0)]))
    inputs = nnet3.IoSpecification("input", as_indexes([(0, t, 0) for t in (3, 2, 1, 0, -1)]))
    found = nnet3.compile(net(), nnet3.ComputationRequest([inputs], [outputs]))
    return found.steps[len(found.steps) - 1].indexes[:, 1].tolist()


def commands_of(other: str, line: str = "n=0 input=-2:2 output=0:1") -> list[str]:
    """The commands that sum the rows of an output."""
    found = types(plain(line, SUMS.format(other=other)))
    return [
        kind
        for kind in found[: found.index("ProvideOutput")]
        if kind in ("MatrixAdd", "AddRows", "AddRowsMulti", "SetConst")
    ][-3:]


CLAIMS = [
    # -- overview
    C(9, "A network and a request are compiled to a computation", lambda: type(plain()) is Computation),
    C(9, "The request says which outputs are wanted", lambda: compiled(LINE).request.outputs[0].indexes.tolist() == [[0, 0, 0], [1, 0, 0]]),
    C(9, "and which inputs are there: recurrent networks take any number", lambda: all(bool(compiled(f"n=0 input={first}:3 output=3", RECURRENT).computable) for first in (0, -5, -20))),
    C(11, "Optimization is a stage of its own", lambda: len(compiled(LINE).optimized.commands) < len(plain().commands)),
    C(11, "It changes no results", lambda: near(ran(True), ran(False), 1e-5)),
    # -- ComputationGraph
    C(19, "Cindexes and numbers map back and forth", lambda: len(set(explored().rows)) == len(explored().rows)),
    C(21, "struct ComputationGraph", lambda: type(Graph(net().topology(), compiled(LINE).request)).__name__ == "Graph"),
    C(23, "cindexes: of each number its row", lambda: explored().rows[0] == (0, 0, 0)),
    C(27, "is_input: what is given comes first", lambda: explored().num_available == 4),
    C(31, "dependencies of each number", lambda: explored()._dependencies[explored().rows.index((1, 0, 0))] != []),
    C(35, "cindex_to_cindex_id_: of each row its number", lambda: explored()._id(0, 3, 0) == 3),
    C(38, "First all dependencies that descriptors may have", lambda: len(explored().candidates[explored().rows.index((1, 0, 0))]) == 2),
    C(38, "Later those that are used", lambda: len(explored().used(explored().rows.index((1, 0, 0)))) == 1),
    C(38, "Non-simple components have dependencies of their own", lambda: bool(compiled("n=0 input=0:9 output=0", STATISTICS).computable) and len(compiled("n=0 input=0:9 output=0", STATISTICS).cindexes.dependencies("pool", 0)) > 0),
    C(40, "Values of component nodes may be given", lambda: given_component().steps[0].is_input and given_component().steps.name(0) == "affine1_node"),
    C(40, "Then nothing before them is computed", lambda: "input" not in [given_component().steps.name(i) for i in range(len(given_component().steps))]),
    # -- building it
    C(46, "The builder starts at the outputs", lambda: explored().outputs == [4, 5, 6, 7]),
    C(46, "and goes back to the inputs", lambda: ("input", 0) in states() and ("affine_input", 0) in states()),
    C(46, "Where inputs are missing, the computation is impossible", lambda: fails(lambda: plain("n=0 input=0:2 output=0"), "not computable", NotComputableError)),
    C(50, "Rows and numbers are one to one", lambda: len(explored().rows) == len(explored().state)),
    C(52, "All possible dependencies are followed back", lambda: ("relu", -1) in states()),
    C(53, "In the other direction it is found out what can be computed", lambda: states()[("relu", 0)] == COMPUTABLE),
    C(53, "Dependencies are cut back", lambda: loop().cindexes.dependencies("affine_input", 0) == [("input", 0, 0, 0)]),
    C(54, "All outputs must be computable", lambda: bool(loop().computable)),
    C(55, "What no output needs is taken away", lambda: len(loop().cindexes) < loop().cindexes.before_pruning),
    C(57, "A recurrence is not followed for ever", lambda: min(row[1] for row in explored().rows) == -2),
    C(61, "Hidden rows before the input take no part", lambda: ("relu", -1) in states() and not any(c.node == "relu" and c.t < 0 for c in loop().cindexes)),
    C(61, "A recurrence that nothing ends is an error", lambda: fails(lambda: plain("n=0 input=0:1 output=0", ENDLESS), "not computable|for ever")),
    # -- ComputableInfo
    C(67, "enum ComputableInfo", lambda: len({UNKNOWN, COMPUTABLE, NOT_COMPUTABLE}) == 3),
    C(68, "kUnknown = 0", lambda: UNKNOWN == 0),
    C(69, "kComputable = 1", lambda: COMPUTABLE == 1),
    C(70, "kNotComputable = 2", lambda: NOT_COMPUTABLE == 2),
    C(71, "kWillNotCompute = 3", lambda: "not followed" in str(loop().computable), absent="a row that nothing wants is not followed: its usable count of 0 says the same"),
    C(76, "kUnknown: not known yet", lambda: states()[("relu", -2)] == UNKNOWN),
    C(77, "kComputable: known to be computable", lambda: states()[("output", 3)] == COMPUTABLE),
    C(78, "kNotComputable: known not to be", lambda: states()[("input", -1)] == NOT_COMPUTABLE),
    C(79, "Unusable rows are not computed", lambda: usable("relu", -2) == 0),
    C(79, "usable_count counts who may use a row", lambda: usable("relu", 0) == 2),
    C(80, "It is 1 for an output", lambda: all(explored().usable[row] == 1 for row in explored().outputs)),
    C(81, "else the number of rows", lambda: usable("relu", 3) == 1),
    C(82, "that are not kNotComputable", lambda: usable("input", -1) == 0),
    C(83, "that are usable themselves", lambda: usable("affine_input", -2) == 0),
    C(84, "and depend on it", lambda: usable("relu", 2) == 2),
    C(86, "A row with a count of 0 is not followed", lambda: "affine_input  not followed    0:1,-2" in str(loop().computable)),
    C(86, "Dependencies are followed breadth first", lambda: explored().rounds > 10 and first_seen() == sorted(first_seen(), reverse=True)),
    C(88, "What changes is looked at again", lambda: all(state != UNKNOWN for (name, t), state in states().items() if t >= 0)),
    C(94, "class ComputationGraphBuilder", lambda: Explorer.__name__ == "Explorer"),
    C(96, "It takes a network and a request", lambda: list(parameters(Graph)) == ["topology", "requests"]),
    C(99, "It populates the graph", lambda: len(Graph(net().topology(), compiled(LINE).request).groups[0].segments[0].rows) > 0),
    C(97, "It takes the request", lambda: explored().num_available == len(loop().request.inputs[0].indexes) // 2),
    C(101, "Compute finds out for each row whether it is computable", lambda: set(states().values()) == {UNKNOWN, COMPUTABLE, NOT_COMPUTABLE}),
    C(102, "Whether all outputs are computable is told before anything is compiled", lambda: "not all outputs can be computed" in str(compiled("n=0 input=0:2 output=0").computable)),
    C(106, "Prune leaves the rows that the outputs need", lambda: len(explored().required()) == 4 * 9 and loop().cindexes.before_pruning // 2 == 45),
    C(104, "AllOutputsAreComputable", lambda: [bool(compiled(line).computable) for line in (LINE, "n=0 input=0:2 output=0")] == [True, False]),
    C(105, "Prune removes what is not used", lambda: len(explored().required()) < len(explored().rows)),
    C(105, "The reason why an output is not computable is told", lambda: "not computable" in explored("n=0 input=0:2 output=0", CONFIG).explain(explored("n=0 input=0:2 output=0", CONFIG).outputs[0], 0)),
    # -- steps
    C(114, "Rows that can be computed at once are a step", lambda: step_rows(1) == [[0, 0, 0], [1, 0, 0]]),
    C(114, "A step is about a command", lambda: types(plain(LOOP, RECURRENT)).count("Propagate") == sum(name in ("affine", "relu", "out") for name in steps())),
    C(118, "All rows of a step are of one node", lambda: len(steps()) == 24),
    C(119, "What they depend on is in earlier steps", before_each),
    C(123, "(a) An input is one step, in the order of the request", lambda: step_rows(0) == [[n, t, 0] for n in (0, 1) for t in range(4)]),
    C(123, "An output is one step, in the order of the request", lambda: ordered() == [1, 0]),
    C(123, "Inputs may be component nodes", lambda: given_component().steps.name(0) == "affine1_node"),
    C(124, "(b) Right before a component's step is that of its descriptor", lambda: all(steps()[i - 1] == f"{name}_input" for i, name in enumerate(steps()) if name in ("affine", "relu", "out"))),
    C(124, "with the same indexes", lambda: all(step_rows(i - 1) == step_rows(i) for i, name in enumerate(steps()) if name == "affine")),
    C(125, "(c) A dim-range's step has the rows of its source's", lambda: step_rows(17) == step_rows(16) and steps()[17] == "part"),
    C(125, "It is a sub-matrix of that", lambda: "columns 1:2 of step 16" in str(loop().steps)),
    C(131, "Inputs and outputs are ordered as in the request", lambda: step_rows(23) == [[n, t, 0] for n in (0, 1) for t in range(4)]),
    C(133, "Phases: rows that depend on earlier phases alone", lambda: len(loop().phases) == 21),
    C(133, "The first phase is what is given", lambda: list(loop().phases[0]) == ["input"]),
    C(134, "Steps are made of the component nodes of a phase", lambda: steps()[2] == "affine"),
    C(135, "Rows of a step are sorted as indexes are", lambda: step_rows(21) == sorted(step_rows(21), key=lambda r: (r[1], r[2], r[0]))),
    C(137, "The descriptor's step has all that the component depends on", lambda: step_rows(21) == step_rows(22)),
    C(138, "sorted, too", lambda: step_rows(1, LINE, CONFIG) == [[0, 0, 0], [1, 0, 0]]),
    C(139, "Component::ReorderIndexes", lambda: reordered() == [[0, 0], [1, 0], [0, 1], [1, 1]]),
    C(140, "The descriptor's step stands right before", lambda: steps()[21:23] == ["out_input", "out"]),
    C(142, "Of dim-range nodes the steps are found that their input comes from", lambda: steps()[17:21] == ["part"] * 4),
    C(143, "A dim-range node may have rows in several steps", lambda: [step_rows(i) for i in range(17, 21)] == [[[0, t, 0], [1, t, 0]] for t in (3, 2, 1, 0)]),
    C(144, "Each has a step for each of these", lambda: [step_rows(i)[0][1] for i in range(17, 21)] == [3, 2, 1, 0]),
    C(144, "right after the source's", lambda: "part" in steps() and steps().index("part") > steps().index("relu")),
    C(145, "Inputs first, outputs last", lambda: (steps()[0], steps()[-1]) == ("input", "output")),
    C(147, "What follows a recurrence is one step", lambda: steps().count("out") == 1),
    C(147, "The recurrence has a step for each time", lambda: steps().count("affine") == 4),
    C(151, "The network is a directed graph of nodes", lambda: net().topology().inputs_of[3] == [2]),
    C(153, "ComputeNnetComputationEpochs: nodes of a loop have one epoch", lambda: loop().epochs[1] == ["affine_input", "affine", "relu_input", "relu"]),
    C(153, "Earlier epochs can be computed first", lambda: [loop().epochs.of(name) for name in ("input", "affine", "out", "output")] == [0, 1, 4, 5]),
    C(153, "An epoch is about a layer", lambda: len(compiled(LINE).epochs) == 10),
    C(155, "Epochs, then phases, then steps", lambda: len(loop().epochs) < len(loop().phases) < len(loop().steps)),
    # -- Compiler
    C(161, "The Compiler makes the computation", lambda: isinstance(compiler().computation, Computation)),
    C(165, "class Compiler", lambda: isinstance(compiler(), Compiler)),
    C(167, "It takes a request", lambda: "requests" in parameters(Compiler)),
    C(168, "and a network", lambda: next(iter(parameters(Compiler))) == "topology"),
    C(170, "CreateComputation", lambda: types(compiler(derivatives=False).computation)[0] == "AcceptInput"),
    C(170, "CompilerOptions", lambda: set(vars(compiled(LINE).options)) == {"passes", "test_mode", "shortcut"}),
    C(181, "A graph is built", lambda: compiler().graph is not None),
    C(179, "CreateComputation takes options", lambda: compiled(LINE, optimize=False).options.passes is None),
    C(182, "builder.Compute()", lambda: bool(compiled(LINE).computable)),
    C(183, "builder.Prune()", lambda: len(compiled(LINE).cindexes) == 26),
    C(186, "phases: rows by phase", lambda: compiled(LINE).phases[1]["affine1_node_input"].tolist() == [[0, 0, 0], [1, 0, 0]]),
    C(188, "steps: rows by step", lambda: steps(LINE, CONFIG)[:3] == ["input", "affine1_node_input", "affine1_node"]),
    C(187, "ComputeComputationPhases", lambda: len(loop().phases) == 21),
    C(189, "ComputeComputationSteps", lambda: len(compiler().steps.steps) == 24),
    C(191, "CreateLocationInfo", lambda: len(compiler().input_locations) == 24),
    C(193, "ComputeDerivNeeded", lambda: len(compiler().deriv_needed) == 24),
    C(194, "CreateStepInfo", lambda: len(compiler()._values) == 24),
    C(195, "AddCommands", lambda: len(compiler().computation.commands) > 50),
    C(197, "OutputDebugInfo", lambda: "m1 == value: input" in plain().to_kaldi()),
    C(204, "A location is a step and a row in it", lambda: compiler().input_locations[22 - 1][0].summands[0].row is not None),
    C(204, "The row is the place in the step", lambda: compiler().input_locations[1][0].summands[0].row.tolist() == [0, 4]),
    C(206, "Later it is a sub-matrix and a row", lambda: next(c.rows.tolist() for c in plain(LOOP, RECURRENT).commands if c.type == "AddRowsMulti")[0] == [int(pair) for pair in multi()[0]]),
    # -- derivatives
    C(215, "It is told for each step whether derivatives are needed", lambda: {type(needed) for needed in compiler().deriv_needed} == {bool}),
    C(213, "A vector of booleans, one for each step", lambda: len(compiler().deriv_needed) == len(compiler().steps.steps)),
    C(217, "struct ComputationRequest", lambda: list(nnet3.ComputationRequest.__dataclass_fields__)[:3] == ["inputs", "outputs", "need_model_derivative"]),
    C(218, "inputs", lambda: [io.name for io in trained().request.inputs] == ["input"]),
    C(219, "outputs", lambda: [io.name for io in trained().request.outputs] == ["output"]),
    C(220, "need_model_derivative", lambda: trained().request.need_model_derivative is True),
    C(224, "struct IoSpecification", lambda: list(nnet3.IoSpecification.__dataclass_fields__) == ["name", "indexes", "has_deriv"]),
    C(225, "name", lambda: nnet3.IoSpecification("i", as_indexes([(0, 0, 0)])).name == "i"),
    C(226, "indexes", lambda: nnet3.IoSpecification("i", as_indexes([(0, 1, 0)])).indexes.tolist() == [[0, 1, 0]]),
    C(227, "has_deriv", lambda: nnet3.IoSpecification("i", as_indexes([(0, 0, 0)])).has_deriv is False),
    C(231, "Without flags no derivatives have matrices", lambda: not any(compiler(derivatives=False).deriv_needed)),
    C(231, "and there is no backward part", lambda: "Backprop" not in types(plain(LOOP, RECURRENT))),
    C(233, "What depends on a step with a derivative has one", lambda: {"relu1", "nonlin1", "output"} & derivatives_of(CONFIG) == {"nonlin1", "output"}),
    C(234, "An input whose derivative is wanted has one", lambda: compiler().deriv_needed[0] is True),
    C(235, "An output whose derivative is given has one", lambda: compiler().deriv_needed[23] is True),
    C(236, "An updatable component has one", lambda: "affine1_node" in derivatives_of(CONFIG) and "affine1_node_input" not in derivatives_of(CONFIG)),
    # -- StepInfo
    C(244, "Each step has information", lambda: len(compiler().steps.steps) == len(compiler()._values)),
    C(242, "CreateStepInfo knows which derivatives are needed", lambda: [value > 0 for value in compiler()._derivs] == compiler().deriv_needed),
    C(248, "struct StepInfo", lambda: type(compiler().steps.steps[0])._fields[:3] == ("node", "columns", "is_input")),
    C(249, "node_index", lambda: compiler().steps.steps[1].node == 1),
    C(250, "is_input", lambda: [step.is_input for step in compiler().steps.steps] == [True] + [False] * 23),
    C(251, "value: a sub-matrix", lambda: all(0 < value < len(compiler().computation.submatrices) for value in compiler()._values)),
    C(252, "deriv: a sub-matrix, or zero", lambda: compiler(derivatives=False)._derivs == [0] * 24 and 0 not in compiler()._derivs),
    C(253, "precomputed_indexes_index", lambda: compiled("n=0:1 input=0:4 output=0:2", TDNN).plain.precomputed[0] is None and len(compiled("n=0:1 input=0:4 output=0:2", TDNN).plain.precomputed) == 2),
    C(254, "output_indexes", lambda: compiler().steps.steps[1].indexes.shape == (2, 3)),
    C(255, "output_cindex_ids: the rows of the step", lambda: compiler().steps.steps[0].columns.size == 8),
    C(262, "value_parts: a sub-matrix for each part", lambda: len({part.value for part in compiler().input_locations[1]}) == 2),
    C(260, "With one part it is the value", lambda: compiler().input_locations[3][0].value == compiler()._values[3]),
    C(265, "deriv_parts, where there is a derivative", lambda: all(part.deriv for part in compiler().input_locations[1]) and not compiler(derivatives=False).input_locations[1][0].deriv),
    C(273, "input_locations_list, by part and row", lambda: len(compiler().input_locations[5]) == 2),
    C(270, "Other steps have none", lambda: not compiler().input_locations[2]),
    C(275, "steps_", lambda: len(compiler().steps.steps) == 24),
    # -- matrices
    C(283, "Matrix 0 is empty", lambda: (plain().matrices[0].rows, plain().matrices[0].cols) == (0, 0)),
    C(283, "Sub-matrix 0, too", lambda: tuple(plain().submatrices[0]) == (0, 0, 0, 0, 0)),
    C(283, "A sub-matrix is a range of rows and columns of a matrix", lambda: tuple(plain().submatrices[compiler_of_config().input_locations[1][1].value]) == (2, 0, 2, 12, 12)),
    C(283, "Commands name sub-matrices, not matrices", lambda: all(c.target < len(plain().submatrices) for c in plain().commands)),
    C(289, "NewMatrix(rows, columns)", lambda: list(parameters(Computation.new_matrix))[:2] == ["rows", "cols"]),
    C(290, "NewSubMatrix: a range of columns", lambda: tuple(compiler_of_config().computation.submatrices[compiler_of_config().input_locations[1][2].value]) == (2, 0, 2, 24, 12)),
    C(294, "NewMatrix gives the sub-matrix of the whole", lambda: new_matrix() == (1, (1, 0, 3, 0, 4))),
    C(298, "All steps but those of dim-ranges have a matrix", lambda: len(plain(LOOP, RECURRENT).matrices) - 1 == len(steps()) - steps().count("part")),
    C(300, "Its size is rows and dimension of the step", lambda: (plain(LOOP, RECURRENT).matrices[2].rows, plain(LOOP, RECURRENT).matrices[2].cols) == (2, 5)),
    C(304, "A dim-range has columns of its source's", lambda: tuple(compiler().computation.submatrices[compiler()._values[17]])[3:] == (1, 2)),
    C(307, "A descriptor has a sub-matrix for each part", lambda: len(compiler_of_config().input_locations[1]) == 4),
    C(309, "one after the other, by columns", lambda: [compiler_of_config().computation.submatrices[part.value].col for part in compiler_of_config().input_locations[1]] == [0, 12, 24, 36]),
    # -- input locations
    C(315, "Each part has its input locations", lambda: [part.summands[0].row.tolist() for part in compiler_of_config().input_locations[1]] == [[0, 4], [1, 5], [2, 6], [3, 7]]),
    C(317, "ComputeInputLocationsList of a step and a part", lambda: [len(parts) for parts in compiler().input_locations[:6]] == [0, 2, 0, 1, 0, 2]),
    C(320, "It is a sum over rows", lambda: len(compiler().input_locations[23][0].summands) == 1),
    C(320, "The descriptor is not needed afterwards", lambda: pairs(compiler().input_locations[3][0]) == [2]),
    C(323, "CindexSet: the rows that are computable", lambda: sorted(loop().computable.rows("relu").tolist()) == [[n, t, 0] for n in (0, 1) for t in range(4)]),
    C(324, "Every index of a step is computable", lambda: all(state == COMPUTABLE for (name, t), state in states().items() if t >= 0)),
    C(327, "Only the dependencies of the part count", lambda: compiler().input_locations[1][1].summands[0].row.shape == (2, 0)),
    C(333, "AddCommands goes through the parts", lambda: types(plain())[-1] == "DeallocMatrix"),
    C(339, "Inputs come first, outputs last", lambda: (types(plain(LOOP, RECURRENT))[0], types(plain())[marker(plain()) - 1]) == ("AcceptInput", "ProvideOutput")),
    C(344, "input_output_info", lambda: (types(plain())[0], types(plain()).count("ProvideOutput")) == ("AcceptInput", 1), differs="commands kAcceptInput and kProvideOutput say where inputs and outputs live", source=f"{COMPUTATION}:436"),
    C(346, "Values and derivatives of inputs and outputs", lambda: (types(trained().plain).count("AcceptInput"), types(trained().plain).count("ProvideOutput")) == (2, 2)),
    # -- memory
    C(352, "Matrices are allocated", lambda: len(allocated(plain(), "AllocMatrix")) == 9),
    C(354, "and set to zero", lambda: types(plain())[1:3] == ["AllocMatrix", "SetConst"]),
    C(354, "except for inputs", lambda: 1 not in allocated(plain(), "AllocMatrix")),
    C(354, "kAllocMatrixZeroed has one argument", lambda: plain().commands[2].alpha == 0, differs="kAllocMatrix and kSetConst take its place", source=f"{COMPILE}:1233"),
    C(354, "Optimization leaves zeroing out where it is not needed", lambda: "SetConst" not in types(compiled(LINE).optimized)),
    # -- forward
    C(360, "Steps are computed in order", lambda: [net().nodes[c.node].name for c in plain().commands if c.type == "Propagate"] == ["affine1_node", "nonlin1", "affine2", "output_nonlin"]),
    C(361, "from the first to the last", lambda: [c.step for c in plain().commands if c.type == "Propagate"] == [2, 4, 6, 8]),
    C(366, "DoForwardComputation adds commands of a step", lambda: marker(plain()) > types(plain()).index("Propagate")),
    C(370, "It depends on the kind of the node", lambda: types(plain()).count("Propagate") == 4),
    C(371, "Inputs and dim-ranges need no command", lambda: not any(c.node == 5 for c in plain(LOOP, RECURRENT).commands if c.type == "Propagate")),
    C(372, "A component is propagated", lambda: Command.propagate(1, 1, 2, 3, 0, False, False).type == "Propagate"),
    C(373, "AddPropagateStep", lambda: sum(c.type == "Propagate" for c in plain().commands) == sum(n.kind == "component" for n in net().nodes)),
    C(375, "A descriptor is a sum of rows", lambda: types(plain()).count("AddRows") == 4),
    C(383, "A component's step is one command", lambda: types(plain()).count("Propagate") == 4),
    C(385, "kPropagate", lambda: "affine1.Propagate(NULL, m2, &m3)" in plain().to_kaldi()),
    C(386, "with the component", lambda: next(c.node for c in plain().commands if c.type == "Propagate") == 2),
    C(387, "the precomputed indexes", lambda: next(c.precomputed for c in compiled("n=0:1 input=0:4 output=0:2", TDNN).plain.commands if c.type == "Propagate") == 1),
    C(388, "input", lambda: next(plain().submatrices[c.source].matrix for c in plain().commands if c.type == "Propagate") == 2),
    C(389, "and output", lambda: next(plain().submatrices[c.target].matrix for c in plain().commands if c.type == "Propagate") == 3),
    C(392, "Statistics are stored where they are wanted", lambda: any(c.store_stats for c in trained().plain.commands)),
    C(394, "store_component_stats of the request", lambda: not any(c.store_stats for c in plain().commands)),
    C(396, "of components that have some", lambda: {net(RECURRENT).nodes[c.node].name for c in trained().plain.commands if c.type == "Propagate" and c.store_stats} == {"relu"}),
    C(395, "The component's properties say whether it stores any", lambda: net(RECURRENT).components["relu"].properties & 0x200 == 0x200),
    C(397, "kStoreStats", lambda: any(c.type == "Propagate" and c.store_stats for c in trained().plain.commands), differs="it is an argument of kPropagate", source=f"{COMPUTATION}:197"),
    C(411, "Each part of a descriptor is computed", lambda: sum(c.type == "AddRows" and plain().submatrices[c.target].matrix == 2 for c in plain().commands) == 4),
    C(410, "As many commands as parts at least", lambda: sum(c.type in ("AddRows", "MatrixAdd") for c in plain().commands) == 4 + 4),
    C(417, "Its locations become those of sub-matrices", lambda: next(plain().submatrices[c.source].matrix for c in plain().commands if c.type == "AddRows") == 1),
    C(438, "Each list of locations is a command", lambda: commands_of("Offset(a, -1)")[-2:] == ["AddRows", "AddRows"]),
    C(430, "Locations by step become those by sub-matrix", lambda: {sub for sub, _ in multi()} == {compiler(derivatives=False)._values[i] for i in (17, 18, 19, 20)}),
    C(437, "SplitLocations", lambda: len(split([[(1, 0), (2, 0), (3, 0)]])) == 3),
    C(447, "SplitLocations: lists of one location for each row", lambda: sorted(split([[(1, 0), (2, 0)], [(1, 1), (2, 1)]])) == [[[1, 0], [1, 1]], [[2, 0], [2, 1]]]),
    C(447, "(-1, -1) fills them up", lambda: [-1, -1] in sum(split([[(1, 0), (2, 0)], [(1, 1)]]), [])),
    C(447, "Two lists for at most two locations a row", lambda: len(split([[(1, 0), (2, 3)], [(3, 1)], [(4, 4), (5, 5)]])) == 2),
    C(449, "Locations in one sub-matrix come into one list", lambda: sorted(split([[(1, 0), (2, 0)], [(2, 1), (1, 1)]])) == [[[1, 0], [1, 1]], [[2, 0], [2, 1]]]),
    C(453, "The best command is looked for", lambda: set(types(plain())) >= {"MatrixAdd", "AddRows"}),
    C(464, "Locations in one sub-matrix are rows of it", lambda: single_source(np.array([3, 3, -1])) == 3),
    C(457, "The first term of a sum is added to zeros", lambda: types(plain())[types(plain()).index("NoOperationPermanent") + 1] == "AddRows"),
    C(465, "One source: a command with row numbers", lambda: [c.rows.ndim for c in plain().commands if c.type == "AddRows"] == [1] * 4),
    C(472, "Several sources: single_source tells so", lambda: single_source(np.array([3, 4])) == -2),
    C(474, "Several sub-matrices: kCopyRowsMulti for the first term", lambda: "AddRowsMulti" in types(plain(LOOP, RECURRENT)), differs="the matrix is zero before, and all terms are added; optimization makes kCopyRowsMulti of the first", source=f"{COMPILE}:792"),
    C(475, "kAddRowsMulti for others", lambda: "AddRowsMulti" in types(plain(LOOP, RECURRENT))),
    C(477, "Its list has pairs of sub-matrix and row", lambda: len(multi()) == 8),
    C(485, "ConvertToIndexes: -1 for rows without a source", lambda: commands_of("IfDefined(Offset(a, -2))", "n=0 input=-1:2 output=0:1")[-1] == "AddRows" and gap_rows() == [-1, 2]),
    C(485, "kMatrixAdd where rows are in order", lambda: "m4 += m3" in plain().to_kaldi()),
    C(485, "kMatrixCopy for a first term", lambda: "MatrixCopy" in types(compiled("n=0 input=-1:2 output=0").optimized)),
    C(485, "kAddRows and kCopyRows else", lambda: "m2(0:1, 0:11).AddRows(1, m1[0, 4])" in plain().to_kaldi()),
    C(487, "kAddRowsMulti for several sources", lambda: "m18.AddRowsMulti(1, [" in plain(LOOP, RECURRENT).to_kaldi()),
    C(491, "The end of the forward part is marked", lambda: types(plain()).count("NoOperationMarker") == 1),
    C(494, "kNoOperationMarker", lambda: Command.no_operation_marker().type == "NoOperationMarker"),
    C(496, "The backward part begins there", lambda: marker(trained().plain) < types(trained().plain).index("Backprop")),
    # -- backward
    C(502, "Backward, steps are computed in reverse", lambda: [net(RECURRENT).nodes[c.node].name for c in trained().plain.commands if c.type == "Backprop"][:2] == ["out", "relu"]),
    C(503, "where derivatives are needed", lambda: types(trained().plain).count("Backprop") == 9),
    C(504, "DoBackwardComputation of each step that has a derivative", lambda: marker(trained().plain) < min(i for i, c in enumerate(trained().plain.commands) if c.type == "Backprop")),
    C(506, "It mirrors the forward part", lambda: "AddToRowsMulti" in types(trained().plain)),
    C(506, "No list adds twice to one place", lambda: split([[(1, 0)], [(2, 0)], [(1, 0)]], True) == [[[1, 0], [2, 0], [-1, -1]], [[-1, -1], [-1, -1], [1, 0]]]),
    C(508, "Lists are split as forward, then further", lambda: len(split([[(1, 0)], [(2, 0)], [(1, 0)]], True)) > len(split([[(1, 0)], [(2, 0)], [(1, 0)]]))),
    C(510, "Either all pairs differ", lambda: all_differ(split([[(1, 0)], [(2, 0)], [(1, 0)], [(2, 1)]], True))),
    C(511, "or there is one sub-matrix, its rows in runs", lambda: split([[(1, 0)], [(1, 0)], [(1, 1)]], True) == [[[1, 0], [1, 0], [1, 1]]]),
    C(511, "HasContiguousProperty: a row number stands in one run", lambda: [len(ensure_contiguous(np.array(rows))) for rows in ([0, 0, 1], [0, 1, 0])] == [1, 2]),
    C(511, "so that AddRowRanges can be used", lambda: "AddRowRanges" in types(backward_of_copies())),
    # -- end
    C(517, "Matrices are deallocated", lambda: len(allocated(plain(), "DeallocMatrix")) > 0),
    C(519, "all but the outputs", lambda: 10 not in allocated(plain(), "DeallocMatrix") and 10 in allocated(plain(), "AllocMatrix")),
    C(519, "and wanted derivatives of inputs", lambda: 2 not in allocated(trained().plain, "DeallocMatrix")),
    C(525, "output_debug_info", lambda: "cindex-ids" in plain().to_kaldi()),
    C(530, "struct MatrixDebugInfo", lambda: "m2 == deriv: input[" in trained().plain.to_kaldi()),
    C(534, "By default a matrix is no derivative, of no node", lambda: (MatrixInfo(1, 1).is_deriv, MatrixInfo(1, 1).node) == (False, -1)),
    C(531, "is_deriv", lambda: any(m.is_deriv for m in trained().plain.matrices) and not any(m.is_deriv for m in plain().matrices)),
    C(532, "node_index", lambda: [m.node for m in plain().matrices[1:4]] == [0, 1, 2]),
    C(533, "indexes", lambda: plain().matrices[3].indexes.tolist() == [[0, 0, 0], [1, 0, 0]]),
    C(537, "Merged matrices have the information of one", lambda: len(compiled(LINE).optimized.matrices) < len(plain().matrices) and all(m.node >= 0 for m in compiled(LINE).optimized.matrices[1:])),
    C(541, "Shortcut compilation is on by default", lambda: compiled(LINE).options.shortcut is True),
    C(541, "It is not done for two n or fewer", lambda: decompose(compiled(LINE).request) is None),
    C(541, "but for more", lambda: decompose(compiled("n=0:2 input=-1:2 output=0").request) is not None),
    C(541, "that are numbered from 0", lambda: decompose(compiled("n=1:4 input=-1:2 output=0").request) is None),
    C(541, "and want the same t and x", lambda: decompose(irregular()) is None),
    C(541, "The request is reduced to two", lambda: shortened() == ([0, 1], 5)),
    C(541, "The computation for two is expanded to all", lambda: types(compiled("n=0:4 input=-1:2 output=0").optimized) == types(compiled("n=0:4 input=-1:2 output=0", shortcut=False).optimized)),
    C(541, "with the same results", lambda: near(ran(True), ran(True, False), 1e-6)),
]  # fmt: skip

STATISTICS = """component name=e type=StatisticsExtractionComponent input-dim=2 input-period=1 output-period=1
component name=p type=StatisticsPoolingComponent input-dim=5 left-context=2 right-context=2 input-period=1 output-stddevs=true
input-node name=input dim=2
component-node name=stats component=e input=input
component-node name=pool component=p input=stats
output-node name=output input=pool
"""
ENDLESS = """component name=c type=SigmoidComponent dim=2
input-node name=input dim=2
component-node name=h component=c input=Sum(input, Offset(h, -1))
output-node name=output input=h
"""
TDNN = """component name=t type=TdnnComponent input-dim=2 output-dim=3 time-offsets=0,1,2
input-node name=input dim=2
component-node name=tdnn component=t input=input
output-node name=output input=tdnn
"""
COPIES = """component name=c type=LinearComponent input-dim=2 output-dim=2
input-node name=input dim=2
component-node name=a component=c input=input
component-node name=b component=c input=ReplaceIndex(a, t, 0)
output-node name=output input=b
"""


def irregular() -> nnet3.ComputationRequest:
    """Three sequences, the last of which wants another time."""
    rows = [(n, t, 0) for n in range(3) for t in range(-1, 5)]
    outputs = as_indexes([(0, 0, 0), (1, 0, 0), (2, 2, 0)])
    return nnet3.ComputationRequest(
        [nnet3.IoSpecification("input", as_indexes(rows))],
        [nnet3.IoSpecification("output", outputs)],
    )


def shortened() -> tuple[list[int], int]:
    found = decompose(compiled("n=0:4 input=-1:2 output=0").request)
    assert found is not None
    return found[0].outputs[0].indexes[:, 0].tolist(), found[1]


def first_seen() -> list[int]:
    """The times of the recurrent node in the order in which they were found."""
    found, nodes = explored("n=0 input=0:3 output=3", RECURRENT), net(RECURRENT).nodes
    return [row[1] for row in found.rows if nodes[row[0]].name == "relu"]


def multi() -> list[list[int]]:
    return next(
        c.rows.tolist() for c in plain(LOOP, RECURRENT).commands if c.type == "AddRowsMulti"
    )


@cache
def compiler_of_config() -> Compiler:
    made = Compiler(net().topology(), compiled(LINE).request)
    made.compile()
    return made


def new_matrix() -> tuple[int, tuple[int, ...]]:
    computation = Computation(net().topology())
    number = computation.new_matrix(3, 4)
    return number, tuple(computation.submatrices[number])


def reordered() -> list[list[int]]:
    """n and t of the first rows of a convolution over time, which wants them by t, then n."""
    return [row[:2] for row in step_rows(1, "n=0:1 input=0:4 output=0:2", TDNN)[:4]]


def gap_rows() -> list[int]:
    found = plain("n=0 input=-1:2 output=0:1", SUMS.format(other="IfDefined(Offset(a, -2))"))
    return [c.rows.tolist() for c in found.commands if c.type == "AddRows"][-1]


def all_differ(lists: list[list[list[int]]]) -> bool:
    for rows in lists:
        real = [tuple(row) for row in rows if row[0] >= 0]
        if len(set(real)) < len(real):
            return False
    return True


def backward_of_copies() -> Any:
    request = nnet3.ComputationRequest.parse(
        "input input has_deriv=1 0,0:3,0\noutput output has_deriv=1 0,0:3,0\n"
        "need_model_derivative=1 store_component_stats=0"
    )
    return nnet3.compile(net(COPIES), request).plain


DOCUMENT = Document("001", "Compilation in nnet3", CLAIMS)
