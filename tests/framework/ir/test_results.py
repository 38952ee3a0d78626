"""The results of a net where nobody names any."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opscope import NetBuilder
from opscope.framework.ir.desc import OUTPUT
from opscope.framework.ir.results import net_results
from opscope.python_api.builder.var import Var


def scores_of(b: NetBuilder) -> tuple[Var, Var]:
    x, label = b.input("x", [-1, 4]), b.input("label", [-1], "int64")
    return b.fc(x, size=3, name="scores"), label


def weighted(b: NetBuilder) -> None:
    b.cross_entropy_loss(*scores_of(b), weight=[1.0, 2.0, 3.0])


def focal(b: NetBuilder) -> None:
    b.softmax_focal_loss(*scores_of(b))


def judged_and_read(b: NetBuilder) -> None:
    """A penalty reads the scores for the loss alone."""
    scores, label = scores_of(b)
    penalty = b.mean(b.square(b.softmax(scores)))
    b.add(b.mean(b.softmax_cross_entropy(scores, label)), penalty, name="cost")


def judged_and_made_more_of(b: NetBuilder) -> None:
    scores, label = scores_of(b)
    b.mean(b.softmax_cross_entropy(scores, label))
    b.argmax(scores, axis=1, name="class")


def metric_alone(b: NetBuilder) -> None:
    scores, label = scores_of(b)
    b.scale(b.input("other", [-1, 2]), scale=2.0, name="beside")
    b.accuracy(scores, label)


def own_loss(b: NetBuilder) -> None:
    """Of operators that are no losses: all ends in one number."""
    x, wanted = b.input("x", [-1, 4]), b.input("wanted", [-1, 3])
    b.mean(b.square(b.sub(b.fc(x, size=3, name="found"), wanted)), name="cost")


def one_number(b: NetBuilder) -> None:
    b.mean(b.input("x", [-1, 4]), name="mean")


def last_states(b: NetBuilder) -> None:
    b.lstm(b.input("x", [-1, 4], levels=1), 3, name="states")


def two_ends(b: NetBuilder) -> None:
    x = b.input("x", [-1, 4])
    b.matmul(x, x, transpose_x=True, name="without_rows")
    b.relu(x, name="first")
    b.tanh(x, name="second")


def of_fixed_sizes(b: NetBuilder) -> None:
    x = b.input("x", [2, 4])
    b.relu(x, name="all")
    b.mean(x, name="number")


NETS: list[tuple[Callable[[NetBuilder], None], list[str]]] = [
    (weighted, ["scores"]),
    (focal, ["scores"]),
    (judged_and_read, ["scores"]),
    (judged_and_made_more_of, ["class"]),
    (metric_alone, ["scores"]),
    (own_loss, ["found"]),
    (one_number, ["mean"]),
    (last_states, ["states"]),
    (two_ends, ["first", "second"]),
    (of_fixed_sizes, ["all"]),
]


@pytest.mark.parametrize(("build", "wanted"), NETS, ids=[build.__name__ for build, _ in NETS])
def test_results(build: Callable[[NetBuilder], None], wanted: list[str]) -> None:
    b = NetBuilder("net")
    build(b)
    assert net_results(b.op_list) == wanted


def test_outputs_that_are_declared_are_the_results() -> None:
    b = NetBuilder("net")
    judged_and_made_more_of(b)
    net = b.op_list
    net.vars = [v.changed(kind=OUTPUT) if v.name == "scores" else v for v in net.vars]
    assert net_results(net) == ["scores"]


def test_what_needs_an_input_that_is_not_there_is_no_result() -> None:
    b = NetBuilder("net")
    x, other = b.input("x", [-1, 4]), b.input("other", [-1, 4])
    b.add(b.relu(x, name="half"), other, name="whole")
    assert net_results(b.op_list) == ["whole"]
    assert net_results(b.op_list, {"x"}) == ["half"]
    assert net_results(b.op_list, set()) == []
