"""Names that are read and written again: every value that is readable is that of the list.

A net of chance writes the same few names over and over. Whatever switches are on, its variables
hold after a run what an interpreter finds that runs one operator after another and keeps all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from campaign.switched import EVERYWHERE, switched
from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import VariableError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, PARAMETER, TEMPORARY, make_op, make_var
from opscope.framework.ir.op_list import OpList, OpNode
from opscope.framework.ir.operation import Operator, results_of
from opscope.framework.ir.printer import net_text
from opscope.framework.passes.cleanup import clean_up
from opscope.framework.passes.verify.verifier import ERROR, problems
from opscope.framework.runtime.net import Net
from rnn_nets import packed, rnn
from rnn_nets import run as run_steps

NAMES = ("a", "b", "c", "d", "e")
UNARY = ("tanh", "sigmoid", "relu", "abs", "square", "assign", "softmax")
PAIRS = ("add", "sub", "mul", "maximum")
WIDTH = 40  # columns: enough for compiled loops and blocks of rows

Values = dict[str, np.ndarray]


def _operators(rng: np.random.Generator, sources: list[str], count: int) -> list[OpNode]:
    """Operators on matrices of one shape, which write few names; as the verifier takes them."""
    there: list[str] = list(sources)
    made: list[OpNode] = []
    for number in range(count):
        x, y = (str(rng.choice(there)) for _ in "xy")
        for out in (x, y, *map(str, rng.choice(NAMES, 3)), f"n{number}"):
            added = _operator(rng, x, y, out)
            if out not in sources and _is_sound([*made, *added], sources):
                made += added
                there.append(out)
                break
    return made


def _is_sound(ops: list[OpNode], sources: list[str]) -> bool:
    given = [make_var(name, None, None, INPUT) for name in (*sources, "w", "v")]
    found = problems(OpList("n", vars=given, ops=ops))
    return not any(problem.severity == ERROR for problem in found)


def _operator(rng: np.random.Generator, x: str, y: str, out: str) -> list[OpNode]:
    way = rng.random()
    if way < 0.35:
        return [make_op(str(rng.choice(UNARY)), {"x": x}, {"out": out})]
    if way < 0.5:
        attrs: dict[str, Any] = {"scale": float(rng.choice([0.5, 1.0, -0.75])), "bias": 0.25}
        return [make_op("scale", {"x": x}, {"out": out}, attrs)]
    if way < 0.75:
        return [make_op(str(rng.choice(PAIRS)), {"x": x, "y": y}, {"out": out})]
    if way < 0.85:
        return [make_op("affine", {"x": x, "w": "w", "b": "v"}, {"out": out})]
    if way < 0.92:
        return [make_op("matmul", {"x": x, "y": "w"}, {"out": out})]
    attrs = {"axis": 1, "sections": [WIDTH // 2] * 2}
    parts = [f"{out} {side}" for side in "pq"]
    split = make_op("split", {"x": x}, {"out": parts}, attrs)
    return [split, make_op("concat", {"x": parts[::-1]}, {"out": out}, {"axis": 1})]


def _net(seed: int) -> tuple[OpList, Values]:
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([1, 3, 64]))
    dtype = str(rng.choice(["float32", "float64"]))
    shapes = {"x": (rows, WIDTH), "w": (WIDTH, WIDTH), "v": (WIDTH,)}
    kinds = {"x": INPUT, "w": PARAMETER, "v": PARAMETER}
    values = {
        name: rng.normal(0, 1 / np.sqrt(WIDTH), size=shape).astype(dtype)
        for name, shape in shapes.items()
    }
    desc = OpList("rewritten", ops=_operators(rng, ["x"], int(rng.integers(3, 25))))
    desc.vars = [make_var(name, shapes[name], dtype, kind) for name, kind in kinds.items()]
    return desc, values


def _interpreted(desc: OpList, values: Values) -> Values:
    """Every variable after the list has run, an operator after another with all values kept."""
    found = dict(values)
    for op in desc.ops:
        given = {name: found[name] for name in op.input_names()}
        one = OpList("one", ops=[op.changed(inputs=_renamed(op, "in "))])
        scope = Scope()
        scope.feed({f"in {name}": value for name, value in given.items()})
        Net.create(one).run(scope, OpContext(live_out=op.output_names()))
        found |= {name: scope.numpy(name) for name in op.output_names()}
    return found


def _renamed(op: OpNode, prefix: str) -> dict[str, tuple[str, ...]]:
    return {slot: tuple(prefix + name for name in names) for slot, names in op.inputs.items()}


def _readable(scope: Scope, names: set[str]) -> Values:
    found = {}
    for name in names:
        try:
            found[name] = scope.numpy(name)
        except VariableError:
            continue
    return found


def _check(found: Values, wanted: Values, text: str) -> None:
    for name, value in found.items():
        near = 1e-4 if value.dtype == np.float32 else 1e-10
        scale = max(1.0, float(np.abs(wanted[name]).max(initial=0)))
        np.testing.assert_allclose(
            value, wanted[name], rtol=0, atol=near * scale, err_msg=f"{name} of\n{text}"
        )


@pytest.mark.parametrize("seed", range(14))
def test_what_is_readable_is_right(seed: int) -> None:
    desc, values = _net(seed)
    rng = np.random.default_rng(seed)
    with switched(()):
        wanted = _interpreted(desc, values)
    written = {name for op in desc.ops for name in op.output_names()}
    results = results_of([Operator(op) for op in desc.ops], {}, by_value=True)
    assert desc.ops[-1].output_names()[0] in results
    chosen = tuple(str(name) for name in rng.permutation(sorted(written))[:2])
    cuts: list[tuple[int, ...]] = [(), tuple(sorted(rng.integers(0, len(desc.ops) + 1, 2)))]
    some = [name for name in EVERYWHERE if name != "threads" and rng.random() < 0.5]
    for on in ((), EVERYWHERE[:-1], some):
        for net in (desc, clean_up(desc, live_out=results)):
            for live_out in (None, chosen, tuple(written)):
                if net is not desc and live_out is not None:
                    continue
                for cut in cuts:
                    _run_and_check(net, values, wanted, on, live_out, cut, results)


def _run_and_check(
    desc: OpList,
    values: Values,
    wanted: Values,
    on: Any,
    live_out: tuple[str, ...] | None,
    cut: tuple[int, ...],
    results: set[str],
) -> None:
    with switched(on):
        net, scope = Net.create(desc), Scope()
        context = OpContext(live_out=live_out)
        scope.feed(values)
        bounds = [0, *(min(end, len(desc.ops)) for end in cut), -1]
        if cut and live_out is not None:
            return  # a part of a list leaves what is asked for, not what the next part reads
        for begin, end in zip(bounds, bounds[1:], strict=False):
            net.run(scope, context, int(begin), int(end))
    found = _readable(scope, set(wanted))
    _check(found, wanted, f"{net_text(desc)}\non: {on}, live_out {live_out}, cuts {cut}")
    needed = results if live_out is None else {*live_out, *results}
    assert needed <= found.keys(), net_text(desc)


def test_a_name_read_and_written_again() -> None:
    ops = [
        make_op("scale", {"x": "x"}, {"out": "s"}, {"scale": 2.0}),
        make_op("scale", {"x": "s"}, {"out": "t"}, {"scale": 3.0}),
        make_op("add", {"x": "s", "y": "t"}, {"out": "s"}),
    ]
    desc = OpList("n", vars=[make_var("x", (2,), "float32", INPUT)], ops=ops)
    for net in (desc, clean_up(desc)):
        scope = Scope()
        scope.feed({"x": np.ones(2, "float32")})
        Net.create(net).run(scope, OpContext())
        assert scope.numpy("s").tolist() == [8, 8]


@pytest.mark.parametrize("seed", range(8))
def test_steps_that_write_names_again(seed: int) -> None:
    """The step of a recurrent net: its loop is split, and its gradients are written out."""
    rng = np.random.default_rng(seed)
    ops = _operators(rng, ["x", "h"], int(rng.integers(2, 10)))
    last = ops[-1].output_names()[0]
    ops.append(make_op("tanh", {"x": last}, {"out": "state"}))
    outs = sorted({op.output_names()[0] for op in ops})
    desc = rnn(
        [(op.type, dict(op.inputs), dict(op.outputs), dict(op.attrs)) for op in ops],
        ins={"xs": "x"},
        statics={"w": "w", "v": "v"},
        outs={f"{name} out": name for name in outs},
        memories=[{"state": "state", "previous": "h", "boot_value": 0.1}],
        shapes={"h": [-1, WIDTH]},
    )
    lengths = [3, 1, 4]
    values = {
        "xs": packed(rng, lengths, WIDTH),
        "w": rng.normal(0, 1 / WIDTH, size=(WIDTH, WIDTH)),
        "v": rng.normal(0, 0.1, size=WIDTH),
    }
    fetch = [f"{name} out" for name in outs]
    with switched(()):
        wanted = _stepped(ops, values, lengths, outs)
    for on in ((), EVERYWHERE[:-1]):
        with switched(on):
            found = dict(run_steps(desc, values, fetch))
        _check(found, wanted, f"{net_text(desc)}\non: {on}")


def _stepped(
    ops: list[OpNode], values: dict[str, Any], lengths: list[int], outs: list[str]
) -> Values:
    """A loop over steps that runs the list of operators for one sequence after another."""
    desc = OpList("step", vars=[make_var("x", None, None, TEMPORARY)], ops=ops)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in outs}
    begin = 0
    for length in lengths:
        state = np.full((1, WIDTH), 0.1)
        for row in range(begin, begin + length):
            given = {"x": values["xs"].data[row : row + 1], "h": state}
            found = _interpreted(desc, {**given, "w": values["w"], "v": values["v"]})
            state = found["state"]
            for name in outs:
                rows[name].append(found[name])
        begin += length
    return {f"{name} out": np.concatenate(rows[name]) for name in outs}
