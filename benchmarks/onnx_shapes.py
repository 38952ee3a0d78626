"""A model in ever new shapes, beside ONNX Runtime: time of a new shape, memory, results.

    export OPSCOPE_THREADS=1
    python benchmarks/onnx_shapes.py FILE --count 1000 --height 48 --width 64:1063:1
    python benchmarks/onnx_shapes.py FILE --detector

The model has one input, an image, whose sizes are drawn from the ranges. Times are those of a run
in a new shape, and in a known one: the median, CPU time of one thread. The memory is that of a
process that runs opscope alone, after ten shapes, of which one is the largest, and after all. The
error is the median of those of some shapes: where numbers are rounded in another way, a detector
may put its boxes in another order. The results of these shapes are also compared with those of a
model that was just opened. `--detector` writes a net to try it with: it enlarges features to sizes
that nodes compute, makes a place for each box, and drops boxes that overlap.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from onnx_files import cpu_ms, error_of, session_of

import opscope
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import write_model

Shapes = Sequence[Sequence[int]]
"""Of images, in the order in which they come."""
EARLY, COMPARED = 10, 20
"""Shapes after which memory is measured first; shapes whose results are compared."""


def drawn_shapes(count: int, high: range, wide: range) -> list[tuple[int, ...]]:
    """Different shapes in random order; the largest is the first."""
    sizes = list(itertools.product(high, wide))
    order = np.random.default_rng(0).permutation(len(sizes) - 1)[: count - 1]
    return [(1, 3, *size) for size in (sizes[-1], *[sizes[number] for number in order])]


def images(name: str, shapes: Shapes) -> Iterable[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return ({name: rng.uniform(-1, 1, shape).astype(np.float32)} for shape in shapes)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def memory_over(path: Path, name: str, shapes: Shapes) -> tuple[float, float]:
    """MB of this process after some shapes and after all."""
    model = opscope.from_onnx(path)
    found = []
    for number, feed in enumerate(images(name, shapes), 1):
        model.run(feed)
        if number in (EARLY, len(shapes)):
            found.append(resident_mb())
    return found[0], found[-1]


def row(path: Path, count: int, high: range, wide: range) -> str:
    session, model = session_of(path), opscope.from_onnx(path)
    (info,) = session.get_inputs()
    shapes = drawn_shapes(count, high, wide)
    new: dict[str, list[float]] = {"ours": [], "theirs": []}
    known: dict[str, list[float]] = {"ours": [], "theirs": []}
    errors, differ = list[float](), 0
    every = max(1, len(shapes) // COMPARED)
    for number, feed in enumerate(images(info.name, shapes)):
        results: dict[str, Any] = {}
        runs = {"theirs": partial(session.run, None, feed), "ours": partial(model.run, feed)}
        for side, run in runs.items():
            begin = time.process_time()
            results[side] = run()
            new[side].append(time.process_time() - begin)
            if number % every == 0:
                known[side].append(cpu_ms(run, 2))
        if number % every == 0:
            errors.append(error_of(results["ours"], results["theirs"]))
            own = opscope.from_onnx(path).run(feed)
            differ += any(a.tobytes() != own[n].tobytes() for n, a in results["ours"].items())
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        early, late = pool.submit(memory_over, path, info.name, shapes).result()
    # The first shapes also lower the model, and find out what varies.
    warm = EARLY if len(shapes) > EARLY else len(shapes) // 2
    ours, theirs = (float(np.median(new[side][warm:])) * 1e3 for side in ("ours", "theirs"))
    again, theirs_again = (float(np.median(known[side])) for side in ("ours", "theirs"))
    return (
        f"{len(shapes)} shapes, a new one {ours:.2f} ms, {ours / theirs:.2f} of {theirs:.2f};"
        f" a known one {again:.2f} and {theirs_again:.2f}; {early:.0f} MB, {late:.0f} at the end"
        f" ({late / early:.2f}); error {np.median(errors):.1e}; {differ} of {len(errors)} differ"
        " from a plan of their own"
    )


class Detector:
    """A net that finds boxes in images whose sides are multiples of 32."""

    CHANNELS, CLASSES, WIDE = (16, 32, 64, 96, 128), 6, 64

    def __init__(self) -> None:
        self.graph = Graph("detector", 17)
        self._rng = np.random.default_rng(0)
        x = self.graph.input("images", np.float32, [1, 3, "H", "W"])
        levels, channels = [], 3
        for number, wide in enumerate(self.CHANNELS):
            x = self.conv(x, channels, wide, 3, stride=2)
            inner = self.conv(x, wide, wide, 3, groups=wide)
            x = self.graph.node("Add", [x, self.conv(inner, wide, wide, 1)])
            levels += [self.conv(x, wide, self.WIDE, 1)] if number > 1 else []
            channels = wide
        for number in (1, 0):
            levels[number] = self.graph.node(
                "Add", [levels[number], self.as_large(levels[number + 1], levels[number])]
            )
        found = [self.boxes(one, 8 << number) for number, one in enumerate(levels)]
        boxes, scores = (
            self.graph.node("Concat", ones, axis=1) for ones in zip(*found, strict=True)
        )
        by_class = self.graph.node("Transpose", [scores], perm=[0, 2, 1])
        limits = [np.array([100], np.int64), np.array([0.5], "f4"), np.array([0.7], "f4")]
        given = [self.graph.constant(limit) for limit in limits]
        kept = self.graph.node(
            "NonMaxSuppression", [boxes, by_class, *given], outputs=["kept"], center_point_box=1
        )
        place = self.graph.node("Gather", [kept, self.graph.constant(np.int64(2))], axis=1)
        flat = self.graph.node("Squeeze", [boxes, self.graph.ints(0)])
        self.graph.node("Gather", [flat, place], outputs=["found"], axis=0)
        self.graph.output("kept", np.int64, ["K", 3])
        self.graph.output("found", np.float32, ["K", 4])

    def conv(
        self, x: str, channels: int, filters: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> str:
        own = filters, channels // groups, kernel, kernel
        deviation = (2 / (own[1] * kernel * kernel)) ** 0.5
        w = self.graph.constant(self._rng.normal(0, deviation, own).astype("f4"))
        b = self.graph.constant(self._rng.normal(0, 0.1, filters).astype("f4"))
        made = self.graph.node(
            "Conv", [x, w, b], pads=[kernel // 2] * 4, strides=[stride] * 2, group=groups
        )
        return self.graph.node("Relu", [made])

    def cut(self, values: str, begin: int, end: int) -> str:
        ends = [self.graph.ints(one) for one in (begin, end, 0)]
        return self.graph.node("Slice", [values, *ends])

    def as_large(self, x: str, other: str) -> str:
        own, wanted = (self.graph.node("Shape", [one]) for one in (x, other))
        ends = [self.cut(own, 0, 2), self.cut(wanted, 2, 4)]
        shape = self.graph.node("Concat", ends, axis=0)
        return self.graph.node(
            "Resize",
            [x, None, None, shape],
            mode="linear",
            coordinate_transformation_mode="half_pixel",
        )

    def boxes(self, x: str, stride: int) -> tuple[str, str]:
        """Boxes [1, places, 4], as centers and sizes, and scores [1, places, classes]."""
        g, count = self.graph, 5 + self.CLASSES
        x = self.conv(x, self.WIDE, self.WIDE, 3)
        w = g.constant(self._rng.normal(0, 0.1, (count, self.WIDE, 1, 1)).astype("f4"))
        raw = g.node("Conv", [x, w])
        shape = g.node("Shape", [raw])
        high, wide = (self.cut(shape, n, n + 1) for n in (2, 3))
        places = g.node("Mul", [high, wide])
        rows = g.node("Concat", [g.ints(1), places, g.ints(count)], axis=0)
        raw = g.node("Reshape", [g.node("Transpose", [raw], perm=[0, 2, 3, 1]), rows])
        whole = g.node("Concat", [high, wide], axis=0)
        lines = []
        for size, axis in (wide, 0), (high, 1):
            ends = [g.constant(np.int64(0)), g.node("Squeeze", [size]), g.constant(np.int64(1))]
            line = g.node("Cast", [g.node("Range", ends)], to=1)
            grid = g.node("Expand", [g.node("Unsqueeze", [line, g.ints(axis)]), whole])
            lines.append(g.node("Reshape", [grid, g.ints(1, -1, 1)]))
        corner = g.node("Concat", lines, axis=2)
        parts = g.node("Split", [raw, g.ints(2, 2, 1, self.CLASSES)], outputs=4, axis=2)
        center = g.node("Add", [g.node("Sigmoid", [parts[0]]), corner])
        size = g.node(
            "Exp",
            [g.node("Clip", [parts[1], g.constant(np.float32(-2)), g.constant(np.float32(2))])],
        )
        both = g.node("Concat", [center, size], axis=2)
        scores = [g.node("Sigmoid", [one]) for one in parts[2:]]
        scaled = g.node("Mul", [both, g.constant(np.float32(stride))])
        return scaled, g.node("Mul", scores)


def sizes(text: str) -> range:
    """A number, or the first, the last, and the step."""
    first, last, step = [*map(int, text.split(":")), None, None][:3]
    return range(first, (first if last is None else last) + 1, step or 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument(
        "--height", type=sizes, default=sizes("320:1280:32"), metavar="FIRST:LAST:STEP"
    )
    parser.add_argument("--width", type=sizes, default=sizes("320:1280:32"))
    parser.add_argument("--detector", action="store_true", help="write the file")
    given = parser.parse_args()
    if given.detector:
        write_model(given.file, Detector().graph)
        return
    print(row(given.file, given.count, given.height, given.width))


if __name__ == "__main__":
    main()
