"""The stages that bind a recurrent net, one by one: the value of each on a small net."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.options.settings import Options
from opscope.framework.base.scope import Scope
from opscope.framework.base.sequence import make_schedule, offsets_of
from opscope.framework.fusion import team
from opscope.framework.fusion.team import nothing
from opscope.framework.loops.recurrent import loop, step_calls, store
from opscope.framework.loops.recurrent import net as recurrent_net
from opscope.framework.loops.recurrent.boundary import (
    bind_links,
    bind_memories,
    bind_outputs,
    bind_states,
    saved_steps,
)
from opscope.framework.loops.recurrent.chunks import ChunkedProgram
from opscope.framework.loops.recurrent.frame import LoopContext, loop_context
from opscope.framework.loops.recurrent.links import RecurrentBinding
from opscope.framework.loops.recurrent.loop import StepSums, bind_loop
from opscope.framework.loops.recurrent.once import bind_once, bring_into_slots
from opscope.framework.loops.recurrent.sharing import Sharing, shared_values
from opscope.framework.loops.recurrent.stages import bind_recurrent
from opscope.framework.loops.recurrent.step_calls import StepCalls
from opscope.framework.loops.recurrent.store import (
    Arena,
    DoubleBuffer,
    SlotRanges,
    StepSlices,
    StepValues,
    WholeArray,
)
from opscope.framework.runtime.net import Net
from opscope.operators.control import recurrent as recurrent_operators
from rnn_nets import fill, packed, rnn, simple, with_loss

OPTIONS = Options(libraries=("xp",), tails=False, channels_last=False)
"""As plans have them that know nothing faster than the reference."""
LENGTHS = [1, 3, 2]
ORDER, SIZES = [1, 2, 0], [3, 2, 1]
"""Of the sequences in the schedule, and how many of them have each step."""
ROWS = [1, 4, 0, 2, 5, 3]
"""Row of the batch for each time-major row."""

Bind = Callable[..., RecurrentBinding]


@pytest.fixture
def bind(monkeypatch: pytest.MonkeyPatch) -> Bind:
    """Runs a net; the binding of its recurrent operator or, if wanted, of that one's gradient."""
    made: list[RecurrentBinding] = []
    make_program = recurrent_net.make_program

    def record(binding: RecurrentBinding) -> Any:
        made.append(binding)
        return make_program(binding)

    for module in (recurrent_net, recurrent_operators):
        monkeypatch.setattr(module, "make_program", record)

    def bound(
        desc: Any, given: dict[str, Any], keep: Sequence[str] = ("ys",), *, gradient: bool = False
    ) -> RecurrentBinding:
        made.clear()
        scope = Scope()
        fill(scope, given)
        net = desc if isinstance(desc, Net) else Net.create(desc)
        net.run(scope, OpContext(live_out=keep, seed=1))
        return made[1 if gradient else 0]

    return bound


def values(lengths: Sequence[int] = LENGTHS) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "xs": packed(rng, lengths, 2),
        "u": rng.normal(size=(2, 3)),
        "w": rng.normal(size=(3, 3)),
        "boot": rng.normal(size=(len(lengths), 3)),
    }


def booted(
    weights: str = "w",
    outs: dict[str, str] | None = None,
    sums: dict[str, str] | None = None,
    more: Sequence[Any] = (),
    reverse: bool = False,
) -> Any:
    """h = tanh(x u + p w) that starts from `boot` and leaves its last state in `last`."""
    return rnn(
        [
            ("matmul", {"x": "x", "y": "u"}, {"out": "a"}),
            *more,
            ("matmul", {"x": "p", "y": weights}, {"out": "b"}),
            ("add", {"x": "a", "y": "b"}, {"out": "s"}),
            ("tanh", {"x": "s"}, {"out": "h"}),
        ],
        ins={"xs": "x"},
        outs={"ys": "h"} if outs is None else outs,
        statics={"u": "u", "w": "w"},
        sums=sums,
        memories=[{"state": "h", "previous": "p", "boot": "boot", "final": "last"}],
        shapes={"p": [-1, 3]},
        reverse=reverse,
    )


def expected(given: dict[str, Any]) -> tuple[list[np.ndarray], np.ndarray]:
    """States of `booted`, an array a step in the schedule's order; and the last ones, by place."""
    xs, offsets = given["xs"].data, given["xs"].levels[0]
    state = given["boot"][ORDER]
    last, steps = state.copy(), []
    for step, size in enumerate(SIZES):
        rows = offsets[:-1][ORDER[:size]] + step
        state = np.tanh(xs[rows] @ given["u"] + state[:size] @ given["w"])
        last[:size] = state
        steps.append(state)
    return steps, last


def run_all(calls: Iterable[Callable[[], Any]]) -> None:
    for call in calls:
        call()


def context_of(binding: RecurrentBinding, **options: Any) -> LoopContext:
    """A context with memory of its own, so that nothing is there that the test has not made."""
    found = loop_context(binding, replace(OPTIONS, **options))
    arena = Arena(binding.frame.place, found.arena.room, found.arena.steps, found.arena.fixed)
    arena.state.context = OpContext()
    return replace(found, arena=arena)


# -- where values are ------------------------------------------------------------------------------


def test_slot_ranges() -> None:
    slots = SlotRanges(make_schedule(offsets_of(LENGTHS)), 4)
    assert (slots.begins, slots.ends, slots.sizes) == ([0, 4, 8], [3, 6, 9], SIZES)
    assert slots.total == 6 and not slots.gapless
    assert slots.filling.tolist() == [0, 1, 2, 2, 3, 4, 4, 4, 5, 5, 5, 5]
    assert SlotRanges(make_schedule(offsets_of([2, 2])), 2).gapless


def test_step_slices() -> None:
    array = np.arange(20).reshape(10, 2)
    slices = StepSlices(array, [0, 4, 8], [3, 6, 9])
    assert slices.rows.tolist() == [0, 1, 2, 4, 5, 8]
    np.testing.assert_array_equal(slices.at(1), array[4:6])
    views = slices.columns(1, 2)
    np.testing.assert_array_equal(views.at(1), array[4:6, 1:])
    assert np.shares_memory(views.at(1), array)


def test_double_buffer() -> None:
    pair = np.zeros((3, 2)), np.zeros((3, 2))
    previous, state = DoubleBuffer(pair, SIZES, 0), DoubleBuffer(pair, SIZES, 1)
    assert [len(state.at(step)) for step in range(3)] == SIZES
    for step in (1, 2):
        assert np.shares_memory(previous.at(step), state.at(step - 1))
        assert not np.shares_memory(previous.at(step), state.at(step))
    backward = DoubleBuffer(pair, SIZES, -1)
    assert np.shares_memory(previous.at(0), backward.at(1))
    assert np.shares_memory(state.columns(0, 1).at(0), pair[1])


# -- initial and final states ----------------------------------------------------------------------


def test_initial_states_come_in_the_order_of_the_schedule(bind: Bind) -> None:
    given = values()
    states = bind_states(bind(booted(), given, ["last"]))
    run_all(states.opening)
    np.testing.assert_array_equal(states.initial[0], given["boot"][ORDER])


def test_final_states_go_back_to_the_order_of_the_batch(bind: Bind) -> None:
    binding = bind(booted(), values(), ["last"])
    states = bind_states(binding)
    (final,) = states.final
    final[...] = np.arange(9).reshape(3, 3)
    run_all(states.closing)
    np.testing.assert_array_equal(binding.final_states[0][ORDER], final)


def test_states_in_order_are_the_arrays_outside(bind: Bind) -> None:
    binding = bind(booted(), values([3, 2, 2]), ["last"])
    states = bind_states(binding)
    assert states.initial[0] is binding.initial_states[0]
    assert states.final[0] is binding.final_states[0]
    assert not states.opening and not states.closing


def test_sequences_without_a_step_end_as_they_begin(bind: Bind) -> None:
    given = values([0, 2, 0])
    states = bind_states(bind(booted(), given, ["last"]))
    run_all(states.opening)
    np.testing.assert_array_equal(states.final[0][1:], given["boot"][[0, 2]])


def test_a_state_that_nobody_wants(bind: Bind) -> None:
    states = bind_states(bind(simple(), values()))
    assert states.final == [None] and not states.closing


# -- links -----------------------------------------------------------------------------------------


def test_what_runs_once_reads_links_step_by_step(bind: Bind) -> None:
    given = values()
    context = context_of(bind(booted(), given))
    links = bind_links(context)
    run_all(links.calls)
    x = links.values["x"]
    assert isinstance(x, StepValues) and x.slots is None
    np.testing.assert_array_equal(x.compact, given["xs"].data[ROWS])
    u = links.values["u"]
    assert isinstance(u, WholeArray) and u.array is context.binding.statics[0]
    assert links.values.keys() == {"x", "u", "w"}


def test_what_the_loop_reads_is_in_slots(bind: Bind) -> None:
    """A mean over the rows of a step: no operator that reads x runs once."""
    desc = rnn(
        [
            ("reduce_mean", {"x": "x"}, {"out": "m"}, {"axes": [0]}),
            ("add", {"x": "x", "y": "m"}, {"out": "h"}),
        ],
        ins={"xs": "x"},
        outs={"ys": "h"},
    )
    given = {"xs": values()["xs"]}
    links = bind_links(context_of(bind(desc, given)))
    run_all(links.calls)
    x = links.values["x"]
    assert isinstance(x, StepValues) and x.compact is None
    begin = 0
    for step, size in enumerate(SIZES):
        np.testing.assert_array_equal(x.at(step), given["xs"].data[ROWS[begin : begin + size]])
        begin += size


# -- memories --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("keep", ["ys", "last"])
def test_a_state_is_the_next_step_s_previous(bind: Bind, keep: str, reverse: bool) -> None:
    desc = booted(outs={"ys": "h"} if keep == "ys" else {}, reverse=reverse)
    context = context_of(bind(desc, values(), [keep]))
    memories = bind_memories(context, {})
    previous, state = memories.values["p"], memories.values["h"]
    assert isinstance(previous, StepValues) and isinstance(state, StepValues)
    kind = StepSlices if keep == "ys" else DoubleBuffer
    assert isinstance(previous.slots, kind) and not memories.copies
    for step in (1, 2):
        here, there = (step - 1, step) if reverse else (step, step - 1)
        assert previous.at(here).ctypes.data == state.at(there).ctypes.data
        assert not np.shares_memory(previous.at(step), state.at(step))


def test_a_state_with_values_of_its_own_is_copied(bind: Bind) -> None:
    context = context_of(bind(booted(), values()))
    there = StepValues(StepSlices(np.zeros((9, 3)), [0, 3, 6], [3, 5, 7]))
    memories = bind_memories(context, {"h": there})
    ((memory, state),) = memories.copies
    assert memory.state == "h" and memories.values["h"] is there
    assert np.shares_memory(memories.values["p"].at(1), state.at(0))


# -- what runs once --------------------------------------------------------------------------------


def test_operators_before_the_loop_run_on_all_rows(bind: Bind) -> None:
    given = values()
    context = context_of(bind(booted(), given))
    links = bind_links(context)
    before = bind_once(context, context.analysis.phases.pre, links.values)
    run_all([*links.calls, *before.calls])
    a = before.values["a"]
    assert isinstance(a, StepValues) and a.slots is None  # the batch has gaps
    np.testing.assert_allclose(a.compact, given["xs"].data[ROWS] @ given["u"], rtol=1e-12)
    assert before.values.items() >= links.values.items()
    assert "a" not in links.values


def test_without_gaps_results_are_in_slots_at_once(bind: Bind) -> None:
    context = context_of(bind(booted(), values([2, 2])))
    links = bind_links(context)
    before = bind_once(context, context.analysis.phases.pre, links.values)
    a = before.values["a"]
    assert isinstance(a, StepValues) and np.shares_memory(a.at(1), a.compact)
    assert not bring_into_slots(context, before.values).calls


def test_no_operators_change_nothing(bind: Bind) -> None:
    context = context_of(bind(booted(), values()))
    links = bind_links(context)
    assert not context.analysis.phases.static
    stage = bind_once(context, context.analysis.phases.static, links.values)
    assert stage.values is links.values and stage.calls == []


def test_static_operators_make_whole_arrays(bind: Bind) -> None:
    """exp(w) is the same at every step."""
    desc = booted("e", more=[("exp", {"x": "w"}, {"out": "e"})])
    given = values()
    context = context_of(bind(desc, given))
    links = bind_links(context)
    static = bind_once(context, context.analysis.phases.static, links.values)
    run_all(static.calls)
    e = static.values["e"]
    assert isinstance(e, WholeArray)
    np.testing.assert_allclose(e.array, np.exp(given["w"]), rtol=1e-12)


def test_bring_into_slots(bind: Bind) -> None:
    given = values()
    context = context_of(bind(booted(), given))
    links = bind_links(context)
    before = bind_once(context, context.analysis.phases.pre, links.values)
    stage = bring_into_slots(context, before.values)
    run_all([*links.calls, *before.calls, *stage.calls])
    a = stage.values["a"]
    assert isinstance(a, StepValues)
    begin = 0
    for step, size in enumerate(SIZES):
        np.testing.assert_array_equal(a.at(step), a.compact[begin : begin + size])
        begin += size


# -- the loop --------------------------------------------------------------------------------------


@pytest.mark.parametrize("inplace", [False, True])
def test_the_loop_computes_states_step_by_step(bind: Bind, inplace: bool) -> None:
    given = values()
    binding = bind(booted(), given, ["ys", "last"])
    context, states = context_of(binding, inplace=inplace), bind_states(binding)
    links = bind_links(context)
    memories = bind_memories(context, links.values)
    before = bind_once(context, context.analysis.phases.pre, memories.values)
    loop = bind_loop(context, before.values, memories, states)
    run_all([*states.opening, *links.calls, *before.calls, *loop.calls])
    steps, last = expected(given)
    for step, wanted in enumerate(steps):
        np.testing.assert_allclose(loop.values["h"].at(step), wanted, rtol=1e-12)
    np.testing.assert_allclose(states.final[0], last, rtol=1e-12)
    assert loop.scopes == [] and loop.offsets == [] and not context.analysis.nested
    shares = np.shares_memory(loop.values["a"].at(0), loop.values["s"].at(0)) if inplace else False
    assert shares == inplace  # the product is added to what was computed before the loop
    outputs = bind_outputs(context, loop.values)
    binding.outputs[0][...] = 0
    run_all(outputs)
    np.testing.assert_allclose(binding.outputs[0][ROWS], np.concatenate(steps), rtol=1e-12)


def test_frames_of_an_earlier_batch_serve_again(bind: Bind) -> None:
    binding = bind(booted(), values())
    context, states = context_of(binding), bind_states(binding)

    def bound() -> dict[Any, Any]:
        links = bind_links(context)
        memories = bind_memories(context, links.values)
        before = bind_once(context, context.analysis.phases.pre, memories.values)
        bind_loop(context, before.values, memories, states)
        known = context.arena.frames.items()
        return {(key, step): one for key, steps in known for step, one in steps._calls.items()}

    first, second = bound(), bound()
    assert list(first) == [((False, size), step) for step, size in enumerate(SIZES)]
    assert all(first[key] is second[key] for key in first)


@pytest.mark.parametrize("reverse", [False, True])
def test_lengths_share_their_bound_steps(
    reverse: bool, bind: Bind, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net.create(booted(reverse=reverse))
    scope = Scope()
    most = 3 * step_calls.LONG

    def run(net: Net, scope: Scope, lengths: list[int]) -> list[bytes]:
        fill(scope, values(lengths))
        net.run(scope, OpContext(live_out=["ys", "last"], seed=1))
        return [scope.get(name).numpy().tobytes() for name in ("ys", "last")]

    run(net, scope, [most, most])
    bound: list[int] = []
    bind_step = loop._StepBinder.bind
    monkeypatch.setattr(
        loop._StepBinder, "bind", lambda self, step: bound.append(step) or bind_step(self, step)
    )
    for steps in (1, 7, step_calls.LONG, step_calls.LONG + 1, most - 1, most):
        found = run(net, scope, [steps, steps])
        assert not bound
        assert found == run(Net.create(booted(reverse=reverse)), Scope(), [steps, steps])
        bound.clear()
    for lengths in ([5, 2], [most - 3, 20], [1, most], [20, 18]):
        found = run(net, scope, lengths)
        assert len(bound) <= max(lengths)  # with gaps steps have other arrays
        bound.clear()
        run(net, scope, lengths)
        assert not bound
        assert found == run(Net.create(booted(reverse=reverse)), Scope(), lengths)
        bound.clear()


def test_bound_steps_are_bounded(bind: Bind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_MOST_OPERATORS", 4)
    arena = context_of(bind(booted(), values())).arena
    for size in (1, 2, 3):
        known = arena.frames.get_or_make((False, size), lambda: StepCalls(9, False))
        for step in range(size):
            known.put(step, [nothing])
    arena.trim()
    # that of two steps is too many; the older one has room again
    assert [key for key, _ in arena.frames.items()] == [(False, 1), (False, 3)]
    for step in range(9):
        known.put(step, [nothing])
    arena.trim()
    assert len(arena.frames) == 1  # the last one stays, however long it is


def test_sums_over_steps_begin_with_zero(bind: Bind) -> None:
    desc = booted(
        sums={"total": "t"}, more=[("reduce_max", {"x": "p"}, {"out": "t"}, {"axes": [0]})]
    )
    binding = bind(desc, values(), ["total"])
    assert not context_of(binding).analysis.phases.sums  # the largest of a step is no sum of rows
    (total,) = binding.sums
    total[...] = 7
    sums = StepSums(binding, done=())
    run_all(sums.first_calls())
    given = {"t": WholeArray(np.array([1.0, 2.0, 3.0]))}
    for step in range(3):
        run_all(sums.calls(step, given))
    assert total.tolist() == [3.0, 6.0, 9.0] and not sums.last_calls()
    assert not StepSums(binding, done=["t"]).first_calls()


def test_the_gradient_of_weights_is_one_product_over_all_rows(bind: Bind) -> None:
    given = values()
    net = with_loss(booted(), given, ["ys"])
    grads = net.add_backward_ops("loss", ["w"])
    binding = bind(net, given, [grads["w"]], gradient=True)
    assert binding.saved is not None and {"h", "p"} & set(binding.saved_names)
    context = context_of(binding)
    phases = context.analysis.phases
    (name,) = phases.sums
    assert name in {made for op in phases.post for made in op.output_vars()}
    (total,) = binding.sums
    wanted = total.copy()
    made = bind_recurrent(binding, OPTIONS)
    total[...] = 0
    run_all([*made.early, *made.arena.prepared.calls(), *made.late])
    np.testing.assert_allclose(total, wanted, rtol=1e-12)


def test_variables_that_share_memory(bind: Bind) -> None:
    arena = context_of(bind(booted(), values())).arena
    slots = SlotRanges(make_schedule(offsets_of(LENGTHS)), arena.room)
    spec = ((3, 4), np.dtype("float64"))
    specs = dict.fromkeys("gsmn", spec)
    base = StepValues(slots.slices(arena.slots("g", (4,), spec[1])))
    columns = {"left": ("s", 0, 1), "a": ("m", 0, 2), "b": ("m", 2, 4), "c": ("n", 1, 3)}
    sharing = Sharing([], {"s": "g"}, columns)
    found = shared_values(sharing, {"g": base}, specs, {"b"}, arena, slots)
    assert found.keys() == {"s", "left", "m", "a", "b", "n", "c"}
    assert found["s"].slots is base.slots
    assert np.shares_memory(found["left"].at(1), base.at(1))
    assert isinstance(found["m"].slots, StepSlices)  # a part of it is read after the loop
    assert isinstance(found["n"].slots, DoubleBuffer)  # nobody reads it after its step
    assert found["n"].at(0).ctypes.data == found["n"].at(1).ctypes.data
    found["m"].at(2)[...] = [[1, 2, 3, 4]]
    assert found["a"].at(2).tolist() == [[1, 2]] and found["b"].at(2).tolist() == [[3, 4]]


# -- all stages ------------------------------------------------------------------------------------


def test_a_forward_run_saves_nothing(bind: Bind) -> None:
    binding = bind(booted(), values())
    made = bind_recurrent(binding, OPTIONS)
    assert binding.steps is None and made.arena is not None
    assert not made.saved.values and made.saved.arena is None


def test_no_step_at_all(bind: Bind) -> None:
    given = values([0, 0])
    binding = bind(booted(), given, ["last"])
    made = bind_recurrent(binding, OPTIONS)
    assert made.arena is None and not made.saved
    run_all([*made.early, *made.late])
    np.testing.assert_array_equal(binding.final_states[0], given["boot"])


def test_what_is_saved_is_what_the_gradient_reads(bind: Bind) -> None:
    given = values()
    net = with_loss(booted(), given, ["ys"])
    net.add_backward_ops("loss", ["w"])
    binding = bind(net, given, ["loss"])
    assert binding.steps is not None and binding.to_save is not None
    inside = binding.to_save & {*binding.step.given, *binding.step.writes}
    assert inside == {"h", "p", "w"}
    made = bind_recurrent(binding, OPTIONS)
    assert made.saved.values.keys() == inside and made.saved.arena is made.arena
    run_all([*made.early, *made.arena.prepared.calls(), *made.late])
    for step, wanted in enumerate(expected(given)[0]):
        np.testing.assert_allclose(made.saved.values["h"].at(step), wanted, rtol=1e-12)


def test_saved_steps_hold_shapes_of_what_is_not_saved(bind: Bind) -> None:
    given = values()
    net = with_loss(booted(), given, ["ys"])
    net.add_backward_ops("loss", ["w"])
    context = context_of(bind(net, given, ["loss"]))
    memories = bind_memories(context, {})
    saved = saved_steps(context, memories.values, [], [])
    assert saved.values.keys() == {"h", "p"} and not saved and not saved.ragged
    assert saved.specs["s"][0][1:] == (3,) and "s" in saved.rows and "w" not in saved.rows


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_chunks_give_the_same_numbers(bind: Bind, reverse: bool, length: int) -> None:
    binding = bind(booted(reverse=reverse), values(), ["ys", "last"])
    wanted = [array.copy() for array in (*binding.outputs, *binding.final_states)]
    for array in (*binding.outputs, *binding.final_states):
        array[...] = 0
    ChunkedProgram(binding, OPTIONS, length)()
    found = (*binding.outputs, *binding.final_states)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


CUTS: dict[str, list[Any]] = {
    "none": [("add", {"x": "x", "y": "b"}, {"out": "s"})],
    # As the gates of a GRU.
    "columns": [
        ("split", {"x": "x"}, {"out": ["left", "right"]}, {"axis": -1}),
        ("mul", {"x": "left", "y": "b"}, {"out": "gated"}),
        ("add", {"x": "gated", "y": "right"}, {"out": "s"}),
    ],
    # A matrix is cut in one way: the other cut is made once, before the loop.
    "two ways": [
        ("split", {"x": "x"}, {"out": ["left", "right"]}, {"axis": -1}),
        ("split", {"x": "x"}, {"out": ["l", "m", "r"]}, {"axis": -1, "sections": [1, 3, 2]}),
        ("mul", {"x": "left", "y": "b"}, {"out": "gated"}),
        ("add", {"x": "m", "y": "right"}, {"out": "both"}),
        ("add", {"x": "gated", "y": "both"}, {"out": "s"}),
    ],
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sequences", [1, 3])
def test_other_lengths_go_through_no_stage(
    sequences: int, reverse: bool, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where sequences are equally long and the loop alone is left: equal in every bit."""
    desc = rnn(
        [
            ("exp", {"x": "w"}, {"out": "e"}),
            ("matmul", {"x": "p", "y": "e"}, {"out": "b"}),
            *CUTS[cut],
            ("tanh", {"x": "s"}, {"out": "h"}),
            ("add", {"x": "h", "y": "q"}, {"out": "sum"}),
        ],
        ins={"xs": "x"},
        outs={"ys": "h", "zs": "sum"},
        statics={"w": "w"},
        memories=[
            {"state": "h", "previous": "p", "boot": "boot", "final": "last"},
            {"state": "sum", "previous": "q", "boot_value": 0.5, "final": "total"},
        ],
        shapes={"p": [-1, 3], "q": [-1, 3]},
        reverse=reverse,
    )
    wanted = ["ys", "zs", "last", "total"]

    def run(net: Net, scope: Scope, lengths: list[int]) -> list[bytes]:
        rng = np.random.default_rng(sum(lengths))
        columns = 3 if cut == "none" else 6
        xs, boot = packed(rng, lengths, columns), rng.normal(size=(len(lengths), 3))
        fill(scope, {"xs": xs, "w": values()["w"], "boot": boot})
        net.run(scope, OpContext(live_out=wanted, seed=1))
        return [scope.get(name).numpy().tobytes() for name in wanted]

    most = 2 * step_calls.LONG
    net, scope = Net.create(desc), Scope()
    run(net, scope, [most] * sequences)
    made: list[RecurrentBinding] = []
    make_program = recurrent_operators.make_program
    monkeypatch.setattr(
        recurrent_operators, "make_program", lambda b: made.append(b) or make_program(b)
    )
    one_length = [[n] * sequences for n in (1, 2, most - 1, step_calls.LONG, 5, 2)]
    others = [[most + 1] * sequences, [3] * (sequences + 1), [2] * sequences + [7], [0] * sequences]
    for lengths in (*one_length, *others):
        made.clear()
        found = run(net, scope, lengths)
        # Without native code, what depends on static links is a call of Python.
        is_bound = lengths in others or team.library() is None
        assert cut == "two ways" or bool(made) == is_bound
        assert found == run(Net.create(desc), Scope(), lengths)
