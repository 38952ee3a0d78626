"""ONNX models in any runtime: values of the outer graph are layers."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ...framework.base.dtypes import SINGLE, to_dtype
from ...framework.base.errors import OpscopeError, VariableError
from ...framework.base.untrusted.values import whole_number
from ...proto import onnx_pb2 as pb
from ..onnx.export.checking import complaint
from ..onnx.files.dtypes import in_dtype, whole_file
from ..onnx.files.nested import all_nodes
from ..onnx.files.reading import STANDARD, ModelFile
from ..onnx.importing.graph import check_model
from ..onnx.importing.model import model_of
from .layers import Computed, Feed, InputSpec, Layer, Wanted, plain_number
from .op_nets import options_of

_TITLES = {"onnxruntime": "ONNX Runtime", "onnx-reference": "onnx's reference evaluator"}


class OnnxNet:
    """An ONNX model; see `Form`.

    Outputs come from the model as it is. Values inside come from a second run, of a model whose
    outputs they are, since a runtime may join nodes whose values are not asked for.
    """

    kind = "onnx"

    def __init__(self, file: ModelFile, title: str, wanted: Wanted) -> None:
        self.title = title
        self._runtime = wanted.runtime or "opscope"
        self.dtype = to_dtype(wanted.dtype) if wanted.dtype else SINGLE
        self._file = file
        if self.dtype != SINGLE:
            self._file = ModelFile(file.path, file.folder, in_dtype(file, self.dtype), file.opsets)
        model = check_model(self._file)  # also where another runtime runs it: the file is untrusted
        self._infos = model.inputs
        self._metadata = model.metadata
        if self._runtime not in _TITLES:
            self._own = model_of(self._file)

    def inputs(self) -> list[InputSpec]:
        """See `Form`."""
        specs = []
        for info in self._infos:
            if info.kind == "optional":
                continue
            if info.dtype is None or info.shape is None:
                raise VariableError(f"{self.title}: input {info.name!r} has no shape or dtype")
            shape = tuple(dim if isinstance(dim, int) and dim > 0 else -1 for dim in info.shape)
            context = self._context() if info.name == "input" else (0, 0)
            specs.append(InputSpec(info.name, shape, info.dtype, context=context))
        return specs

    def _context(self) -> tuple[int, int]:
        """The frames that an exported network of Kaldi's looks at, as its metadata says."""
        frames = [self._metadata.get(f"{side}_context", "") for side in ("left", "right")]
        if self._metadata.get("model_type") != "nnet3" or not all(map(str.isdecimal, frames)):
            return 0, 0
        left, right = (whole_number(each, f"{self.title}: context", 0) for each in frames)
        return left, right

    def compute(self, feed: Feed) -> Computed:
        """See `Form`."""
        arrays = {name: np.asarray(value) for name, value in feed.items()}
        notes: list[str] = []
        if self._runtime in _TITLES:
            values = self._elsewhere(arrays, notes)
        else:
            with options_of(self._runtime):
                values = self._own.values(arrays)
        outputs = {info.name for info in self._file.model.graph.output}
        layers = {}
        for node in self._file.model.graph.node:
            kind = node.op_type if node.domain in STANDARD else f"{node.domain}.{node.op_type}"
            # Names that graphs inside give themselves are among these; they match nothing outside.
            named = [name for one in all_nodes([node]) for name in one.input if name]
            reads = tuple(dict.fromkeys(named))
            for name in node.output:
                value = values.get(name)
                if plain_number(value):
                    layers[name] = Layer(name, kind, np.array(value), reads, name in outputs)
        return Computed(layers, notes)

    # -- other runtimes

    def _elsewhere(self, feed: dict[str, np.ndarray], notes: list[str]) -> dict[str, Any]:
        title = _TITLES[self._runtime]
        model = whole_file(self._file)
        names = [info.name for info in model.graph.output]
        values_of = dict(zip(names, self._session(model, names, feed, title), strict=True))
        inner = [name for node in model.graph.node for name in node.output if name not in values_of]
        inner = [name for name in inner if name]
        if not inner:
            return values_of
        shown = pb.ModelProto()
        shown.CopyFrom(model)
        shown.graph.output.extend(pb.ValueInfoProto(name=name) for name in inner)
        try:
            values = self._session(shown, inner, feed, title)
        except OpscopeError as error:
            notes.append(f"{self.title}: {title} does not show values inside ({error})")
            return values_of
        return values_of | dict(zip(inner, values, strict=True))

    def _session(
        self, model: pb.ModelProto, names: list[str], feed: dict[str, np.ndarray], title: str
    ) -> list[Any]:
        """Values by another runtime.

        Raises:
            VariableError: it is not installed, or refuses the model or its inputs.
        """
        data = model.SerializeToString()
        try:
            if self._runtime == "onnxruntime":
                run = _onnxruntime(data)
            else:
                onnx, reference = map(importlib.import_module, ("onnx", "onnx.reference"))
                run = reference.ReferenceEvaluator(onnx.load_from_string(data)).run
        except ImportError as error:
            raise VariableError(
                f"{title} is not installed ({error.name}): pip install opscope[onnx]"
            ) from None
        except Exception as error:  # whatever a runtime raises
            raise VariableError(f"{self.title}: {title} refuses it: {complaint(error)}") from error
        try:
            with np.errstate(all="ignore"):
                return list(run(names, feed))
        except Exception as error:
            raise VariableError(f"{self.title}: {title} fails: {complaint(error)}") from error


def _onnxruntime(data: bytes) -> Any:
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # the exception says what fails
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run
