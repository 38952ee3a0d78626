"""Training steps on a GPU, beside PyTorch on the same one.

    python benchmarks/gpu.py [--rounds 5] [--write docs/performance.md]

Each side does its steps in turn, and waits for the GPU after each round; the least time counts. Our
steps are taken as CUDA graphs and launch by launch, PyTorch's as they are written. `--write` puts
the table, with the device's name, in place of the one between the marks of that page.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time
from collections.abc import Callable
from datetime import date
from functools import partial

HERE = pathlib.Path(__file__).resolve().parent
BEGIN, END = "<!-- begin of the table of benchmarks/gpu.py -->", "<!-- end -->"
STEPS = ("mlp-step", "conv-step", "residual-step", "encoder-step", "lstm-step")
CALLS = 50
"""Steps of a round."""


def measured(step: Callable[[], object], wait: Callable[[], None]) -> float:
    """Milliseconds of a step."""
    started = time.perf_counter()
    for _ in range(CALLS):
        step()
    wait()
    return 1e3 * (time.perf_counter() - started) / CALLS


def least(
    sides: dict[str, Callable[[], object]], wait: Callable[[], None], rounds: int
) -> dict[str, float]:
    """Milliseconds of the steps of each side, which take turns."""
    for step in sides.values():  # kernels are compiled, and graphs are recorded
        measured(step, wait)
    times = [{name: measured(step, wait) for name, step in sides.items()} for _ in range(rounds)]
    return {name: min(one[name] for one in times) for name in sides}


def sides_of(key: str) -> dict[str, Callable[[], object]]:
    """Our step as a graph and launch by launch, and PyTorch's."""
    import torch
    from workloads import ALL
    from workloads.workload import OURS

    from opscope import options

    workload = ALL[key]

    def plain(step: Callable[[], object]) -> object:
        with options(graphs=False):
            return step()

    ours = {
        "graph": workload.sides[OURS](0),
        "launches": partial(plain, workload.sides[OURS](0)),
    }
    torch.set_default_device("cuda")
    from_numpy = torch.from_numpy
    torch.from_numpy = lambda array: from_numpy(array).cuda()
    try:
        return {**ours, "torch": workload.sides["torch"](1)}
    finally:
        torch.from_numpy = from_numpy
        torch.set_default_device("cpu")


def table(rounds: int) -> str:
    """The table of the page."""
    import cupy
    import torch
    from workloads import ALL

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    runtime = cupy.cuda.runtime.runtimeGetVersion()

    def wait() -> None:
        cupy.cuda.Device().synchronize()
        torch.cuda.synchronize()

    lines = [
        f"{name}, {date.today():%d %B %Y}, CuPy {cupy.__version__} with CUDA {runtime // 1000}."
        f"{runtime % 1000 // 10}, PyTorch {torch.__version__}; milliseconds of a step:",
        "",
        "| step | graph | launch by launch | PyTorch | PyTorch / graph |",
        "|---|---|---|---|---|",
    ]
    for key in STEPS:
        times = least(sides_of(key), wait, rounds)
        shown = " | ".join(f"{times[side]:.3g}" for side in ("graph", "launches", "torch"))
        ratio = times["torch"] / times["graph"]
        lines.append(f"| {ALL[key].title} | {shown} | {ratio:.2f} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def replaced(page: str, text: str) -> str:
    """The page with a text between its marks.

    Raises:
        ValueError: the page lacks the marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} with {END} after it")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", type=pathlib.Path, help="page that takes the table")
    arguments = parser.parse_args()
    os.environ["OPSCOPE_DEVICE"] = "gpu"
    sys.path.insert(0, str(HERE))
    text = table(arguments.rounds)
    if arguments.write is None:
        print(text)
        return
    from opscope.framework.base.files.atomic import write_atomically

    page = replaced(arguments.write.read_text(encoding="utf-8"), text)
    write_atomically(arguments.write, page.encode())


if __name__ == "__main__":
    main()
