"""Every exported graph runs before its file is there, against values that were computed here."""

from __future__ import annotations

import importlib
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....framework.base.errors import OpscopeError
from ...inference.cases import Case
from ...inference.form import ExportError
from ..files.graph import Graph
from ..files.nested import all_nodes
from ..files.reading import STANDARD
from ..files.writing import model_bytes, write_model

BOUND = 1e-4
"""The largest error that an export may have unless another one is given; see `error_of`."""

_MOST_IN_MEMORY = 1 << 30
"""Bytes of arrays up to which a model is handed to a runtime without a file."""


class DiffersError(ExportError):
    """An exported graph that computes something else."""


class UncheckedWarning(UserWarning):
    """A graph was written that nothing here could run."""


@dataclass(frozen=True)
class Check:
    """What a check has found; `str(check)` is a line for people.

    Attributes:
        error: the largest one of all outputs and cases; NaN where nothing could run the graph.
        runtime: what ran it, "" for nothing.
        cases: how many inputs were tried.
        nodes: of the graph, without nodes of sub-graphs.
        note: what else is to be said.
        int8: the report of quantizing (`int8.Int8Report`); None where nothing was quantized.
    """

    error: float
    runtime: str
    cases: int
    nodes: int
    note: str = ""
    int8: Any = None

    def __str__(self) -> str:
        nodes = f"{self.nodes} node{'s' * (self.nodes != 1)}"
        if not self.runtime:
            return f"{nodes}, not checked: neither onnxruntime nor onnx is installed"
        cases = f"{self.cases} input{'s' * (self.cases != 1)}"
        note = f"; {self.note}" if self.note else ""
        return f"{nodes}, maximum error {self.error:.3g} on {cases} in {self.runtime}{note}"


def runtime_name() -> str:
    """What would run a graph: ONNX Runtime, else onnx's reference evaluator, else ""."""
    for module, title in (("onnxruntime", "ONNX Runtime"), ("onnx", "onnx's reference evaluator")):
        try:
            version = importlib.import_module(module).__version__
        except ImportError:
            continue
        return f"{title} {version}"
    return ""


Run = Callable[[list[str], Any], list[Any]]
"""Runs a graph: from the names of outputs, and arrays by input, to values."""


def check_export(
    graph: Graph,
    cases: Sequence[Case],
    bound: float = BOUND,
    description: str = "",
    around: Callable[[Run], Run] | None = None,
) -> float:
    """Run a graph and compare its outputs with those that were computed here.

    Args:
        graph: it; all its nodes must be of ONNX's own domain.
        cases: of inputs and outputs; outputs of the graph that a case does not have are not
            compared.
        bound: the largest error that is allowed; see `error_of`.
        description: the model's, as it will be written.
        around: turns a run of the graph, which may be one of several, into the run of a whole case.

    Returns:
        The largest error; NaN, with an `UncheckedWarning`, where neither ONNX Runtime nor onnx is
        there to run the graph.

    Raises:
        ExportError: an output differs by more than `bound`, in shape or in dtype (the message has
            the output, the place and both values); the graph is not valid or does not run; a node
            has another domain.
    """
    _check_domains(graph)
    if not runtime_name():
        warnings.warn(
            "ONNX: the exported graph was not run: install onnxruntime (or onnx) to check it",
            UncheckedWarning,
            stacklevel=2,
        )
        return math.nan
    run = runner(graph, description)
    run = run if around is None else around(run)
    worst = 0.0
    for number, (inputs, expected) in enumerate(cases, 1):
        where = f"input {number} of {len(cases)}"
        names = [name for name in _outputs(graph) if name in expected]
        unknown = sorted(set(expected) - set(names))
        if unknown:
            raise ExportError(f"ONNX: the graph has no output {', '.join(map(repr, unknown))}")
        try:
            outputs = run(names, dict(inputs))
        except Exception as error:  # whatever a runtime raises
            shapes = ", ".join(f"{k} {list(v.shape)}" for k, v in inputs.items())
            raise ExportError(
                f"ONNX: {runtime_name()} fails on {where} ({shapes}): {complaint(error)}"
            ) from error
        for name, value in zip(names, outputs, strict=True):
            worst = max(worst, _compare(name, value, expected[name], bound, where))
    return worst


def write_checked(
    path: str | os.PathLike[str],
    graph: Graph,
    cases: Sequence[Case],
    *,
    bound: float = BOUND,
    description: str = "",
    external: bool | None = None,
    around: Callable[[Run], Run] | None = None,
) -> Check:
    """Check a graph, then write it; what fails leaves no file.

    Args:
        path, description, external: see `write_model`.
        graph, cases, bound, around: see `check_export`.

    Raises:
        ExportError: see `check_export`.
        SaveError: the file cannot be written.
    """
    error = check_export(graph, cases, bound, description, around)
    write_model(path, graph, description, external=external)
    runtime = "" if math.isnan(error) else runtime_name()
    return Check(error, runtime, len(cases), len(graph.message.node))


def error_of(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """The error of each element: `|actual - expected| / max(1, |expected|)`.

    So it is an absolute one for values below 1 and a relative one above. Equal infinities and two
    NaNs have none; any other one of either is infinitely wrong.
    """
    wide = np.result_type(expected.dtype, np.float64)
    first, second = actual.astype(wide), expected.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(first - second) / np.maximum(1.0, np.abs(second))
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    return np.where(same, 0.0, np.where(np.isnan(error), math.inf, error))


def _compare(name: str, actual: Any, expected: Any, bound: float, where: str) -> float:
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise ExportError(
            f"ONNX: output {name!r} is {actual.dtype} {list(actual.shape)} in {runtime_name()},"
            f" here it is {expected.dtype} {list(expected.shape)} ({where})"
        )
    if not expected.size:
        return 0.0
    errors = error_of(actual, expected)
    worst = float(errors.max())
    if worst <= bound:
        return worst
    at = tuple(int(i) for i in np.unravel_index(int(errors.argmax()), errors.shape))
    wrong = int((errors > bound).sum())
    raise DiffersError(
        f"ONNX: output {name!r}{list(at)} is {_shown(actual[at])} in {runtime_name()}, here"
        f" it is {_shown(expected[at])}: an error of {worst:.3g}, at most {bound:g} is allowed"
        f" ({wrong} of {errors.size} values differ so much; {where})"
    )


def _shown(value: Any) -> str:
    return f"{value:.8g}" if isinstance(value, np.floating) else str(value)


def _outputs(graph: Graph) -> list[str]:
    return [info.name for info in graph.message.output]


def runner(graph: Graph, description: str = "", *, validate: bool = True) -> Run:
    """What runs a graph.

    Args:
        validate: whether onnx checks the graph first; it wants the rank of every output.

    Raises:
        ExportError: the graph is not valid.
    """
    try:
        if sum(array.nbytes for array in graph.arrays.values()) <= _MOST_IN_MEMORY:
            model = model_bytes(graph, description)
            if validate:
                _validate(model)
            return _session(model)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            write_model(path, graph, description)
            if validate:
                _validate(path)
            return _session(path)
    except OpscopeError:  # of writing it
        raise
    except Exception as error:  # whatever onnx and a runtime raise
        raise ExportError(f"ONNX: the exported graph is not valid: {complaint(error)}") from error


def _validate(model: bytes | str) -> None:
    """onnx's own check with types and shapes, where it is installed."""
    try:
        checker = importlib.import_module("onnx.checker")
    except ImportError:
        return
    checker.check_model(model, full_check=True)


def _session(model: bytes | str) -> Callable[[list[str], Any], list[Any]]:
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError:
        return _reference(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    # By default it rounds to 8 bits what is multiplied with weights in blocks: that is no error.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model, options, providers=providers)
    return session.run


def _reference(model: bytes | str) -> Callable[[list[str], Any], list[Any]]:
    onnx, reference = map(importlib.import_module, ("onnx", "onnx.reference"))
    loaded = onnx.load(model) if isinstance(model, str) else onnx.load_from_string(model)
    return reference.ReferenceEvaluator(loaded).run


def complaint(error: Exception) -> str:
    """The first line with words of what a library says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


_CONTRIBUTED = {"com.microsoft.MatMulNBits"}
"""Operators of other domains that are written: there is no standard one that runs as fast."""


def _check_domains(graph: Graph) -> None:
    """Refuse nodes of other domains than ONNX's own."""
    nodes = all_nodes(graph.message.node)
    others = {f"{n.domain}.{n.op_type}" for n in nodes if n.domain not in STANDARD} - _CONTRIBUTED
    if others:
        shown = ", ".join(sorted(others))
        raise ExportError(f"ONNX: operators of other domains than ONNX's own: {shown}")
