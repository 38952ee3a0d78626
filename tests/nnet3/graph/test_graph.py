"""The computation graph: both ways of building it, epochs, steps, explanations, refusals."""

import numpy as np
import pytest

from opscope.framework.base.algorithms.strongly_connected import strongly_connected
from opscope.framework.base.errors import CycleError, FormatError, ShapeError
from opscope.nnet3.compiler.compiler import Compiler
from opscope.nnet3.compiler.steps import NnetSteps, hash_order
from opscope.nnet3.graph import graph as graph_module
from opscope.nnet3.graph.graph import Graph, NotComputableError
from opscope.nnet3.graph.node_order import compute_epochs
from opscope.nnet3.graph.request import ComputationRequest, IoSpecification
from opscope.nnet3.index.indexes import NO_TIME, Columns, format_indexes, format_integers, pack_tx
from opscope.nnet3.index.row_table import Query, RowTable
from opscope.nnet3.network.nnet import Nnet

TDNN = """\
input-node name=input dim=2
component name=a type=NoOpComponent dim=6
component name=b type=NoOpComponent dim=6
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=b component=b input=Failover(Offset(a, -2), a)
output-node name=output input=Sum(b, IfDefined(Offset(a, 3)))
"""
RNN = """\
input-node name=input dim=2
component name=a type=NoOpComponent dim=2
component-node name=a component=a input=Sum(input, IfDefined(Offset(a, -1)))
output-node name=output input=a
"""


def topology(text):
    return Nnet.from_config_text(text, 0).topology()


def rows(name, ns, ts, has_deriv=False):
    return IoSpecification(name, np.array([(n, t, 0) for n in ns for t in ts]), has_deriv)


def request(inputs, outputs, ns=(0, 1)):
    return ComputationRequest([rows("input", ns, inputs)], [rows("output", ns, outputs)])


def refuse(*args):
    return None


def found(graph):
    """What a graph found, to compare."""
    rows = [
        {node: keys.tolist() for node, keys in part.items() if len(keys)}
        for segment in graph.groups[0].segments
        for part in (segment.input_keys, segment.rows)
    ]
    loops = [
        [(epoch, level, node, keys.tolist()) for level, node, keys in loop]
        for segment in graph.groups[0].segments
        for epoch, loop in sorted(segment.loops.items())
    ]
    return graph.num_cindexes, graph.num_candidates, rows, loops


OPTIONAL = TDNN.replace("Sum(b, IfDefined(Offset(a, 3)))", "IfDefined(Sum(b, Offset(a, 3)))")


@pytest.mark.parametrize("text", [TDNN, TDNN.replace("Offset(a, 3)", "Round(a, 3)"), OPTIONAL])
@pytest.mark.parametrize("inputs", [range(-4, 8), range(-1, 4), range(-3, 3)])
def test_all_builders_agree(text, inputs, monkeypatch):
    nodes, wanted = topology(text), request(inputs, range(3))
    by_times = Graph(nodes, wanted)
    monkeypatch.setattr(graph_module, "_fill_by_times", refuse)
    by_nodes = Graph(nodes, wanted)
    monkeypatch.setattr(graph_module, "_fill_by_nodes", graph_module._fill_by_exploring)
    assert found(by_times) == found(by_nodes) == found(Graph(nodes, wanted))


BOTH_WAYS = """\
input-node name=input dim=2
input-node name=ivector dim=2
component name=f type=NoOpComponent dim=2
component name=b type=NoOpComponent dim=2
component name=c type=NoOpComponent dim=6
component-node name=f component=f input=Sum(Offset(input, 1), IfDefined(Offset(f, -3)))
component-node name=b component=b input=Sum(f, IfDefined(Offset(b, 2)))
component-node name=c component=c input=Append(b, Failover(Offset(f, 1), b), {ivector})
dim-range-node name=part input-node=c dim-offset=2 dim=2
output-node name=output input=Sum(part, IfDefined(Offset(f, 4)))
""".replace("{ivector}", "ReplaceIndex(ivector, t, 0)")
NO_START = """\
input-node name=input dim=2
component name=a type=NoOpComponent dim=2
component name=b type=NoOpComponent dim=2
component-node name=a component=a input=Failover(Offset(b, -1), input)
component-node name=b component=b input=IfDefined(a)
output-node name=output input=a
"""
SWITCH = """\
input-node name=input dim=2
component name=a type=NoOpComponent dim=2
component name=b type=NoOpComponent dim=2
component-node name=a component=a input=Sum(input, IfDefined(Switch(Offset(a, -2), Round(b, 3))))
component-node name=b component=b input=Failover(Offset(a, -1), input)
output-node name=output input=a
"""


@pytest.mark.parametrize("text", [RNN, BOTH_WAYS, SWITCH])
@pytest.mark.parametrize("inputs", [range(-1, 9), range(0, 12), range(2, 6)])
def test_both_builders_of_loops_agree(text, inputs, monkeypatch):
    nodes, segments = (
        topology(text),
        [request(inputs, range(3)), request(range(12, 17), range(4, 6))],
    )
    if "ivector" in text:
        segments[0].inputs.append(rows("ivector", (0, 1), (0,)))
    results = []
    for fill in (graph_module._fill_by_times, refuse):
        monkeypatch.setattr(graph_module, "_fill_by_times", fill)
        try:
            graph = Graph(nodes, *segments)
        except NotComputableError as error:
            results.append(str(error))
            continue
        assert (graph.groups[0].segments[0].explorer is None) == (not results)
        results.append(found(graph))
    assert results[0] == results[1]


def test_a_recurrence_without_a_beginning_is_refused():
    nodes, at_zero = topology(NO_START), pack_tx(np.zeros(1, int), np.zeros(1, int))
    segment = graph_module.Segment([(0, at_zero)], [(5, at_zero)])
    assert graph_module._fill_by_times(nodes, segment) is None
    with pytest.raises(CycleError, match="did not end .*loop .* reads earlier times") as caught:
        Graph(nodes, request(range(3), range(3), (0,)))
    assert "b_input" in str(caught.value) and "(t=-1 in each round)" in str(caught.value)


def test_groups_of_equal_n():
    wanted = request(range(-2, 6), range(3), ns=(0, 1, 5))
    wanted.outputs[0] = IoSpecification(
        "output", np.concatenate((wanted.outputs[0].indexes, [[5, 3, 0]]))
    )
    graph = Graph(topology(TDNN), wanted)
    assert sorted(group.ns.tolist() for group in graph.groups) == [[0, 1], [5]]
    last = NnetSteps(graph).steps[-1]
    assert last.indexes.tolist() == wanted.outputs[0].indexes.tolist()


def test_recurrence_ends_at_the_first_input():
    graph = Graph(topology(RNN), request(range(5), range(5), ns=(0,)))
    steps = NnetSteps(graph)
    assert graph.topology.is_recurrent
    assert steps.num_phases == 12  # the input, two for each time, the output
    names = [graph.topology.nodes[step.node].name for step in steps.steps]
    assert names == ["input", *(["a_input", "a"] * 5), "output"]


def test_steps_do_not_depend_on_the_order_of_sequences():
    wanted = request(range(-4, 8), range(3), ns=(1, 0))
    steps = NnetSteps(Graph(topology(TDNN), wanted)).steps
    assert steps[1].indexes[:4].tolist() == [[0, -2, 0], [1, -2, 0], [0, -1, 0], [1, -1, 0]]
    assert steps[-1].indexes.tolist() == wanted.outputs[0].indexes.tolist()


def test_missing_inputs_are_told():
    with pytest.raises(NotComputableError) as caught:
        Graph(topology(TDNN), request(range(0, 4), range(3)))
    text = str(caught.value)
    assert text.startswith("2 of 6 output rows are not computable; rows of 'input' that are not")
    assert len(text) <= 500 and "\n" not in text
    explained = caught.value.explanation
    assert explained.startswith(text)
    assert (
        "output(0, 0, 0) is kNotComputable, dependencies: b(0, 0, 0)[kNotComputable]" in explained
    )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda r: r.inputs[0].__setattr__("name", "inputs"), FormatError, "no node 'inputs'"),
        (lambda r: r.outputs[0].__setattr__("name", "a"), ShapeError, "no output node"),
        (lambda r: r.inputs[0].__setattr__("name", "output"), ShapeError, "neither an input"),
        (lambda r: r.inputs.append(r.inputs[0]), ShapeError, "'input' twice"),
        (lambda r: r.outputs.clear(), ShapeError, "no output rows"),
        (
            lambda r: r.outputs[0].__setattr__("indexes", np.zeros((2, 3), np.int32)),
            ShapeError,
            "more than once",
        ),
    ],
)
def test_refused_requests(change, error, message):
    wanted = request(range(-4, 8), range(3))
    change(wanted)
    with pytest.raises(error, match=message):
        Graph(topology(TDNN), wanted)


@pytest.mark.parametrize(
    ("reads", "error", "message"),
    [
        ("IfDefined(a)", CycleError, "cycle without delay .* nodes a <- a_input <- a$"),
        (
            "IfDefined(Offset(a, -1)), IfDefined(Offset(a, 1))",
            CycleError,
            "both to earlier and to later times through the nodes a <- a_input <- a$",
        ),
    ],
)
def test_cycles(reads, error, message):
    text = RNN.replace("IfDefined(Offset(a, -1))", reads)
    with pytest.raises(error, match=message):
        Graph(topology(text), request(range(3), range(3)))


def test_a_cycle_without_a_start_is_explained():
    text = RNN.replace("IfDefined(Offset(a, -1))", "a")
    with pytest.raises(NotComputableError) as caught:
        Graph(topology(text), request(range(3), range(3)))
    assert "a_input(0, 0, 0) is kUnknown" in caught.value.explanation


def test_epochs():
    assert strongly_connected([[1], [2], [0, 3], []]) == [[3], [2, 1, 0]]
    assert compute_epochs([[1], [2], [1, 3], []]) == [0, 1, 1, 2]


def test_commands_of_a_small_net():
    wanted = ComputationRequest.parse(
        "input input has_deriv=0 0,0,0 0,1,0\noutput output has_deriv=0 0,0,0 0,1,0\n"
    )
    text = Compiler(topology(RNN), wanted).compile().to_kaldi()
    assert "m2 == value: a_input[(0,0)]\n" in text
    assert "a.Propagate(NULL, m2, &m3)\n" in text
    assert "output m6 to user [for node: 'output']\n" in text
    assert "# computation segment separator" in text


def test_a_constant_beside_a_read_that_is_more_than_an_offset():
    text = """\
input-node name=input dim=2
component name=a type=NoOpComponent dim=4
component-node name=a component=a input=Append(Const(0.5, 2), Round(input, 2))
output-node name=output input=a
"""
    text = Compiler(topology(text), request((0,), range(2), (0,))).compile().to_kaldi()
    assert "m2(0:1, 0:1).set(0.5) [dim = 2 x 2];" in text
    assert "m2(0:1, 2:3).AddRows(1, m1[0, 0])" in text


def test_short_texts():
    indexes = np.array([[0, 5, 0], [0, 6, 0], [1, 7, 2], [1, NO_TIME, 0]])
    assert format_indexes(indexes) == f"[(0,5:6), (1,7,2), (1,{NO_TIME})]"
    assert format_indexes(indexes[:0]) == "[ ]"
    assert format_integers(np.array([1, 4, 7, 8, 9, -1, -1, 3, 4])) == "[1, 4, 7:9, -1, -1, 3, 4]"
    assert format_integers(np.array([0, 0, 0, 2])) == "[0x3, 2]"
    assert format_integers(np.array([], int)) == "[ ]"


def test_hash_order():
    assert hash_order([1, 2, 3]) == [3, 2, 1]
    assert hash_order([1, 14, 2]) == [2, 14, 1]
    assert sorted(hash_order(list(range(100)))) == list(range(100))


@pytest.mark.parametrize("far", [0, 10**8])
def test_row_table(far):
    n, t, x = np.array([0, 1, 0]), np.array([3, NO_TIME, 5 + far]), np.array([0, 0, 1])
    other = Columns(np.array([0]), np.array([3]), np.array([0]))
    table = RowTable([(4, Columns(n, t, x), 10), (2, other, 7)])
    asked = np.array([0, 0, 1, 0]), np.array([3, 5 + far, 3, 4]), np.array([0, 1, 0, 0])
    assert table.find(Query(4, Columns(*asked))).tolist() == [10, 12, -1, -1]
    outside = Columns(np.array([7, 0]), np.array([-9, NO_TIME]), np.array([0, 0]))
    shifted = Columns(asked[0], asked[1] - 7, asked[2] + 1)
    queries = [Query(4, outside), Query(4, shifted, 7, -1), Query(2, other), Query(9, other)]
    assert table.find_all(queries).tolist() == [-1, -1, 10, 12, -1, -1, 7, -1]
    node = np.array([4, 2, 9, 4])
    assert table.find_places(node, Columns(*asked)).tolist() == [10, -1, -1, -1]


def test_segments_read_what_was_computed_before():
    segments = [request(range(0, 4), range(0, 3), ns=(0,)), request(range(4, 7), range(3, 6), (0,))]
    graph = Graph(topology(RNN), *segments)
    steps = NnetSteps(graph).steps
    of_a = [(step.segment, *step.indexes[0, 1:2].tolist()) for step in steps if step.node == 2]
    assert of_a == [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5)]
    text = Compiler(topology(RNN), *segments).compile().to_kaldi()
    assert text.count("computation segment separator") == 2
    assert graph.num_cindexes == 4 + 3 * 3 + 3 + 3 * 3


def test_a_convolution_in_segments_repeats_only_its_input():
    text = """\
input-node name=input dim=2
component name=a type=TdnnComponent time-offsets=-2,0 input-dim=2 output-dim=3
component-node name=a component=a input=input
output-node name=output input=a
"""
    first, second = request(range(-2, 4), range(4), (0,)), request(range(4, 8), range(4, 8), (0,))
    steps = NnetSteps(Graph(topology(text), first, second)).steps
    times = {(step.segment, step.node): step.columns.t.tolist() for step in steps}
    assert times[1, 1] == list(range(2, 8))
    assert times[1, 2] == list(range(4, 8))


def test_rows_of_an_earlier_segment_are_not_given_again():
    with pytest.raises(ShapeError, match="request 1 lists rows of 'input' a second time"):
        Graph(topology(RNN), request(range(4), range(3)), request(range(3, 6), range(3, 6)))
    with pytest.raises(NotComputableError, match="request 1: 2 of 6 output rows"):
        Graph(topology(RNN), request(range(4), range(3)), request(range(5, 6), range(3, 6)))
