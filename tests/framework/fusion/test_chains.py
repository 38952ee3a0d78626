"""Loops by their interpreter: the bits of compiled ones, wherever an element stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from opscope.framework.base.cpu import threads
from opscope.framework.base.errors import ArgumentError
from opscope.framework.fusion import chains
from opscope.framework.fusion.compiled import arguments, c_source, compiler
from opscope.framework.fusion.compiled.libraries import find_compiler
from opscope.framework.fusion.scalars.codegen import COLUMN, FULL, ONE, ROW, Graph, Loop, Operand
from opscope.framework.fusion.scalars.expression import FUNCTIONS, Tree, parse, replace_names
from scalar_loops import task_of_loop

pytestmark = pytest.mark.skipif(not chains.available(), reason="there is no native library")

_KINDS = (FULL, ROW, COLUMN, ONE)
_SHAPES = (1, 1), (3, 37), (2, 700), (70, 5), (133, 10), (7, 64), (3, 0), (0, 5)
_SIGNS = "+ - * / < > <= >= == != && ||".split()
DIRECT = {
    **dict.fromkeys(("x0", "x0 + x1", "x0 - x1", "x1 - x0", "x0 * x1"), True),
    **dict.fromkeys(("x0 / x1", "x0 + 1", "x0 * x1 + x0", "-x0"), False),
}
"""Loops over arrays, and whether they are one operation that has a loop of its own."""


def random_tree(rng: np.random.Generator, names: list[str], depth: int) -> Tree:
    """A tree over some variables, of any operations."""
    if depth == 0 or rng.random() < 0.1:
        if rng.random() < 0.2:
            return ("num", float(rng.choice([0.0, -0.0, 1.0, 0.3, np.inf, np.nan])))
        return ("var", str(rng.choice(names)))

    def below() -> Tree:
        return random_tree(rng, names, depth - 1)

    kind = int(rng.integers(6))
    if kind == 0:
        return ("unary", str(rng.choice(["-", "+", "!"])), below())
    if kind == 1:
        return ("choose", below(), below(), below())
    if kind == 2:
        name = str(rng.choice(list(FUNCTIONS)))
        return ("call", name, *(below() for _ in range(FUNCTIONS[name])))
    if kind == 3:
        return ("sum", below(), below(), below())
    # Truth values are integers in C, whose quotients by zero end the process.
    left, right = (("binary", "+", one, ("num", 0.5)) for one in (below(), below()))
    return ("binary", str(rng.choice(_SIGNS)), left, right)


def random_loops(dtype: str, count: int) -> Iterator[Loop]:
    """Loops of three values each over operands of all kinds, that store the first and the last."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        kinds = [FULL, *(str(kind) for kind in rng.choice(_KINDS, 2))]
        names = [f"x{i}" for i in range(len(kinds))]
        values = []
        for number in range(3):
            values.append(random_tree(rng, names, 3))
            names.append(f"v{number}")
        operands = tuple(Operand(kind, dtype) for kind in (*kinds, FULL, FULL))
        yield Loop(dtype, operands, tuple(values), ((3, "v0"), (4, "v2")))


def arrays_of(loop: Loop, rows: int, columns: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = {FULL: (rows, columns), ROW: (columns,), COLUMN: (rows,), ONE: (1,)}
    found = [rng.normal(size=shapes[operand.kind]) * 2 for operand in loop.operands]
    return [array.astype(loop.dtype) for array in found]


def run(loop: Loop, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The results, which lie over nothing that is given."""
    own = [array.copy() for array in arrays]
    with np.errstate(all="ignore"):
        task_of_loop(loop, own)()
    return [own[operand] for operand, _ in loop.stores]


def lstm_cell(dtype: str) -> Loop:
    """The gates of an LSTM and its state; functions read registers and memory."""
    texts = (
        "1 / (1 + exp(-(x0 + x4 * x5))); 1 / (1 + exp(-x1)); tanh(x2);"
        "exp(v1) * x4 + v0 * v2; 1 / (1 + exp(-(x3 + v3 * x5))) * tanh(v3)"
    )
    operands = [Operand(kind, dtype) for kind in (*[FULL] * 5, ROW, FULL, FULL)]
    values = tuple(parse(one.strip()) for one in texts.split(";"))
    return Loop(dtype, tuple(operands), values, ((6, "v3"), (7, "v4")))


def scaled_squares(dtype: str) -> Loop:
    """Products of what registers hold with itself, and a number or an array."""
    texts = "x0 - x1", "fabs(v0) < 1 ? 0.5 * v0 * v0 : fabs(v0) - 0.5", "x1 * v0 * v0 + v1"
    operands = (Operand(FULL, dtype),) * 4
    return Loop(dtype, operands, tuple(map(parse, texts)), ((2, "v1"), (3, "v2")))


@pytest.mark.skipif(find_compiler("") is None, reason="there is no C compiler")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compiled_loops_give_the_same_bits(dtype: str) -> None:
    special = lstm_cell(dtype), scaled_squares(dtype)
    loops = {loop.key: loop for loop in (*random_loops(dtype, 60), *special)}
    programs = [chains.program(loop) for loop in loops.values()]
    texts = (c_source.c_source(one.loop, *one.tables) for one in programs)
    library = compiler._library(str(find_compiler("")), "\n".join([c_source.c_prelude(), *texts]))
    for program, loop in zip(programs, loops.values(), strict=True):
        for shape in _SHAPES:
            arrays = arrays_of(loop, *shape)
            program.use(0)
            wanted = run(loop, arrays)
            program.use(library.addresses[c_source.c_function_name(loop)])
            for one, other in zip(run(loop, arrays), wanted, strict=True):
                np.testing.assert_array_equal(one, other, err_msg=str(loop.values))
                assert (np.signbit(one) == np.signbit(other))[~np.isnan(other)].all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_value_does_not_depend_on_its_place(dtype: str) -> None:
    """Functions have other last bits for vectors than for single numbers."""
    functions = [name for name in FUNCTIONS if FUNCTIONS[name] == 1]
    values = tuple(("call", name, ("var", "x0")) for name in functions)
    stores = tuple((i + 1, f"v{i}") for i in range(len(values)))
    loop = Loop(dtype, (Operand(FULL, dtype),) * (len(values) + 1), values, stores)
    numbers = np.random.default_rng(0).uniform(-3, 3, 331)
    for size in (331, 128, 100, 7, 1):
        given = numbers[:size].astype(dtype)
        wanted = run(loop, [given, *[np.zeros(size, dtype)] * len(values)])
        back = run(loop, [given[::-1].copy(), *[np.zeros(size, dtype)] * len(values)])
        for name, one, other in zip(functions, wanted, back, strict=True):
            np.testing.assert_array_equal(one, other[::-1], err_msg=name)


def test_parts_of_threads_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 8)
    values = parse("tanh(x0) * x1"), parse("v0 / (1 + exp(-v0))")
    operands = tuple(Operand(kind, "float32") for kind in (FULL, ROW, FULL))
    loop = Loop("float32", operands, values, ((2, "v1"),))
    for shape in ((1, 100_003), (1003, 97)):
        arrays = arrays_of(loop, *shape)
        found = []
        for count in (1, 3):
            with threads.threads_set(count):
                found += run(loop, arrays)
        np.testing.assert_array_equal(*found)


def test_results_lie_over_what_is_read() -> None:
    """All reads of an element come before the first write, of whatever operands share memory."""
    operands = (Operand(FULL, "float32"),) * 4
    values = parse("x0 + x1"), parse("exp(x0) - x1")
    loop = Loop("float32", operands, values, ((2, "v0"), (3, "v1")))
    x, y = arrays_of(loop, 3, 211)[:2]
    wanted = run(loop, [x, y, x, y])
    task_of_loop(loop, [x, y, x, y])()
    np.testing.assert_array_equal([x, y], wanted)
    swap = Loop("float32", operands, (parse("x0"), parse("x1")), ((2, "v1"), (3, "v0")))
    before = [x.copy(), y.copy()]
    task_of_loop(swap, [x, y, x, y])()
    np.testing.assert_array_equal([y, x], before)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_any_width(dtype: str) -> None:
    """Blocks of 8, 4, 2 and 1 vectors and a part of one make up a row: of columns of a matrix, in
    place or not, nothing beside them is written."""
    operands = (Operand(FULL, dtype),) * 3
    loop = Loop(dtype, operands, (parse("2 * (x0 - x1)"), parse("v0 * v0 + x1")), ((2, "v1"),))
    rng = np.random.default_rng(0)
    lanes = 64 // np.dtype(dtype).itemsize
    for width in (*range(1, 21 * lanes, lanes), *range(lanes, 21 * lanes, lanes)):
        x, y, z = rng.normal(size=(3, 3, width + 5)).astype(dtype)
        wanted = y[:, :width] + (2 * (x[:, :width] - y[:, :width])) ** 2
        for out in (z, y):
            before = out[:, width:].copy()
            columns = [(array[:, :width], width + 5) for array in (x, y, out)]
            block = chains.argument(chains.program(loop), (3, width), columns)
            chains.task(loop, block)()
            np.testing.assert_array_equal(out[:, :width], wanted, err_msg=str(width))
            np.testing.assert_array_equal(out[:, width:], before, err_msg=str(width))


@pytest.mark.parametrize("text, is_direct", DIRECT.items(), ids=DIRECT)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_programs_of_one_operation_are_loops_of_their_own(
    dtype: str, text: str, is_direct: bool
) -> None:
    """Of rows that follow each other, of columns of a matrix, of one row again and again; in
    place."""
    rng = np.random.default_rng(0)
    for kind in (FULL, ROW):
        operands = tuple(Operand(one, dtype) for one in (FULL, kind, FULL))
        program = chains.program(Loop(dtype, operands, (parse(text),), ((2, "v0"),)))
        assert program is not None
        assert bool(program.block.struct.direct) == is_direct
        for rows, columns, beside in ((0, 3, 0), (1, 0, 0), (1, 1, 2), (5, 67, 0), (3, 48, 9)):
            step = columns + beside
            x, y, z = rng.normal(size=(3, rows, step)).astype(dtype)
            y = y if kind == FULL else rng.normal(size=step).astype(dtype)
            given = {"x0": x[:, :columns].copy(), "x1": y[..., :columns].copy()}
            wanted = np.broadcast_to(eval(text, given), (rows, columns))
            for out in (z, x):
                rest = out[:, columns:].copy()
                placed = (x, step), (y, step if kind == FULL else 0), (out, step)
                block = chains.argument(program, (rows, columns), placed)
                chains.task(program.loop, block)()
                np.testing.assert_array_equal(out[:, :columns], wanted)
                np.testing.assert_array_equal(out[:, columns:], rest)


def test_numbers_are_read_in_each_run() -> None:
    """What a program knows of its numbers before a run are those of its text alone."""
    operands = tuple(Operand(kind, "float32") for kind in (FULL, ONE, COLUMN, FULL))
    loop = Loop("float32", operands, (parse("x0 * (x1 + 2) + x2 * 0.5"),), ((3, "v0"),))
    program, (x, one, column, out) = chains.program(loop), arrays_of(loop, 3, 21)
    assert program is not None
    placed = zip((x, one, column, out), (21, 0, 1, 21), strict=True)
    call = chains.task(loop, chains.argument(program, (3, 21), placed))
    for number in (0.25, -3.0):
        one[0] = number
        column += 1
        call()
        np.testing.assert_array_equal(out, x * np.float32(number + 2) + column[:, None] * 0.5)


@pytest.mark.parametrize("sign", "< > <= >= == !=".split())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_choices_by_comparisons(dtype: str, sign: str) -> None:
    """What is compared and chosen may be in registers, in memory or a number, which is a step of
    its own each; with NaN, of which all comparisons but one are false."""
    texts = "x0", "x2", "0.25", "x1 * 2", "fabs(x0)"
    chosen = [
        (left, right, then, otherwise)
        for left in ("x0", "v0")
        for right in ("x1", "0.5", left)
        for then in (*texts, "v0")
        for otherwise in texts
        if then != otherwise
    ]
    for start in range(0, len(chosen), 50):
        some = chosen[start : start + 50]
        values = [parse("x0 + x2")]
        values += [parse(f"{a} {sign} {b} ? {then} : {other}") for a, b, then, other in some]
        operands = (Operand(FULL, dtype),) * (3 + len(some))
        stores = tuple((3 + i, f"v{1 + i}") for i in range(len(some)))
        loop = Loop(dtype, operands, tuple(values), stores)
        arrays = arrays_of(loop, 3, 89)
        arrays[0][0, ::5], arrays[1][1, ::7] = np.nan, np.nan
        arrays[1][2, ::2] = arrays[0][2, ::2]
        known = {"x0": arrays[0], "x1": arrays[1], "x2": arrays[2], "fabs": np.abs}
        known["v0"] = arrays[0] + arrays[2]
        for found, (left, right, then, otherwise) in zip(run(loop, arrays), some, strict=True):
            truth, a, b = (
                np.broadcast_to(eval(text, known), (3, 89))
                for text in (f"{left} {sign} {right}", then, otherwise)
            )
            wanted = np.where(truth, a, b)
            np.testing.assert_array_equal(
                found, wanted, err_msg=f"{left} {right} {then} {otherwise}"
            )


@pytest.mark.parametrize("sign", "< > <= >=".split())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_choices_whose_step_computes_a_branch(dtype: str, sign: str) -> None:
    """What is compared and scaled is in registers, beside them or in memory; numbers stand on
    either side; and sizes of which a bound is taken, as Huber's loss does."""
    texts = [
        f"{bound} ? {then} : {then} * 0.3"
        for one in ("x0", "v0", "v1")
        for bound in (f"{one} {sign} 0.25", f"0.25 {sign} {one}")
        for then in ("x0", "x1", "v0", "v1")
    ]
    texts += [
        f"fabs({one}) {sign} 0.5 ? {then} : fabs({one}) - 0.25"
        for one in ("x0", "v0", "(x0 - v1)")
        for then in ("x1", "0.75", "v1", "v0 * v0", f"{one} * {one}")
    ]
    for text in texts:
        values = parse("x0 * x1"), parse("x0 + x1"), parse(text), parse("v2 + v0 * v1")
        loop = Loop(dtype, (Operand(FULL, dtype),) * 4, values, ((2, "v2"), (3, "v3")))
        program = chains.program(loop)
        assert program is not None
        steps = [one["operation"] for one in chains._steps_of(loop, program.library).steps]
        joined = text.startswith("fabs") and sign in ("<", "<=") or "* 0.3" in text
        assert any("scaled" in one or "shrunk" in one for one in steps) == joined, text
        arrays = arrays_of(loop, 3, 389)
        arrays[0][0, ::5], arrays[1][1, ::7] = np.nan, np.nan
        x0, x1 = arrays[:2]
        known = {"x0": x0, "x1": x1, "v0": x0 * x1, "v1": x0 + x1, "fabs": np.abs}
        truth, branches = text.split(" ? ")
        then, other = (eval(one, known) for one in branches.split(" : "))
        wanted = np.where(eval(truth, known), then, other).astype(dtype)
        found = run(loop, arrays)
        np.testing.assert_array_equal(found[0], wanted, err_msg=text)
        np.testing.assert_array_equal(found[1], wanted + x0 * x1 * (x0 + x1), err_msg=text)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_are_longer_than_buffers(dtype: str) -> None:
    """More values wait than there are blocks of registers, in rows of any length."""
    count = 12
    values = [parse(f"x0 * {i + 1} + x1") for i in range(count)]
    values.append(parse(" + ".join(f"v{i} * v{(5 * i + 3) % count}" for i in range(count))))
    operands = tuple(Operand(kind, dtype) for kind in (FULL, COLUMN, FULL, FULL))
    loop = Loop(dtype, operands, tuple(values), ((2, f"v{count}"), (3, "v0")))
    program = chains.program(loop)
    assert program is not None
    assert program.block.struct.buffers > 4
    for rows, columns in ((1, 40_000), (3, 5003), (2, 1024), (5, 1030)):
        arrays = arrays_of(loop, rows, columns)
        parts = [arrays[0] * (i + 1) + arrays[1][:, None] for i in range(count)]
        wanted = parts[0] * parts[3]
        for i in range(1, count):
            wanted = wanted + parts[i] * parts[(5 * i + 3) % count]
        found = run(loop, arrays)
        np.testing.assert_array_equal(found[0], wanted)
        np.testing.assert_array_equal(found[1], parts[0])


def test_a_number_that_is_also_a_factor_takes_no_buffer() -> None:
    """In n - v * n, where v waits in a buffer for the last time."""
    operands = (Operand(FULL, "float32"), Operand(ONE, "float32"), Operand(FULL, "float32"))
    loop = Loop(
        "float32", operands, (parse("exp(x0)"), parse("tanh(v0) * (x1 - v0 * x1)")), ((2, "v1"),)
    )
    x, n = np.linspace(-1, 1, 99, dtype=np.float32), np.full(1, 0.5, np.float32)
    v = np.exp(x)
    np.testing.assert_allclose(
        run(loop, [x, n, x])[0], np.tanh(v) * (n - v * n), rtol=1e-6, atol=1e-7
    )


def test_a_loop_that_reads_what_it_is_not_given_has_no_program() -> None:
    bad = Loop("float32", (Operand(FULL, "float32"),), (("var", "nowhere"),), ((0, "v0"),))
    assert chains.program(bad) is None


@pytest.mark.parametrize("low, high", [(0.0, 6.0), (-0.0, 0.0), (2.0, -2.0), (-np.inf, np.inf)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_limits_are_what_the_choices_say(low: float, high: float, dtype: str) -> None:
    given = [-np.inf, -3, -2, -0.0, 0.0, 1, 6, 7, np.inf, np.nan]
    x = np.resize(np.array(given, dtype), 1000)
    by = {"low": ("num", low), "high": ("num", high), "x": ("var", "x0")}
    tree = replace_names(parse("x < low ? low : x > high ? high : x"), by)
    loop = Loop(dtype, (Operand(FULL, dtype),) * 2, (tree,), ((1, "v0"),))
    names = [operation.name for operation in Graph(loop).operations]
    assert ("at_least" in names) == (low <= high)
    out = np.empty_like(x)
    program = chains.program(loop)
    assert program is not None
    block = chains.argument(program, (1, x.size), [(x, x.size), (out, x.size)])
    chains.task(loop, block)()
    want = np.where(x < low, low, np.where(x > high, high, x)).astype(dtype)
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(np.signbit(out), np.signbit(want))


def test_arrays_that_do_not_suit_a_loop_are_refused_when_it_is_bound() -> None:
    operands = tuple(Operand(kind, "float32") for kind in (FULL, ROW, COLUMN, ONE, FULL))
    loop = Loop("float32", operands, (parse("x0 * x1 + x2 * x3"),), ((4, "v0"),))
    program, arrays, steps = chains.program(loop), arrays_of(loop, 3, 7), (7, 0, 1, 0, 7)
    assert program is not None
    chains.argument(program, (3, 7), zip(arrays, steps, strict=True))
    fixed = arrays[4].copy()
    fixed.flags.writeable = False
    cases: list[tuple[int, Any]] = [(4, fixed)]
    for number, array in enumerate(arrays):
        short = array.reshape(-1)[:-1]
        cases += [(number, bad) for bad in (short, array.astype(np.float64), array.tolist())]
    for number, bad in cases:
        given = [*arrays[:number], bad, *arrays[number + 1 :]]
        with pytest.raises(ArgumentError, match=f"chains.chain: x{number} wants "):
            chains.argument(program, (3, 7), zip(given, steps, strict=True))


def test_programs_of_codes_and_places_that_are_not_there_are_refused() -> None:
    operands = tuple(Operand(kind, "float32") for kind in (FULL, COLUMN, ONE, FULL))
    loop = Loop("float32", operands, (parse("exp(x0) * x1 + sqrt(x2)"),), ((3, "v0"),))
    program = chains.program(loop)
    assert program is not None
    fields = chains._fields(chains._steps_of(loop, program.library), program.library)

    def bound(**changed: Any) -> None:
        arguments.bind(program.library, "chain_prepare", **fields | changed)

    bound()
    cases = [("steps", name) for name in "operation function x y z w number_x number_y".split()]
    cases += [("operands", "kind"), ("operands", "dtype"), ("head", "function"), ("head", "x")]
    for array, field in cases:
        for number in (-1, 10_000):
            wrong = fields[array].copy()
            wrong[field][0] = number
            with pytest.raises(ArgumentError, match=rf"wants end\({array},'{field}'\) <="):
                bound(**{array: wrong})
    for name in ("registers", "columns"):
        with pytest.raises(ArgumentError, match=rf"wants end\({name}\) <="):
            bound(**{name: fields[name] + 10_000})
    with pytest.raises(ArgumentError, match="steps wants"):
        bound(steps=fields["steps"][:-1])
