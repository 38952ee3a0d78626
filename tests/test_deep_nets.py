"""Long chains of operators: no walk over a net may need more of Python's stack for a longer one.

Every stage runs on a short chain first, so that what it imports is loaded, and then on a long one
with hardly any stack. A stage that calls itself from operator to operator ends in a RecursionError.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import opscope
from little_stack import little_stack
from opscope.framework.draw.pictures import to_dot, to_svg
from opscope.framework.draw.summary import summarize
from opscope.framework.editing.difference import difference
from opscope.framework.ir.messages import as_op_list, parse_net, serialize_net
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.printer import net_text
from opscope.framework.passes.cleanup import clean_up
from opscope.framework.passes.lowering import lower
from opscope.framework.passes.memory.recompute import Recompute
from opscope.framework.passes.precision.to_dtype import ToFloat64, ToHalf
from opscope.framework.passes.prune import prune
from opscope.framework.passes.ranks.all_reduce import InsertAllReduce
from opscope.framework.passes.verify.verifier import verify
from opscope.python_api.to_python.saved_to_python import saved_to_python

FEED = {"x": np.ones((2, 3), np.float32)}


@dataclass(frozen=True)
class Chain:
    """A chain of cheap operators that share one parameter.

    Attributes:
        trained: the chain with gradients and updates.
        folder: for what a stage writes.
    """

    builder: opscope.NetBuilder
    scope: opscope.Scope
    trained: OpList
    folder: Path

    @property
    def net(self) -> OpList:
        return self.builder.op_list


def chain(length: int, folder: Path) -> Chain:
    b, scope = opscope.NetBuilder("chain"), opscope.Scope()
    h = b.input("x", [-1, 3])
    w = b.parameter("w", [3], 0.5)
    for number in range(length // 2):
        h = b.relu(b.add(h, w), name=f"h{number}")
    b.mean(h, name="loss")
    b.initialize(scope)
    trained = opscope.NetBuilder.from_desc(b.op_list)
    trained.backward_from("loss")
    trained.add_optimization(0.1, "momentum")
    return Chain(b, scope, trained.op_list, folder)


def _run(c: Chain) -> None:
    got = c.builder.run(c.scope, feed=FEED, fetch=["loss"])
    assert np.isfinite(got["loss"])


def _unfused(c: Chain) -> None:
    with opscope.options(fuse=False):
        _run(c)


def _train(c: Chain) -> None:
    net, scope = opscope.NetBuilder.from_desc(c.trained), opscope.Scope()
    net.initialize(scope)
    net.run(scope, feed=FEED)
    assert np.isfinite(scope.numpy("w")).all()


def _saved(c: Chain) -> None:
    path = c.folder / f"{len(c.net.ops)}.pb"
    opscope.save(c.builder, c.scope, path)
    assert len(as_op_list(opscope.load(path, opscope.Scope()).desc).ops) == len(c.net.ops)


def _message(c: Chain) -> None:
    again = as_op_list(parse_net(serialize_net(c.trained)))
    assert [op.type for op in again.ops] == [op.type for op in c.trained.ops]


def _recomputed(c: Chain) -> None:
    found = Recompute().apply(c.trained)
    assert len(found.ops) > len(c.trained.ops)


def _onnx(c: Chain) -> None:
    path = c.folder / f"{len(c.net.ops)}.onnx"
    opscope.to_onnx(c.builder, path, c.scope, outputs=[f"h{(len(c.net.ops) - 1) // 2 - 1}"])
    got = opscope.from_onnx(path).run(FEED)
    assert all(np.isfinite(array).all() for array in got.values())


def _edited(c: Chain) -> None:
    editor = opscope.edit(c.builder, c.scope)
    editor.rename("h0", "first").remove_orphans()
    assert editor.difference()


def _compared(c: Chain) -> None:
    path = c.folder / f"{len(c.net.ops)}-compared.pb"
    opscope.save(c.builder, c.scope, path)
    opscope.compare(path, path, inputs=FEED)


def _python(c: Chain) -> None:
    values = {"w": c.scope.numpy("w")}
    code = saved_to_python(prune(c.net, ["loss"]), values, ["loss"])
    assert code.text.count(".relu(") == len(c.net.ops) // 2


def _half(c: Chain) -> None:
    builder = opscope.NetBuilder.from_desc(ToHalf(np.dtype(np.float16)).apply(c.net))
    builder.backward_from("loss")
    builder.add_optimization(0.1, "momentum")
    verify(builder.op_list)


STAGES: dict[str, Callable[[Chain], object]] = {
    "verify": lambda c: verify(c.trained),
    "lower": lambda c: lower(c.trained),
    "clean up": lambda c: clean_up(c.trained, live_out=["loss"]),
    "prune": lambda c: prune(c.trained, ["h0"]),
    "recompute": _recomputed,
    "float64": lambda c: ToFloat64().apply(c.trained),
    "mixed precision": _half,
    "all-reduce": lambda c: InsertAllReduce().apply(c.trained),
    "run": _run,
    "run unfused": _unfused,
    "train": _train,
    "text": lambda c: net_text(c.trained),
    "message": _message,
    "save and load": _saved,
    "dot": lambda c: to_dot(c.net),
    "svg": lambda c: to_svg(c.net),
    "Python": _python,
    "summary": lambda c: str(summarize(c.net, batch=2)),
    "view": lambda c: opscope.view(c.builder, scope=c.scope),
    "difference": lambda c: difference(c.trained, {}, c.net, {}),
    "edit": _edited,
    "ONNX": _onnx,
    "compare": _compared,
}

VERY_LONG = {
    **dict.fromkeys(STAGES, 10_000),
    # Some 1 ms of work for each operator, in more than one pass over the net.
    **dict.fromkeys(["ONNX", "compare", "mixed precision"], 3_000),
    # A drawing is laid out layer by layer.
    **dict.fromkeys(["dot", "svg"], 3_000),
}
"""How many operators each stage takes within some 1 s."""
SECONDS = 5  # what grows with the square of the length takes longer


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> tuple[Chain, Chain]:
    folder = tmp_path_factory.mktemp("chains")
    short = chain(6, folder)
    with little_stack():
        return short, chain(600, folder)


@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_calls_itself_from_operator_to_operator(stage, chains):
    short, long = chains
    STAGES[stage](short)
    with little_stack():
        STAGES[stage](long)


@pytest.mark.slow
@pytest.mark.parametrize("length", sorted(set(VERY_LONG.values())))
def test_time_does_not_grow_beyond_the_length(length, tmp_path):
    """One task for all stages of a length: to build the chain takes a good part of the time."""
    long = chain(length, tmp_path)
    for stage, most in VERY_LONG.items():
        if most == length:
            before = time.process_time()
            STAGES[stage](long)
            spent = time.process_time() - before
            assert spent < SECONDS, f"{stage} took {spent:.0f} s for {length} operators"
