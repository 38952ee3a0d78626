"""Fused loops by the interpreter of the native library beside compiled ones: how much longer?

    python benchmarks/chains.py [--dtype float32,float64] [--cpu avx2] [--only relu] [--compiler cc]

Both compute the same bits, on one thread, in turn; the least CPU time of several rounds counts. The
first ratio is that of arrays which lie in the second cache together, then of arrays in memory, then
of narrow columns of matrices, as the gates of a small recurrent net are (the time of calls counts).
A line whose first ratio is above the limit ends with a mark; loops that call functions come last.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

LIMIT = 1.3
BYTES = {"L2": 400_000, "memory": 60_000_000, "gates": 80_000}
"""What the arrays of a loop take together."""
COLUMNS, GATE = 500, 96
ROUNDS = 9
SECONDS = 0.002  # of a round
# Chains of three operators or more: inputs (x: an array, r: a row, c: a column, 1: a number), the
# formulas over them and over the values before them, and how many of the last values are stored.
LOOPS = {
    "a + b c": ("x x x", "x0 + x1 * x2", 1),
    "a b + c d": ("x x x x", "x0 * x1 + x2 * x3", 1),
    "lerp": ("x x x", "x0 + (x1 - x0) * x2", 1),
    "(a - x) y": ("x x 1 1", "(x2 - x0) * x1; v0 * x3", 1),
    "cubic": ("x 1 1 1", "((0.5 * x0 + x1) * x0 + x2) * x0 + x3", 1),
    "quotient": ("x x x", "(x0 + x1) * (x0 - x1) / x2", 1),
    "gated mix": ("x x x", "(1 - x0) * x1 + x0 * x2", 1),
    "scaled error": ("x x 1", "2 * (x0 - x1) * x2", 1),
    "error squared": ("x x x", "x0 - x1; v0 * v0; v1 * x2", 1),
    "bias relu scale": ("x r 1", "x0 + x1; v0 > 0 ? v0 : 0; v1 * x2", 1),
    "residual relu": ("x r x", "x0 + x1 + x2; v0 > 0 ? v0 : 0", 1),
    "product relu": ("x x x", "x0 * x1 + x2; v0 > 0 ? v0 : 0", 1),
    "batch norm": ("x r r r r", "(x0 - x1) * x2 * x3 + x4", 1),
    "batch norm of columns": ("x c c c", "(x0 - x1) * x2 + x3", 1),
    "norm gradient": ("x x c c c", "(x0 - x2 - x1 * x3) * x4", 1),
    "leaky relu": ("x", "x0 > 0 ? x0 : 0.01 * x0", 1),
    "leaky relu gradient": ("x x", "x0 > 0 ? x1 : 0.01 * x1", 1),
    "bias leaky relu": ("x r", "x0 + x1; v0 > 0 ? v0 : 0.01 * v0", 1),
    "relu6 gradient": ("x x", "x0 > 0 && x0 < 6 ? x1 : 0", 1),
    "hard sigmoid": ("x", "0.2 * x0 + 0.5; v0 < 0 ? 0 : v0 > 1 ? 1 : v0", 1),
    "hard swish": ("x", "x0 + 3; v0 < 0 ? 0 : v0 > 6 ? 6 : v0; x0 * v1 / 6", 1),
    "softsign": ("x", "x0 / (1 + fabs(x0))", 1),
    "softsign gradient": ("x x", "1 + fabs(x0); x1 / (v0 * v0)", 1),
    "tanh gradient": ("x x x", "x0 * (1 - x1 * x1) + x2", 1),
    "sigmoid gradient": ("x x", "x0 * x1 * (1 - x1)", 1),
    "Huber": ("x x", "x0 - x1; fabs(v0); v1 < 1 ? 0.5 * v0 * v0 : v1 - 0.5", 1),
    "Huber gradient": ("x x x", "x0 - x1; x2 * (v0 > 1 ? 1 : v0 < -1 ? -1 : v0)", 1),
    "masked": ("x x x", "x0 != 0 ? x1 * 0.5 : x2", 1),
    "momentum": ("x x x", "0.9 * x1 + x0; x2 - 0.01 * v0", 2),
    "Nesterov": ("x x x", "0.9 * x1 + x0; x2 - 0.01 * (x0 + 0.9 * v0)", 2),
    "AdaGrad": ("x x x", "x1 + x0 * x0; x2 - 0.01 * x0 / (sqrt(v0) + 0.00000001)", 2),
    "Adam": (
        "x x x x",
        "0.9 * x1 + 0.1 * x0; 0.999 * x2 + 0.001 * x0 * x0;"
        " x3 - 0.01 * v0 / (sqrt(v1) + 0.00000001)",
        3,
    ),
    "swish": ("x x", "x0 + x1; v0 / (1 + exp(-v0)); v1 * x1", 1),
    "elu": ("x x", "x0 + x1; v0 < 0 ? 0.7 * (exp(v0) - 1) : v0; v1 * x0", 1),
    "gelu": ("x", "0.5 * x0 * (1 + tanh(0.79788456 * (x0 + 0.044715 * x0 * x0 * x0)))", 1),
    "LSTM": (
        "x x x x x",
        "1 / (1 + exp(-x0)); 1 / (1 + exp(-x1)); 1 / (1 + exp(-x2)); tanh(x3);"
        " v1 * x4 + v0 * v3; v2 * tanh(v4)",
        2,
    ),
}


def loop_of(name: str, dtype: str) -> Any:
    from opscope.framework.fusion.scalars.codegen import COLUMN, FULL, ONE, ROW, Loop, Operand
    from opscope.framework.fusion.scalars.expression import parse

    inputs, formulas, stored = LOOPS[name]
    kinds = [{"x": FULL, "r": ROW, "c": COLUMN, "1": ONE}[one] for one in inputs.split()]
    values = tuple(parse(one.strip()) for one in formulas.split(";"))
    operands = tuple(Operand(kind, dtype) for kind in (*kinds, *[FULL] * stored))
    first = len(values) - stored
    stores = tuple((len(kinds) + i, f"v{first + i}") for i in range(stored))
    return Loop(dtype, operands, values, stores)


def call_of(program: Any, place: str) -> tuple[Callable[[], Any], int]:
    """A call of a loop over arrays in a place, and how many elements they have."""
    from opscope.framework.fusion import chains
    from opscope.framework.fusion.scalars.codegen import COLUMN, FULL, ROW

    loop = program.loop
    full = sum(operand.kind == FULL for operand in loop.operands)
    count = BYTES[place] // full // np.dtype(loop.dtype).itemsize
    flat = not any(operand.kind in (ROW, COLUMN) for operand in loop.operands)
    columns = GATE if place == "gates" else count if flat else COLUMNS
    rows = max(count // columns, 1)
    step = 2 * columns if place == "gates" else columns
    rng = np.random.default_rng(0)
    sizes = {FULL: rows * step, ROW: columns, COLUMN: rows}
    steps = {FULL: step, COLUMN: 1}
    operands = []
    for operand in loop.operands:
        array = rng.normal(size=sizes.get(operand.kind, 1)).astype(loop.dtype)
        operands.append((array, steps.get(operand.kind, 0)))
    block = chains.argument(program, (rows, columns), operands)
    return chains.task(loop, block), rows * columns


def seconds(program: Any, compiled: int, place: str) -> tuple[float, float]:
    """CPU time of an element by the interpreter and compiled."""
    call, count = call_of(program, place)
    best = {0: 1e9, compiled: 1e9}
    repeats = 1
    while True:
        for side in best:
            program.use(side)
            begin = time.thread_time()
            for _ in range(repeats):
                call()
            best[side] = (time.thread_time() - begin) / repeats
        if best[compiled] * repeats > SECONDS:
            break
        repeats = max(
            repeats + 1, int(repeats * min(10, 1.2 * SECONDS / (best[compiled] * repeats)))
        )
    for _ in range(ROUNDS):
        for side in best:
            program.use(side)
            begin = time.thread_time()
            for _ in range(repeats):
                call()
            best[side] = min(best[side], (time.thread_time() - begin) / repeats)
    program.use(0)
    return best[0] / count, best[compiled] / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="float32,float64")
    parser.add_argument("--cpu", default="")
    parser.add_argument("--only", default="", help="part of the names")
    parser.add_argument("--compiler", default="")
    parser.add_argument("--where", default=",".join(BYTES))
    args = parser.parse_args()
    os.environ["OPSCOPE_THREADS"] = "1"
    if args.cpu:
        os.environ["OPSCOPE_CPU"] = args.cpu
    from opscope.framework.fusion import chains
    from opscope.framework.fusion.compiled import c_source, compiler
    from opscope.framework.fusion.compiled.libraries import find_compiler

    found = find_compiler(args.compiler)
    if found is None:
        parser.error("there is no C compiler")
    chains.HOT_WORK = 1 << 62
    places = args.where.split(",")
    for dtype in args.dtype.split(","):
        names = [name for name in LOOPS if args.only in name]
        programs = [chains.program(loop_of(name, dtype)) for name in names]
        texts = (c_source.c_source(one.loop, *one.tables) for one in programs)
        library = compiler._library(found, "\n".join([c_source.c_prelude(), *texts]))
        ratios: dict[str, list[float]] = {place: [] for place in places}
        heads = "  ".join(f"{place:>16s}" for place in places)
        print(f"{dtype:24s} {heads}   interpreted / compiled (ns of an element, compiled)")
        for name, program in zip(names, programs, strict=True):
            compiled = library.addresses[c_source.c_function_name(program.loop)]
            line = ""
            for place in places:
                ours, theirs = seconds(program, compiled, place)
                ratios[place].append(ours / theirs)
                line += f"  {ours / theirs:6.2f} ({theirs * 1e9:7.3f})"
            print(f"{name:24s} {line}{' *' if ratios[places[0]][-1] > LIMIT else ''}", flush=True)
        means = "  ".join(
            f"{float(np.exp(np.mean(np.log(r)))):6.2f}          " for r in ratios.values()
        )
        print(f"{'mean':24s}   {means}")
        over = {place: sum(r > LIMIT for r in each) for place, each in ratios.items()}
        print(f"above {LIMIT} of {len(names)}: {over}\n")


if __name__ == "__main__":
    main()
