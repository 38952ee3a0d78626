"""Computing a recurrent network frame by frame, with the state between frames as a value.

A stream (`LoopedComputer`) goes one way only. Here many continuations of one beginning may be
tried, as language models do: what frames leave behind is kept by the caller.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.python.cached import new_lock
from ..graph.request import ComputationRequest, IoSpecification
from ..graph.topology import Topology
from ..index.indexes import frame_indexes
from ..language.config import split_lines
from ..network.for_inference import Model, for_inference
from ..run.computer import NnetComputer
from .pipeline import compile_request

State = dict[str, np.ndarray]
"""The last rows of the nodes that later frames read, by name: float32, [frames, columns]."""


class StepComputer:
    """Computes a simple network without iVectors and without context frame by frame, in any thread.

    Frames before the first one count as zeros, as where `IfDefined` reads them.

    Args:
        nnet: a network, an acoustic model, or the path of a file.

    Raises:
        FormatError: the network reads later frames, earlier ones by another rule than fixed
            offsets, or wants other inputs than `input`.
        ShapeError: the network is not simple.
    """

    def __init__(self, nnet: Model) -> None:
        nnet = for_inference(nnet)
        if not nnet.is_simple() or len(nnet.inputs()) > 1:
            raise ShapeError("a network with an 'input' and an 'output' alone is wanted")
        topology = nnet.topology()
        delays = _delays(topology)
        self.input_dim = nnet.input_dim("input")
        self.output_dim = nnet.output_dim("output")
        self._sizes = {name: (delay, topology.dims[name]) for name, delay in delays.items()}
        self._carried = {name: f"{name}.carried" for name in delays if name != "input"}
        nnet = nnet.copy()
        lines = [f"output-node name={new} input={name}" for name, new in self._carried.items()]
        nnet.add_config(split_lines("\n".join(lines)), np.random.default_rng(0))
        before = [_rows(name, -delay, 0) for name, delay in delays.items()]
        inputs = [io for io in before if io.name != "input"]
        inputs.append(_rows("input", -delays.get("input", 0), 1))
        outputs = [_rows(name, 0, 1) for name in ("output", *self._carried.values())]
        request = ComputationRequest(inputs, outputs)
        self._computer = NnetComputer(compile_request(nnet, request), nnet)
        self._lock = new_lock()

    def start(self) -> State:
        """The state before the first frame."""
        return {name: np.zeros(size, np.float32) for name, size in self._sizes.items()}

    def step(self, state: State, frame: np.ndarray) -> tuple[np.ndarray, State]:
        """The output for a frame after a state, float32, [columns], and the state after it.

        Args:
            frame: float32, [columns].
        """
        rows = frame[None]
        if "input" in state:
            rows = np.concatenate((state["input"], rows))
        computer = self._computer
        with self._lock:
            for name in self._carried:
                computer.accept_input(name, state[name], quiet=True)
            computer.accept_input("input", rows, quiet=True)
            computer.run()
            new = {name: computer.get_output(made) for name, made in self._carried.items()}
            output = computer.get_output("output")[0]
        new["input"] = frame[None]
        return output, {
            name: np.concatenate((earlier[1:], new[name])) for name, earlier in state.items()
        }


def _rows(name: str, first: int, end: int) -> IoSpecification:
    return IoSpecification(name, frame_indexes(1, np.arange(first, end)))


def _delays(topology: Topology) -> dict[str, int]:
    """How many frames back each input and component node is read, of those that are."""
    delays: dict[str, int] = {}
    # Nodes, and at what offset an output or a component reads them.
    read: list[tuple[int, int]] = []
    for node, info in enumerate(topology.nodes):
        if info.is_output:
            read.append((node, 0))
        elif info.kind == "component":
            read += _sources(topology, node, 0)
    for node, offset in read:  # which grows
        info = topology.nodes[node]
        if info.kind not in ("input", "component"):
            read += _sources(topology, node, offset)
        elif offset > 0:
            raise FormatError(f"the network reads later frames, of '{info.name}'")
        elif offset < 0:
            delays[info.name] = max(delays.get(info.name, 0), -offset)
    return delays


def _sources(topology: Topology, node: int, offset: int) -> list[tuple[int, int]]:
    """The nodes that a node reads, each with its offset."""
    steps = topology.steps[node]
    if steps is None:
        name = topology.nodes[node].name
        raise FormatError(f"'{name}' reads frames by another rule than fixed offsets")
    return [(source, offset + step) for source, step, _ in steps]
