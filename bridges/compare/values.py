"""The values of all layers of a model, on inputs that are drawn."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...framework.base.backend import to_host
from ...framework.base.errors import VariableError
from ...framework.base.scope import Scope
from ...framework.base.sequence import Sequences
from ...framework.ir.desc import FORWARD, INPUT, PARAMETER, STATE
from ...framework.ir.names import EMPTY
from ...framework.runtime.predict import Predictor
from ..recognise.recognising import kind_of
from ..view.opening import Opened, open_net

if TYPE_CHECKING:
    from ...nnet3.network.nnet import Nnet
    from ..onnx.importing.model import OnnxModel

_SEED = 0
_PROBE = "value-of-"  # before the name of a node, in the name of the output that shows it


@dataclass
class Computed:
    """What a model computed.

    Attributes:
        title: of the model. values: of layers, by name, in the order in which they are computed.
        outputs: the names among them that are the model's outputs.
    """

    title: str
    values: dict[str, np.ndarray]
    outputs: list[str] = field(default_factory=list)


class Model:
    """A model that is compared: a net of operators, a network of Kaldi's, or an ONNX file.

    Raises:
        FormatError: the file is missing, damaged or no model.
        VariableError: it is of a kind that does not run here layer by layer.
    """

    def __init__(self, given: Any) -> None:
        self.onnx: OnnxModel | None = None
        self.opened: Opened | None = None
        path = os.fspath(given) if isinstance(given, (str, os.PathLike)) else ""
        if path and os.path.exists(path) and kind_of(path) == "onnx":
            from ..onnx.importing.model import from_onnx

            self.onnx, self.title, self.kind = from_onnx(path), path, "operators"
            return
        self.opened = open_net(given)
        self.title = path or self.opened.title
        self.kind = self.opened.dialect or "operators"
        if self.kind not in ("operators", "nnet3") or (
            self.kind == "nnet3" and self.opened.network is None
        ):
            raise VariableError(
                f"{self.title}: a net in the dialect {self.kind!r} is not compared; saved nets,"
                " networks of Kaldi's with parameters, and ONNX files are"
            )

    def inputs(self) -> dict[str, tuple[tuple[int, ...], np.dtype, int]]:
        """Shape (-1 where it may vary), dtype and levels of sequences of each input."""
        if self.onnx is not None:
            found = {}
            for info in self.onnx.inputs:
                if info.dtype is None or info.shape is None:
                    raise VariableError(f"{self.title}: input {info.name!r} has no shape or dtype")
                shape = tuple(dim if isinstance(dim, int) else -1 for dim in info.shape)
                found[info.name] = (shape, info.dtype, 0)
            return found
        assert self.opened is not None
        if self.kind == "nnet3":
            nodes = self._nnet().inputs()
            return {node.name: ((-1, node.dim), np.dtype("f"), 0) for node in nodes}
        net = self.opened.net
        read = {name for op in net.ops if op.role == FORWARD for name in op.input_names()}
        found = {}
        for var in net.vars:
            if var.kind == INPUT and var.name in read:
                if var.shape is None or var.dtype is None:
                    raise VariableError(f"{self.title}: input {var.name!r} has no shape or dtype")
                found[var.name] = (tuple(var.shape), np.dtype(var.dtype), var.sequence_levels)
        return found

    def _nnet(self) -> Nnet:
        from ...nnet3.network.nnet import Nnet

        assert self.opened is not None and isinstance(self.opened.network, Nnet)
        return self.opened.network

    def compute(self, rows: int) -> Computed:
        """The values for inputs that hang on their names and shapes alone.

        Args:
            rows: of a batch, or output frames of a network of Kaldi's.

        Raises:
            OpscopeError: it does not run.
        """
        if self.onnx is not None:
            feed = {name: _drawn(name, *spec, rows) for name, spec in self.inputs().items()}
            found = {name: np.asarray(value) for name, value in self.onnx.run(feed).items()}
            return Computed(self.title, found, list(found))
        return self._nnet3(rows) if self.kind == "nnet3" else self._operators(rows)

    def _operators(self, rows: int) -> Computed:
        assert self.opened is not None
        net, arrays = self.opened.net, self.opened.arrays
        ops = [op for op in net.ops if op.role == FORWARD]
        held = {var.name for var in net.vars if var.kind in (PARAMETER, STATE)}
        read = {name for op in ops for name in op.input_names()}
        scope = Scope()
        for name in sorted(held & read):
            if name not in arrays:
                raise VariableError(f"{self.title}: no value of {name!r}, so it does not run")
            scope.var(name).set(np.array(arrays[name]))
        written = [name for op in ops for name in op.outputs.get("out", op.output_names()[:1])]
        names = [name for name in dict.fromkeys(written) if name != EMPTY and name not in held]
        feed = {name: _drawn(name, *spec, rows) for name, spec in self.inputs().items()}
        found = Predictor(net).predict(scope, feed, names, None)
        values = {name: _plain(found[name]) for name in names}
        return Computed(self.title, values, [name for name in names if name not in read])

    def _nnet3(self, rows: int) -> Computed:
        from ...nnet3.graph.request import ComputationRequest, IoSpecification
        from ...nnet3.inference.pipeline import compile_request
        from ...nnet3.language.config import split_lines
        from ...nnet3.language.nodes import COMPONENT, orphan_names
        from ...nnet3.network.simple_request import simple_request
        from ...nnet3.run.computer import NnetComputer

        request = simple_request(self._nnet(), rows)
        nnet = self._nnet().copy()
        spare = {node.name for node in nnet.outputs()} - {"output"}
        nnet.nodes = [node for node in nnet.nodes if node.name not in spare]
        idle = set(orphan_names(nnet.nodes))
        nnet.nodes = [node for node in nnet.nodes if node.name not in idle]
        shown = [node.name for node in nnet.nodes if node.kind == COMPONENT]
        lines = [f"output-node name={_PROBE}{name} input={name}" for name in shown]
        nnet.add_config(split_lines("\n".join(lines)), np.random.default_rng(_SEED))
        (output,) = request.outputs
        probes = [IoSpecification(f"{_PROBE}{name}", output.indexes) for name in shown]
        whole = ComputationRequest(request.inputs, [*request.outputs, *probes])
        computer = NnetComputer(compile_request(nnet, whole), nnet)
        for io in request.inputs:
            spec = (-1, nnet.input_dim(io.name)), np.dtype("f"), 0
            computer.accept_input(io.name, _drawn(io.name, *spec, len(io.indexes)))
        computer.run()
        found = {name: _plain(computer.get_output(f"{_PROBE}{name}")) for name in shown}
        found["output"] = _plain(computer.get_output("output"))
        return Computed(self.title, found, ["output"])


def _plain(value: Any) -> np.ndarray:
    array = value.data if isinstance(value, Sequences) else value
    return np.asarray(to_host(array))


def _drawn(name: str, shape: tuple[int, ...], dtype: np.dtype, levels: int, rows: int) -> Any:
    """A value of an input. Whole numbers are 0, which every table of embeddings has."""
    seed = np.frombuffer(name.encode("utf-8", "surrogateescape"), np.uint8).tolist()
    rng = np.random.default_rng([_SEED, *seed])
    sizes = [size if size >= 0 else (rows if at == 0 else 1) for at, size in enumerate(shape)]
    array = np.zeros(sizes, dtype)
    if dtype.kind == "f":
        array = rng.standard_normal(sizes).astype(dtype)
    if not levels:
        return array
    offsets = [np.array([0, 1])] * (levels - 1) + [np.array([0, sizes[0]])]
    return Sequences(array, tuple(offsets))
