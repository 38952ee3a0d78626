"""Products of factors in bfloat16 beside PyTorch's autocast; parameters and sums are float32."""

from __future__ import annotations

import os
from typing import Any

from . import nnet3_nets
from .workload import OURS, Absent, Maker, Step, Workload, eager


def ours(name: str, train: bool) -> Step:
    from opscope.operators.backends.bfloat16 import bf16

    if bf16.missing():
        raise Absent(f"products of bfloat16 want {bf16.missing()}")
    # The process of a side serves this workload alone.
    os.environ["OPSCOPE_LIBRARIES"] = "bf16,packed,direct,native,mkl,blas"
    return nnet3_nets.computing(name, train)


def theirs(name: str, train: bool, second: bool) -> Step:
    import torch

    step = nnet3_nets.theirs(name, train, second, False)

    def rounded() -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return step()

    return rounded


def _sides(name: str, train: bool) -> dict[str, Maker]:
    sides: dict[str, Maker] = {OURS: lambda _: ours(name, train)}
    for how, second in (("Conv1d", False), ("Linear", True)):
        sides[f"torch {how}"] = eager(lambda second=second: theirs(name, train, second))
    return sides


WORKLOADS = {
    f"{name}-bf16{'-gradient' if train else ''}": Workload(
        f"nnet3 {title} in bfloat16, {'gradient' if train else 'forward'}",
        1.0,
        _sides(name, train),
    )
    for name, title in {"tdnn": "TDNN", "tdnnf": "TDNN-F"}.items()
    for train in (False, True)
}
