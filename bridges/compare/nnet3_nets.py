"""Kaldi's nnet3 networks: component nodes are layers, with the rows that the output needs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...framework.base.dtypes import SINGLE, to_dtype
from ...framework.base.errors import OpscopeError, VariableError
from ...nnet3.compiler.steps import NnetSteps
from ...nnet3.graph.graph import Graph
from ...nnet3.graph.request import ComputationRequest, IoSpecification
from ...nnet3.inference.in_dtype import run_converted
from ...nnet3.inference.pipeline import compile_request
from ...nnet3.language.config import split_lines
from ...nnet3.language.nodes import COMPONENT, input_name, orphan_names
from ...nnet3.network.nnet import Nnet
from ...nnet3.network.simple_request import simple_request
from ...nnet3.run.computer import NnetComputer
from .layers import Computed, Feed, InputSpec, Layer, Wanted
from .op_nets import converted, options_of, plain_value

_PROBE = "value-of-"  # before the name of a node, in the name of the output that shows it


class Nnet3Net:
    """A network in test mode; see `Form`.

    It is computed as `nnet3-compute` computes an utterance as one chunk: the first and the last
    frame are repeated as far as the context reaches. The runtime "plain" runs the commands as they
    are compiled, without Kaldi's optimizations.
    """

    kind = "nnet3"

    def __init__(self, nnet: Nnet, title: str, wanted: Wanted) -> None:
        self.title = title
        self._runtime = wanted.runtime
        self.dtype = to_dtype(wanted.dtype) if wanted.dtype else SINGLE
        self.nnet = nnet.copy()
        spare = {node.name for node in self.nnet.outputs()} - {"output"}
        self.nnet.nodes = [node for node in self.nnet.nodes if node.name not in spare]
        idle = set(orphan_names(self.nnet.nodes))
        self.nnet.nodes = [node for node in self.nnet.nodes if node.name not in idle]
        used = {node.component for node in self.nnet.nodes}
        self.nnet.components = {n: c for n, c in self.nnet.components.items() if n in used}
        self._context = self.nnet.context()

    def inputs(self) -> list[InputSpec]:
        """See `Form`. An iVector is one row."""
        inputs = []
        for node in self.nnet.inputs():
            if node.name not in ("input", "ivector"):
                raise VariableError(
                    f"{self.title}: an input {node.name!r}; only networks with"
                    " 'input' and 'ivector' are compared"
                )
            rows, context = (1, (0, 0)) if node.name == "ivector" else (-1, self._context)
            inputs.append(InputSpec(node.name, (rows, node.dim), self.dtype, context=context))
        return inputs

    def compute(self, feed: Feed) -> Computed:
        """See `Form`."""
        frames = np.asarray(feed["input"])
        request = simple_request(self.nnet, len(frames))
        rows = self._rows(request)
        nnet = self.nnet.copy()
        shown = [n.name for n in nnet.nodes if n.kind == COMPONENT and n.name in rows]
        lines = [f"output-node name={_PROBE}{name} input={name}" for name in shown]
        nnet.add_config(split_lines("\n".join(lines)), np.random.default_rng(0))
        probes = [IoSpecification(f"{_PROBE}{name}", rows[name]) for name in shown]
        whole = ComputationRequest(request.inputs, [*request.outputs, *probes])
        given = {io.name: _fed(io, np.asarray(feed[io.name])) for io in request.inputs}
        with options_of(self._runtime):
            values = self._run(nnet, whole, given)
        layers: dict[str, Layer] = {}
        for node in self.nnet.nodes:
            if node.kind == COMPONENT and node.name in rows:
                kind = nnet.components[node.component].type
                value = values[f"{_PROBE}{node.name}"]
                layers[node.name] = Layer(node.name, kind, value, self._reads(node.name))
        layers["output"] = Layer("output", "Output", values["output"], self._reads("output"), True)
        return Computed(layers)

    def _rows(self, request: ComputationRequest) -> dict[str, np.ndarray]:
        """For every component node the Indexes that the request needs."""
        steps = NnetSteps(Graph(self.nnet.topology(), request))
        indexes_of: dict[str, list[np.ndarray]] = {}
        for step in steps.steps:
            node = steps.topology.nodes[step.node]
            indexes = step.indexes[step.indexes[:, 1] > np.iinfo(np.int32).min]  # no padding
            indexes_of.setdefault(node.name, []).append(indexes)
        return {
            name: np.unique(np.concatenate(parts), axis=0)  # by n, then t
            for name, parts in indexes_of.items()
        }

    def _reads(self, name: str) -> tuple[str, ...]:
        """The nodes that the descriptor of a node reads; columns of a node are the node."""
        nodes = {node.name: node for node in self.nnet.nodes}
        source = nodes[input_name(name)] if nodes[name].kind == COMPONENT else nodes[name]
        names = source.descriptor.node_names() if source.descriptor else []
        return tuple(dict.fromkeys(nodes[each].source or each for each in names))

    def _run(
        self, nnet: Nnet, request: ComputationRequest, given: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """The outputs of a request."""
        net = compile_request(nnet, request, optimize=self._runtime != "plain", test_mode=True)
        names = [io.name for io in request.outputs]
        if self.dtype == SINGLE:
            computer = NnetComputer(net, nnet)
            for name, array in given.items():
                computer.accept_input(name, array)
            computer.run()
            return {name: plain_value(computer.get_output(name)) for name in names}
        try:
            fed = {name: array.astype(self.dtype) for name, array in given.items()}
            return run_converted(converted(net, self.dtype), nnet, fed, names)
        except OpscopeError as error:
            raise VariableError(
                f"{self.title}: this network does not run in {self.dtype}: {error}"
            ) from error


def _fed(io: IoSpecification, array: np.ndarray) -> np.ndarray:
    """The rows of an input: the frames of the request, those at the ends repeated."""
    if io.name == "ivector":
        return array.reshape(1, -1)
    return array[np.clip(io.indexes[:, 1], 0, len(array) - 1)]
