"""Counts the files that three walks through the house enter: fewer files read better.

    python benchmarks/walks.py [--files]

A layer of NetBuilder is built and run, a config of nnet3 is read, compiled and computed, an NDL
script becomes a network and runs. Each walk is made once before it is counted, so that modules are
loaded. Entering a file means that a function of it is called; a return is a change to a file that
was entered before.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

import opscope
from opscope import NetBuilder, Scope, nnet3
from opscope.cntk.ndl import build_ndl_file
from opscope.cntk.network.validate import validate
from opscope.cntk.run.runtime import CntkNet

ROOT = os.path.dirname(os.path.abspath(opscope.__file__)) + os.sep
FLOORS = tuple(
    ROOT + floor + os.sep
    for floor in ("framework", "operators", "kaldi", "nnet3", "cntk", "python_api")
)
NNET3 = """\
input-node name=input dim=4
component name=a type=NaturalGradientAffineComponent input-dim=12 output-dim=3
component-node name=a component=a input=Append(Offset(input,-1),input,Offset(input,1))
output-node name=output input=a
"""
NDL = """\
run=DNN
DNN=[
  f=InputValue(4,tag=feature)
  W=Parameter(3,4,init=uniform)
  z=Times(W,f,tag=output)
]
"""


@dataclass(frozen=True)
class Walk:
    """Calls of the package's functions, files in the order of entering, and returns to files."""

    calls: int
    files: tuple[str, ...]
    returns: int


def traced(call: Callable[[], Any]) -> tuple[Walk, Any]:
    """Count what a call enters; returns its result, too."""
    entered: list[str] = []

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(FLOORS):
            entered.append(name[len(ROOT) :])

    sys.setprofile(trace)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    seen: dict[str, None] = {}
    returns = 0
    last = ""
    for name in entered:
        returns += name != last and name in seen
        seen[name] = None
        last = name
    return Walk(len(entered), tuple(seen), returns), result


def layer_walks() -> dict[str, Walk]:
    """`b.fc` to its kernel: building it, the first run, the second."""

    def builder() -> tuple[NetBuilder, Any]:
        b = NetBuilder("walk")
        return b, b.input("x", [-1, 8])

    b, x = builder()
    b.fc(x, size=4, activation="relu")
    b, x = builder()
    build, hidden = traced(lambda: b.fc(x, size=4, activation="relu"))
    mean = b.mean(hidden)
    scope = Scope()
    feed = {"x": np.zeros((2, 8), np.float32)}
    first, _ = traced(lambda: b.run(scope, feed=feed, fetch=[mean]))
    second, _ = traced(lambda: b.run(scope, feed=feed, fetch=[mean]))
    return {"b.fc": build, "first run": first, "second run": second}


def nnet3_walks() -> dict[str, Walk]:
    """A config line of nnet3 to its product: read, compiled and lowered, bound, run."""
    nnet3.Nnet.from_config_text(NNET3, 0)
    config, nnet = traced(lambda: nnet3.Nnet.from_config_text(NNET3, 0))
    request = nnet3.simple_request(nnet, frames=10)
    nnet3.compile_request(nnet, request)
    compiling, op_list = traced(lambda: nnet3.compile_request(nnet, request))
    nnet3.NnetComputer(op_list, nnet)
    making, computer = traced(lambda: nnet3.NnetComputer(op_list, nnet))

    def compute() -> np.ndarray:
        computer.accept_input("input", np.zeros((12, 4), np.float32))
        computer.run()
        return computer.get_output("output")

    running, _ = traced(compute)
    return {
        "nnet3 config": config,
        "nnet3 compile and lower": compiling,
        "nnet3 computer": making,
        "nnet3 run": running,
    }


def ndl_walks() -> dict[str, Walk]:
    """A line of NDL to its operator: the network, and the net that runs it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.ndl")
        with open(path, "w", encoding="utf-8") as file:
            file.write(NDL)

        def network() -> Any:
            made = build_ndl_file(path)
            return getattr(made, "network", made)

        def runnable() -> CntkNet:
            made = network()
            validate(made)
            return CntkNet(made)

        runnable().bound_net(["z"])
        building, _ = traced(network)
        net = runnable()
        binding, _ = traced(lambda: net.bound_net(["z"]))
    return {"NDL to Network": building, "NDL net": binding}


def walks() -> dict[str, Walk]:
    """All walks by name."""
    return layer_walks() | nnet3_walks() | ndl_walks()


def main() -> None:
    """Print a line for each walk; with --files the files, too."""
    for name, walk in walks().items():
        counts = f"calls {walk.calls:5} files {len(walk.files):3} returns {walk.returns:4}"
        print(f"{name:24} {counts}")
        if "--files" in sys.argv:
            print("   ", " ".join(walk.files))


if __name__ == "__main__":
    main()
