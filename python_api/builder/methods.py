"""Layers and operators as methods of NetBuilder.

Every registered operator is a documented, typed method, made from its class on first use, so that
operators of plug-ins have theirs too. Further methods are functions whose first argument is the
builder, registered by `builder_method` or `layer`:

    @layer("w")
    def fc(b: NetBuilder, x: Var | str, size: int | None = None, *, w: Any = None, ...) -> Var:

`methods.pyi`, written by ../stubs.py, tells type checkers and editors the same.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ...framework.base.errors import UnknownOperatorError
from ...framework.ir.registry import OperatorDef, lookup
from .call_checks import checked
from .operator_methods import make_method, method_types

_F = TypeVar("_F", bound=Callable[..., Any])

BUILDER_METHODS: dict[str, Callable[..., Any]] = {}
"""Functions that are methods of NetBuilder, by name."""

_ELSEWHERE = {
    "adaptive_avg_pool": "adaptive_avg_pool2d",
    "all": "reduce_all",
    "amax": "reduce_max",
    "amin": "reduce_min",
    "any": "reduce_any",
    "avgpool2d": "avg_pool2d",
    "batch_normalization": "batch_norm",
    "batchnorm2d": "batch_norm",
    "bce_loss": "sigmoid_cross_entropy(scores, label), of logits",
    "binary_cross_entropy": "sigmoid_cross_entropy(scores, label), of logits",
    "binary_cross_entropy_with_logits": "sigmoid_cross_entropy",
    "bmm": "matmul",
    "broadcast_to": "expand",
    "cat": "concat",
    "categorical_crossentropy": "cross_entropy_loss",
    "crossentropyloss": "cross_entropy_loss",
    "clamp": "clip",
    "concatenate": "concat",
    "compile": 'backward_from(loss) and b.add_optimization(0.001, "adam")',
    "conv": "conv2d",
    "dense": "fc",
    "detach": "stop_gradient",
    "dot": "matmul",
    "eval": "predict({'x': array}, scope=scope), which runs in test phase",
    "evaluate": "predict, or opscope.train(..., evaluate=data)",
    "fit": "add_optimization(0.001), then opscope.train(b, data, epochs=5, scope=scope)",
    "forward": "run(scope, feed=..., fetch=..., need_backward=False), or b.predict",
    "full": "fill_constant(shape=[3], value=1.0)",
    "full_like": "fill_like(x, value=1.0)",
    "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_swish",
    "hardtanh": "hard_tanh",
    "linear": "fc",
    "logsigmoid": "log_sigmoid",
    "max": "reduce_max",
    "maxpool2d": "max_pool2d",
    "mean_squared_error": "mean(b.squared_error(x, y))",
    "min": "reduce_min",
    "mse": "mean(b.squared_error(x, y))",
    "mse_loss": "mean(b.squared_error(x, y))",
    "normal": "gaussian_random(shape=[3])",
    "ones": "fill_constant(shape=[3], value=1.0)",
    "ones_like": "fill_like(x, value=1.0)",
    "parameters": "net.vars, or b.summary()",
    "permute": "transpose",
    "prod": "reduce_prod",
    "rand": "uniform_random(shape=[3])",
    "randn": "gaussian_random(shape=[3])",
    "remainder": "mod",
    "repeat": "repeat_interleave",
    "save": "net with opscope.save(b, scope, 'net.pb')",
    "scatter": "put_along_axis",
    "size": "shape_of(x)",
    "sparse_categorical_crossentropy": "cross_entropy_loss",
    "std": "reduce_std",
    "swish": "silu",
    "to": 'cast(x, dtype="float16"); the place is the scope\'s, Scope(GPUPlace(0))',
    "topk": "top_k",
    "train": "net with opscope.train(b, data, epochs=5, scope=scope)",
    "upsample": "interpolate",
    "var": "reduce_var",
    "view": "reshape",
    "zeros": "fill_constant(shape=[3], value=0.0)",
    "zeros_like": "fill_like(x, value=0.0)",
}
"""Names of layers and operators in PyTorch, NumPy and Keras, in lower case -> what to write here
after `b.`, for messages."""

_PARAMETERS: dict[str, str] = {}
"""Operator type -> its first parameter slot, for operators that have a layer of the same name."""


class BuilderMethods:
    """The methods of NetBuilder that are registered somewhere else: layers and operators."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            entry = lookup(name)
        except UnknownOperatorError as error:
            ours = elsewhere(name)
            said = f"write b.{ours}" if ours else error
            raise AttributeError(f"NetBuilder has no attribute {name!r}; {said}") from None
        method = make_method(entry)
        setattr(BuilderMethods, name, method)
        return method.__get__(self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *method_types()})

    def layer_for(
        self, entry: OperatorDef, positional: int, given: dict[str, Any]
    ) -> Callable[..., Any] | None:
        """The layer that `add_op` should call; None where there is none or parameters are given.

        Args:
            positional: how many positional arguments the call has.
            given: its keyword arguments.
        """
        slot = _PARAMETERS.get(entry.type)
        if slot is None or slot in given:
            return None
        if positional > list(entry.input_slots).index(slot):
            return None
        return getattr(self, entry.type)


def elsewhere(name: str) -> str:
    """What to write after `b.` for a name that PyTorch, NumPy or Keras has; empty if unknown."""
    return _ELSEWHERE.get(name.lower(), "")


def builder_method(function: _F) -> _F:
    """Make a function of (builder, further arguments) a method of NetBuilder.

    Calls of the method with arguments that there are not, or without those that it needs, raise an
    AttributeTypeError that names the line of the call; so does an `activation` that is no name.
    """
    BUILDER_METHODS[function.__name__] = function
    setattr(BuilderMethods, function.__name__, checked(function))
    return function


def takes(options: type) -> Callable[[_F], _F]:
    """Tell the signature of a function whose `**keywords` are the fields of a dataclass.

    Functions that share arguments then name them once: help(), stubs and messages know them all.
    """

    def tell(function: _F) -> _F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        shared = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if _is_required(field) else field.default,
                annotation=field.type,
            )
            for field in dataclasses.fields(options)
        ]
        vars(function)["__signature__"] = signature.replace(parameters=[*own, *shared])
        return function

    return tell


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING


def layer(parameter: str) -> Callable[[_F], _F]:
    """Register the layer of the operator that has the function's name.

    `b.add_op` calls the layer instead of appending the operator where the call does not give the
    input slot `parameter`.
    """

    def register(function: _F) -> _F:
        _PARAMETERS[function.__name__] = parameter
        return builder_method(function)

    return register
