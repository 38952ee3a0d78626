"""One architecture through all routes, beside PyTorch in float64."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from opscope import NetBuilder, OpscopeError, from_torch
from opscope.bridges.onnx.importing.model import model_of_bytes

SETTINGS = {1: torch.float64, 2: torch.float32}
"""Batch -> dtype. In float64 a fault cannot look like rounding; float32 has kernels of its own."""
BOUND = {torch.float64: 1e-5, torch.float32: 1e-4}
"""Largest difference, as a part of the largest number. Some models compute in float32 always."""
_WORSE_THAN_TORCH = 10.0
"""PyTorch's own float32 may be further from float64 than the bound; ours may be so many times as
far."""
_NO_GRADIENT = {torch.float64: 1e-8, torch.float32: 1e-6}
"""Every gradient may differ by this part of the largest one of the model: that much is rounding."""
_ZERO = _NO_GRADIENT[torch.float32]
"""A gradient all of which is smaller than this part of the largest one may differ by as much, in
float64 too: it is a zero, as that of a bias that every score of a softmax has. What PyTorch gives
for it is rounding, that of float32 where a model computes its scores in float32 always (Funnel),
and says nothing about how large the rounding of another order of sums is."""
RIGHT, WRONG, REFUSED, CRASH, NO_EXPORT = "right", "wrong", "refused", "crash", "not exported"
_SHOWN = 200
_DRAWS = {torch.float64: 1, torch.float32: 3}
"""In float32 an activation near zero may fall on the other side of ReLU's bend, there or here. Its
gradient then is another one; at the next draw of inputs it is not."""


@dataclass(frozen=True)
class Architecture:
    """One row of the table.

    Attributes:
        name: as the library calls it. family: the library.
        make: builds the module. draw: batch -> inputs.
    """

    name: str
    family: str
    make: Callable[[], nn.Module]
    draw: Callable[[int], Sequence[torch.Tensor]]


@dataclass
class Wanted:
    """What PyTorch computes.

    Attributes:
        outputs: those of floats. gradients: by names of parameters, and of inputs.
    """

    outputs: list[np.ndarray]
    gradients: dict[str, np.ndarray] = field(default_factory=dict)


def input_names(inputs: Sequence[torch.Tensor]) -> list[str]:
    return [f"input{k}" for k in range(len(inputs))]


# -- the module ------------------------------------------------------------------------------------


def made(one: Architecture) -> nn.Module:
    """The module with random weights, in evaluation form.

    First values that hide a branch are replaced: zeros, ones, scales of 1e-6, and statistics of
    batch normalization that change nothing. So are those that another parameter has as well: the
    exporter on TorchScript writes equal tensors once, under one of their names.
    """
    torch.manual_seed(0)
    module = one.make().eval()
    seen: set[bytes] = set()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point() and parameter.min() == parameter.max():
                first = float(parameter.flatten()[0])
                first = first if abs(first) > 0.01 or first == 0 else 0.5
                parameter.copy_(first + 0.1 * torch.randn_like(parameter))
            elif parameter.is_floating_point() and parameter.numpy().tobytes() in seen:
                parameter.add_(0.1 * torch.randn_like(parameter))
            seen.add(parameter.numpy().tobytes())
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.track_running_stats:
                part.running_mean.normal_(0, 0.1)
                part.running_var.uniform_(0.5, 1.5)
    return module


def cast(inputs: Sequence[torch.Tensor], dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    return tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)


def floats(value: Any) -> list[torch.Tensor]:
    """The tensors of floats in a nested result, in order."""
    leaves = pytree.tree_leaves(value)
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]


def weights_of(shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """What the outputs are multiplied with before they are summed up."""
    rng = np.random.default_rng(1)
    return [rng.normal(size=tuple(shape)) for shape in shapes]


@contextmanager
def batch_norm_mended() -> Iterator[None]:
    """Gradients of batch normalization are right at batch 1.

    In evaluation form PyTorch's kernel goes through the gradient in the order of the input. At
    batch 1 a transposed gradient does not lie so, and what comes of it is wrong.
    """
    kept = nn.functional.batch_norm

    def mended(*args: Any, **options: Any) -> torch.Tensor:
        out = kept(*args, **options)
        if out.requires_grad:
            out.register_hook(torch.Tensor.contiguous)
        return out

    with patch.object(nn.functional, "batch_norm", mended):
        yield


def computed(module: nn.Module, inputs: Sequence[torch.Tensor], dtype: torch.dtype) -> Wanted:
    """Outputs and gradients in PyTorch."""
    module = module.to(dtype)
    module.zero_grad()
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in cast(inputs, dtype)]
    with batch_norm_mended():
        outputs = floats(module(*leaves))
    weights = weights_of([x.shape for x in outputs])
    cost = sum((x * torch.from_numpy(w)).sum() for x, w in zip(outputs, weights, strict=True))
    assert isinstance(cost, torch.Tensor)
    cost.backward()
    named = {name: p.grad for name, p in module.named_parameters()}
    named |= {name: x.grad for name, x in zip(input_names(inputs), leaves, strict=True)}
    return Wanted(
        [x.detach().double().numpy() for x in outputs],
        {name: grad.double().numpy() for name, grad in named.items() if grad is not None},
    )


# -- routes ----------------------------------------------------------------------------------------


def by_program(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
    """What `from_torch` takes."""
    return torch.export.export(module, inputs)


def by_script(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> bytes:
    """An ONNX file of the exporter on TorchScript.

    Nothing is folded, so that parameters keep their names.
    """
    file = io.BytesIO()
    torch.onnx.export(
        module,
        inputs,
        file,
        dynamo=False,
        input_names=input_names(inputs),
        opset_version=17,
        do_constant_folding=False,
        training=torch.onnx.TrainingMode.PRESERVE,
    )
    return file.getvalue()


def by_dynamo(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> bytes:
    """An ONNX file of the exporter on torch.export."""
    names = input_names(inputs)
    made = torch.onnx.export(
        module, inputs, dynamo=True, optimize=False, verbose=False, input_names=names
    )
    assert made is not None
    return made.model_proto.SerializeToString()


ROUTES: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "from_torch": (by_program, from_torch),
    "onnx script": (by_script, model_of_bytes),
    "onnx dynamo": (by_dynamo, model_of_bytes),
}
"""Route -> what PyTorch exports, and what reads that here."""


# -- measuring -------------------------------------------------------------------------------------


@dataclass
class Draw:
    """Inputs, what PyTorch computes of them in their dtype, and what it should be."""

    inputs: tuple[torch.Tensor, ...]
    own: Wanted
    wanted: Wanted


def drawn(one: Architecture, module: nn.Module, batch: int, dtype: torch.dtype) -> Iterator[Draw]:
    """Inputs of an architecture, as many as are asked for."""
    for seed in range(_DRAWS[dtype]):
        torch.manual_seed(seed)
        inputs = one.draw(batch)
        own, wanted = (computed(module, inputs, each) for each in (dtype, torch.float64))
        module.to(dtype)
        yield Draw(cast(inputs, dtype), own, wanted)


def measure(one: Architecture, routes: Sequence[str] = tuple(ROUTES)) -> dict[str, dict[str, str]]:
    """Route and batch -> {"forward": ..., "gradients": ...}."""
    found = {}
    for batch, dtype in SETTINGS.items():
        module = made(one)
        draws = drawn(one, module, batch, dtype)
        case = Case(module, dtype, [next(draws)], draws)
        for route in routes:
            found[f"{route} {batch}"] = case.through(route)
    return found


@dataclass
class Case:
    """A module with inputs of one batch.

    Attributes:
        draws: those that were used. more: gives further ones.
    """

    module: nn.Module
    dtype: torch.dtype
    draws: list[Draw]
    more: Iterator[Draw]

    def through(self, route: str) -> dict[str, str]:
        """What comes of it."""
        export, read = ROUTES[route]
        try:
            with quiet():
                exported = export(self.module, self.draws[0].inputs)
        except Exception as error:  # whatever PyTorch says
            return dict.fromkeys(("forward", "gradients"), told(NO_EXPORT, error))
        model: Any = None

        def forward() -> str:
            nonlocal model
            model = read(exported)
            return self._forward(model)

        found = {"forward": outcome(forward)}
        if model is None:
            return found | {"gradients": found["forward"]}
        return found | {"gradients": outcome(lambda: self._gradients(model))}

    def _forward(self, model: Any) -> str:
        draw = self.draws[0]
        found = model.run(_feed(model, draw.inputs))
        arrays = [array for array in found.values() if array.dtype.kind == "f"]
        if len(arrays) != len(draw.wanted.outputs):
            return f"{WRONG}: {len(arrays)} outputs, not {len(draw.wanted.outputs)}"
        for k, (array, own, wanted) in enumerate(
            zip(arrays, draw.own.outputs, draw.wanted.outputs, strict=True)
        ):
            if wrong := self._compared(f"output {k}", array, own, wanted, 0.0):
                return wrong
        return RIGHT

    def _gradients(self, model: Any) -> str:
        """A fault is one at each draw."""
        first = self.draws[0]
        shapes = {n: array.shape for n, array in _feed(model, first.inputs).items()}
        b = NetBuilder.from_desc(model.op_list(shapes))
        weights = _weighted(b, model, first.wanted)
        variables = self._variables(
            model, dict(zip(input_names(first.inputs), shapes, strict=True))
        )
        b.backward_from("zoo.cost", wrt=list(variables.values()))
        fetch = {name: b.gradient(variable) for name, variable in variables.items()}
        wrong, number = RIGHT, 0
        while number < len(self.draws):
            draw = self.draws[number]
            feed = _feed(model, draw.inputs) | weights
            made = b.run(model.scope, feed=feed, fetch=list(fetch.values()))
            found = {name: made[gradient] for name, gradient in fetch.items()}
            wrong = self._gradients_at(draw, found)
            if not wrong:
                return RIGHT
            number += 1
            if number == len(self.draws):
                self.draws += [each for each in (next(self.more, None),) if each]
        return wrong

    def _gradients_at(self, draw: Draw, found: Mapping[str, np.ndarray]) -> str:
        largest = max(float(np.abs(w).max(initial=0)) for w in draw.wanted.gradients.values())
        floor, zero = _NO_GRADIENT[self.dtype] * largest, _ZERO * largest
        for name, array in found.items():
            own, wanted = draw.own.gradients[name], draw.wanted.gradients[name]
            is_zero = float(np.abs(wanted).max(initial=0)) < zero
            if wrong := self._compared(name, array, own, wanted, zero if is_zero else floor):
                return wrong
        return ""

    def _variables(self, model: Any, inputs: Mapping[str, str]) -> dict[str, str]:
        """Parameter or input of the module -> the variable in the net.

        A tied parameter has one of its names; an ONNX file holds single numbers as settings.
        """
        names: dict[nn.Parameter, list[str]] = {}
        for name, parameter in self.module.named_parameters(remove_duplicate=False):
            names.setdefault(parameter, []).append(name)
        tied = {one: every for every in names.values() for one in every}
        found, known = {}, set(model.parameters)
        for name, gradient in self.draws[0].wanted.gradients.items():
            if name in inputs:
                found[name] = inputs[name]
            elif variable := next((one for one in tied[name] if one in known), None):
                found[name] = variable
            elif gradient.size > 1 or not hasattr(model, "opset"):
                raise LookupError(f"the model has no parameter {name!r}")
        return found

    def _compared(
        self, name: str, found: np.ndarray, own: np.ndarray, wanted: np.ndarray, floor: float
    ) -> str:
        """What is wrong with an array, if anything is."""
        if found.shape != wanted.shape:
            return f"{WRONG}: {name} is {list(found.shape)}, not {list(wanted.shape)}"
        if not wanted.size:
            return ""
        size = float(np.abs(wanted).max())
        distance = float(np.abs(found - wanted).max())
        allowed = BOUND[self.dtype] * size + floor
        allowed = max(allowed, _WORSE_THAN_TORCH * float(np.abs(own - wanted).max()))
        if math.isfinite(distance) and distance <= allowed:
            return ""
        return f"{WRONG}: {name} differs by {distance:.2g} of {size:.2g}"


def _feed(model: Any, inputs: Sequence[torch.Tensor]) -> dict[str, np.ndarray]:
    names = [info.name for info in model.inputs]
    return dict(zip(names, (x.numpy() for x in inputs), strict=True))


def _weighted(b: NetBuilder, model: Any, wanted: Wanted) -> dict[str, np.ndarray]:
    """Append the cost `zoo.cost`: outputs times weights, summed up. Returns the weights to feed."""
    outputs = [b.var(info.name) for info in model.outputs if info.dtype.kind == "f"]
    feed, costs = {}, []
    for k, weight in enumerate(weights_of([array.shape for array in wanted.outputs])):
        out = outputs[k]
        given = feed[f"zoo.weights{k}"] = weight.astype(out.dtype)
        factor = b.input(f"zoo.weights{k}", list(given.shape), str(given.dtype))
        costs.append(b.reduce_sum(b.mul(out, factor)))
    b.sum(costs, name="zoo.cost")
    return feed


def outcome(work: Callable[[], str]) -> str:
    """What work says, or the error that it ends with."""
    try:
        with quiet():
            return work()
    except OpscopeError as error:
        return told(REFUSED, error)
    except Exception as error:  # a fault here, which the table names
        return told(CRASH, error)


def told(word: str, error: Exception) -> str:
    """An error in one line."""
    text = re.sub(r"\S*/site-packages/|\x1b\[\d*m", "", " ".join(str(error).split()))
    kind = "" if word == REFUSED else f"{type(error).__name__}: "
    return f"{word}: {kind}{text}"[:_SHOWN]


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
