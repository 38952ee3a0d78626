"""`net_to_torch`: a folder with a net of operators as a PyTorch module."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ....framework.base.errors import OpscopeError, ShapeError
from ....framework.base.files.atomic import PathLike
from ....framework.ir.desc import PARAMETER
from ....framework.ir.op_list import OpList, VarDecl
from ....framework.ir.operation import Operator
from ....framework.loops.recurrent.description import step_net
from ....operators.control.layers import RECURRENT_LAYERS
from ...inference.cases import NetRun, OwnRun, random_cases
from ...inference.form import ExportError, Inference, inference_form, values_of
from ..folder import NotInTorchError, TorchModel, write_folder
from ..formatting import WIDTH, wrapped
from ..helpers import check_source, model_source
from ..naming import plain_text
from .emission import (
    SEQUENCES,
    Layer,
    Lines,
    Module,
    Values,
    dtype_text,
    read_lines,
    write_operators,
)
from .joining import with_biases, without_shapes, without_sums
from .sources import SOURCES, needed
from .tables import all_tables as all_tables
from .tables.recurrent import expanded

_CASES = 2
"""Inputs that are recorded for `check.py`."""
RETURNING = ("cntk",)
"""Families of files into which `opscope from-torch` puts weights of such modules."""


def net_to_torch(
    net: OpList,
    arrays: Mapping[str, np.ndarray],
    folder: PathLike,
    name: str = "",
    *,
    outputs: Sequence[str] | None = None,
) -> TorchModel:
    """Write a net of operators as a PyTorch module; arguments and errors as `to_torch`.

    Args:
        arrays: its parameters and states. name: of the file that it comes from.
    """
    if isinstance(outputs, str):
        raise OpscopeError("outputs is a list of names")
    try:
        run = OwnRun(inference_form(net, outputs, use="PyTorch"), arrays)
        return write_module(NetWriter(run.inference, arrays), run, folder, name)
    except ExportError as error:
        raise NotInTorchError(str(error)) from error


def write_module(
    written: NetWriter, run: NetRun, folder: PathLike, name: str, kind: str = "operators"
) -> TorchModel:
    """Write the folder of a net.

    Args:
        written: of `run.inference`. name: of the file that it comes from.
        kind: the family of that file.

    Raises:
        ExportError: the net runs on no random input. SaveError: the folder cannot be written.
    """
    cases = random_cases(run, use="PyTorch")[:_CASES]
    state = written.state()
    count = sum(array.size for array in state.values() if array.dtype.kind == "f")
    config = written.config(name, count, kind)
    source = written.source(name, count, returns=kind in RETURNING)
    check = check_source(list(written.arguments), written.form.outputs, whole=True)
    model = TorchModel(os.fspath(folder), source, config, count, tuple(written.module.notes))
    recorded: dict[str, np.ndarray] = {}
    for number, (inputs, outputs) in enumerate(cases):
        for argument, var in written.arguments.items():
            array = inputs[var.name]
            recorded[f"{number}.{argument}"] = array[None] if var.sequence_levels else array
        for output in written.form.outputs:
            value = outputs[output]
            whole = value[None] if output in written.values.steps else value
            recorded[f"{number}.output.{output}"] = whole
    write_folder(model, check, state, recorded)
    return model


class NetWriter:
    """Writes the function of a net.

    Args:
        form: the net in inference form. arrays: its parameters and states.
        title: what a variable is called in the module.
        notes: what the module does not do in training as the net does.

    Attributes:
        arguments: of the function, and the inputs that these are.
        module: its layers. values: of its variables.

    Raises:
        NotInTorchError: operators that have no text; all are named.
        VariableError: a parameter has no value.
    """

    def __init__(
        self,
        form: Inference,
        arrays: Mapping[str, np.ndarray],
        title: Callable[[str], str] = str,
        notes: Iterable[str] = (),
    ) -> None:
        self.form = form
        held = values_of(form, arrays, use="PyTorch")
        parameters = [var for var in form.net.vars if var.kind == PARAMETER]
        trained = {var.name for var in parameters}
        frozen = {var.name for var in parameters if var.stop_gradient}
        uses = _uses(form.operators)
        self.module = Module(held, trained, frozen, uses, title=title, notes=[*notes])
        self.values = Values(self.module, form.specs)
        self.values.parameters = {name: name for name in held}
        self.arguments: dict[str, VarDecl] = {}
        self._front: list[str] = []
        for var in form.inputs:
            self._take(var)
        operators = without_shapes(self.values, form.operators, form.outputs)
        operators = without_sums(self.values, operators, form.outputs)
        write_operators(self.values, with_biases(self.values, operators, form.outputs))
        refused = list(dict.fromkeys(self.module.refused))
        if refused:
            lines = "\n  ".join(refused)
            plural = "s" * (len(refused) != 1)
            raise NotInTorchError(
                f"PyTorch: {len(refused)} operator{plural} cannot be written:\n  {lines}"
            )
        self.lines = self._lines()
        text = "\n".join(self.lines)
        read = {line for line in _attributes(text)}
        self.layers = {name: layer for name, layer in self.module.layers.items() if name in read}

    def _take(self, var: VarDecl) -> None:
        """Take an input; a sequence [N, T, ...] becomes rows."""
        if var.sequence_levels > 1:
            raise NotInTorchError(
                f"PyTorch: input {var.name!r} holds sequences of sequences, which have no form here"
            )
        name = self.values.name(var.name)
        self.arguments[name] = var
        self.values.names[var.name] = name
        if var.sequence_levels:
            if not self.values.steps:
                self.values.lines.append(Lines((SEQUENCES,), [f"{SEQUENCES} = {name}.shape[0]"]))
            steps = "t" if len(self.form.steps) == 1 else self.module.names.unique(f"t_{name}")
            rows = self.module.names.unique(f"{name}_rows")
            self.values.steps[var.name] = steps
            self.values.lines.append(Lines((steps,), [f"{steps} = {name}.shape[1]"]))
            self.values.lines.append(Lines((rows,), [f"{rows} = {name}.flatten(0, 1)"]))
            self.values.names[var.name] = rows

    def _lines(self) -> list[str]:
        texts: dict[str, str] = {}
        for output in self.form.outputs:
            text = self.values.text(output)
            steps = self.values.steps.get(output)
            texts[output] = text if steps is None else f"{text}.unflatten(0, (-1, {steps}))"
        result = Lines(("return",), [_given(texts)])
        self.values.lines.append(result)
        return read_lines(self.values, ["return"])

    def state(self) -> dict[str, np.ndarray]:
        """The module's state dict."""
        return {
            f"{attribute}.{name}" if name else attribute: np.array(array, order="C")
            for attribute, layer in self.layers.items()
            for name, array in layer.tensors.items()
        }

    def put(self, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Take the weights of a state dict; returns the parameters that changed.

        Raises:
            ShapeError: a tensor changed that no parameter of the net holds.
        """
        changed: dict[str, np.ndarray] = {}
        for attribute, layer in self.layers.items():
            for name, array in layer.tensors.items():
                key = f"{attribute}.{name}" if name else attribute
                if array.dtype.kind != "f" or np.array_equal(array, state[key]):
                    continue
                variable = layer.variables.get(name, "")
                held = self.module.arrays.get(variable)
                if held is None or not np.shares_memory(held, array):
                    raise ShapeError(f"'{key}' was trained, and no parameter of the net holds it")
                array[...] = state[key]
                changed[variable] = held
        return changed

    def source(self, name: str, count: int, returns: bool = False) -> str:
        """The text of `model.py`."""
        modules = [
            line
            for attribute, layer in self.layers.items()
            for line in _construction(attribute, layer, self.module.frozen)
        ]
        takes = ", ".join(f"{arg} {self._shown(var.name)}" for arg, var in self.arguments.items())
        gives = ", ".join(f"{plain_text(one)} {self._shown(one)}" for one in self.form.outputs)
        about = "Layers have the names of the net's parameters, with _ for\nother signs."
        if self.form.steps:
            about += " Inside, the rows of all sequences follow each other: [N T, ...]."
        title = f"The net of {plain_text(name)} as a PyTorch module." if name else "A net."
        return model_source(
            title=title,
            about=about,
            helpers=[SOURCES[one] for one in needed(self.module.helpers)],
            model="Net",
            returns=returns,
            details=f"{takes} -> {gives}.\n\n    A net of {count} parameters.",
            modules=_wrapped(modules or ["pass"], 8),
            signature=", ".join(["self", *self.arguments]),
            forward=_wrapped(self.lines, 8),
        )

    def _shown(self, variable: str) -> str:
        spec = self.values.specs.get(variable)
        dims = list(spec[0]) if spec else []
        shown = [
            str(size) if size >= 0 else "N" if not axis else "?" for axis, size in enumerate(dims)
        ]
        if variable in self.values.steps:
            shown[:1] = ["N", "T"]
        return f"[{', '.join(shown)}]"

    def config(self, name: str, count: int, kind: str) -> dict[str, Any]:
        """The contents of `config.json`."""
        sizes = self.values.specs
        return {
            "architectures": ["Net"],
            "model_type": kind,
            "torch_dtype": "float32",
            "origin": name,
            "inputs": {arg: list(sizes[var.name][0]) for arg, var in self.arguments.items()},
            "outputs": {
                one: list(sizes[one][0]) if one in sizes else [] for one in self.form.outputs
            },
            "sequences": [
                *(arg for arg, var in self.arguments.items() if var.sequence_levels),
                *(one for one in self.form.outputs if one in self.values.steps),
            ],
            "num_parameters": count,
            "parameters": {
                f"{attribute}.{key}" if key else attribute: variable
                for attribute, layer in self.layers.items()
                for key, variable in layer.variables.items()
            },
            "notes": self.module.notes,
        }


def _given(texts: Mapping[str, str]) -> str:
    """The last line: a value, or a dict of several."""
    if len(texts) == 1:
        return f"return {next(iter(texts.values()))}"
    return f"return {{{', '.join(f'{name!r}: {text}' for name, text in texts.items())}}}"


def _attributes(text: str) -> list[str]:
    """The attributes of the module that lines read."""
    return [part.split("(")[0] for part in _words(text) if part]


def _words(text: str) -> list[str]:
    words: list[str] = []
    for part in text.split("self.")[1:]:
        end = next((k for k, c in enumerate(part) if not (c.isalnum() or c == "_")), len(part))
        words.append(part[:end])
    return words


def _construction(attribute: str, layer: Layer, frozen: Collection[str]) -> list[str]:
    """The lines that make a layer."""
    shown = "" if layer.name == attribute else f"  # {plain_text(layer.name)}"
    line = f"self.{attribute} = {layer.make}"
    if not layer.make:
        (array,) = layer.tensors.values()
        dtype = "" if array.dtype == np.float32 else f", dtype={dtype_text(array.dtype)}"
        line = f'self.register_buffer("{attribute}", torch.zeros({list(array.shape)}{dtype}))'
    short = len(line) + len(shown) <= WIDTH - 8
    lines = [line + shown] if short else [shown.strip(), line] if shown else [line]
    for name, variable in layer.variables.items():
        if variable in frozen and layer.make and not name.startswith("running_"):
            tensor = f"{attribute}.{name}" if name else attribute
            lines.append(f"self.{tensor}.requires_grad_(False)")
    return lines


def _wrapped(lines: Iterable[str], indent: int) -> str:
    return "\n".join(each for line in lines for each in (wrapped(line, indent) if line else [""]))


def _uses(operators: Sequence[Operator]) -> Counter[str]:
    """Variable -> how many slots read it; a static link counts as what the step net reads."""
    counts: Counter[str] = Counter()
    outside = {name: name for op in operators for name in op.input_vars()}
    waiting = [(list(operators), outside)]
    while waiting:
        ops, names = waiting.pop()
        for op in (expanded(op) if op.type in RECURRENT_LAYERS else op for op in ops):
            for slot, given in op.inputs.items():
                if op.type != "recurrent" or slot != "static":
                    counts.update(names[one] for one in given if one in names)
            if op.type == "recurrent":
                step = step_net(op.attrs["net"])
                links = zip(step.statics, op.inputs.get("static", ()), strict=True)
                inner = {name: names[outer] for name, outer in links if outer in names}
                waiting.append((list(step.operators), inner))
    return counts
