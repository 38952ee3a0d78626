"""Conversions of nets of operators, and of ONNX models into them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...bridges.inference.cases import OwnRun
from ...bridges.model.net_models import NetModel, held_values
from ...bridges.onnx.export.exporting import to_onnx
from ...bridges.onnx.importing.model import OnnxModel, from_onnx
from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.files.atomic import write_together
from ...framework.base.scope import Scope
from ...framework.files.saved import paths_of, put_values, save
from ...framework.files.tensor_file import write_tensors
from ...framework.ir.op_list import OpList
from ...framework.runtime.initialize import initialize, persistent_vars
from ..to_python.saved_to_python import saved_to_python
from . import losses
from .code_run import built
from .report import VALUES, Job
from .runs import cases_of, own_run

Values = Mapping[str, np.ndarray]
Run = Callable[[Values], Values]


def _operators(job: Job) -> NetModel:
    assert isinstance(job.value, NetModel)
    return job.value


def operators_to_onnx(job: Job) -> None:
    """An ONNX model, which is checked as `to-onnx` checks it."""
    from .of_nnet3 import take_check

    source = _operators(job)
    outputs = job.options.outputs or None
    job.lose(*losses.of_operators(source.desc))
    check = to_onnx(source.load(), job.target, outputs=outputs, bound=job.options.bound)
    take_check(job, check)


def operators_to_net(job: Job) -> None:
    """A saved net: of a checkpoint, or of a net cut down to what some outputs need."""
    source = _operators(job)
    job.lose(*losses.of_operators(source.desc))
    run = own_run(source.desc, source.arrays, job.options.outputs)
    _save(job, run.inference.net, run.arrays)
    job.report.error = 0.0
    job.report.note = "the same operators and arrays"


def operators_to_code(job: Job) -> None:
    """NetBuilder code, with the parameters beside it."""
    source = _operators(job)
    job.lose(*losses.of_operators(source.desc))
    run = own_run(source.desc, source.arrays, job.options.outputs)
    _code(job, run, run)


def onnx_to_net(job: Job) -> None:
    """A saved net of operators."""
    model, net = _onnx(job)
    run = own_run(net, held_values(net, model.scope), job.options.outputs)
    _compare_onnx(job, model, run)
    _save(job, net, held_values(net, model.scope))


def onnx_to_code(job: Job) -> None:
    """NetBuilder code, with the parameters beside it."""
    model, net = _onnx(job)
    run = own_run(net, held_values(net, model.scope), job.options.outputs)
    _code(job, run, model.run)


def _onnx(job: Job) -> tuple[OnnxModel, OpList]:
    model = from_onnx(job.report.source)
    net = model.op_list(job.options.shapes or None)
    free = [
        f"{info.name} [{', '.join(map(str, info.shape))}]"
        for info in model.inputs
        if info.name in job.options.shapes and info.shape is not None
    ]
    if free:
        job.lose(f"dimensions that may vary: of {'; '.join(free)}")
    if model.metadata:
        job.report.facts.append(f"metadata: {', '.join(list(model.metadata)[:8])}")
    return model, net


def _compare_onnx(job: Job, model: OnnxModel, run: OwnRun) -> None:
    for inputs, outputs in cases_of(run):
        wanted = model.run(inputs)
        for name, value in outputs.items():
            job.compare(name, value, np.asarray(wanted[name]))
        job.report.cases += 1


def _save(job: Job, net: OpList, arrays: Mapping[str, np.ndarray]) -> None:
    scope = Scope()
    put_values(arrays, scope)
    save(net, scope, job.target)
    job.report.facts.append(f"{len(net.ops)} operators, numbers in {paths_of(job.target)[1]}")


# -- code


def _code(job: Job, own: OwnRun, run: Run) -> None:
    form = own.inference
    params = os.path.splitext(job.target)[0] + VALUES
    name = os.path.basename(job.report.source)
    beside = os.path.basename(params)
    code = saved_to_python(form.net, own.arrays, form.outputs, name, beside)
    write_code(job, code.text, params, code.values, form.outputs, run)


def write_code(
    job: Job,
    text: str,
    params: str,
    values: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    run: Run,
    cases: Callable[[OwnRun], list[tuple[Values, Values]]] | None = None,
) -> None:
    """Write a module and its values, once the net that it builds has been compared.

    Args:
        text: of the module. params: the path of the file with its values.
        outputs: the variables that are compared. run: what computes them in the source.
        cases: makes inputs of the net and of the source; None: random ones, the same for both.

    Raises:
        FormatError: the name of the target is no Python module.
        RunError: the net computes something else.
    """
    if os.path.splitext(job.target)[1] != ".py":
        raise FormatError(f"{job.target}: code is written to a file NAME.py")
    job.report.facts.append(f"{text.count(chr(10))} lines; its numbers are in {params}")
    net = built(text, job.target)
    results: list[tuple[Values, Values]] = []
    try:
        own = own_run(net, _all_values(net, values), outputs)
        pairs = [(inputs, inputs) for inputs, _ in cases_of(own)] if cases is None else cases(own)
        results = [(own(inputs), run(given)) for inputs, given in pairs]
    except OpscopeError as error:  # there are nets that random inputs do not fit
        job.report.note = (str(error).splitlines() or [""])[0].removeprefix("ONNX: ")
    for computed, wanted in results:
        for name, value in computed.items():
            job.compare(name, value.reshape(np.shape(wanted[name])), wanted[name])
        job.report.cases += 1
    held: dict[str, Any] = {name: np.ascontiguousarray(array) for name, array in values.items()}
    write_together(
        [
            (params, lambda file: write_tensors(file, held, {})),
            (job.target, lambda file: file.write(text.encode())),
        ]
    )


def _all_values(net: OpList, values: Values) -> dict[str, np.ndarray]:
    """The values, in the dtypes of the net, and first values of what has none."""
    scope = Scope()
    dtypes = {var.name: var.dtype for var in persistent_vars(net)}
    for name, array in values.items():
        scope.var(name).set(np.asarray(array, dtypes.get(name) or None))
    initialize(net, scope)
    return held_values(net, scope)
