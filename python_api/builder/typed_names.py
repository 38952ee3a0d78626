"""Names of operators as users type them: in any case, or as another toolkit calls them."""

from __future__ import annotations

from typing import Any

from ...framework.base.errors import AttributeTypeError, UnknownOperatorError, spelled
from ...framework.ir.registry import OperatorDef, lookup, operator_types

METHODS_ELSEWHERE = {
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
    "save": "net, and save all with opscope.save(b, scope, 'net.pb')",
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


def elsewhere(name: str) -> str:
    """What to write after `b.` for a name that PyTorch, NumPy or Keras has; empty if unknown."""
    return METHODS_ELSEWHERE.get(spelled(name, METHODS_ELSEWHERE), "")


def operator_typed(name: str, title: str) -> OperatorDef:
    """The operator of a type that somebody has typed: `ReLU` and `log-softmax` are also types.

    Args:
        title: of the call, which begins a message.

    Raises:
        UnknownOperatorError: there is none; where it goes by another name here, the message has it.
    """
    try:
        return lookup(name if name.islower() else spelled(name, operator_types()), title)
    except UnknownOperatorError:
        meant = spelled(name, operator_types())
        ours = elsewhere(name)
        if meant != name:
            return lookup(meant)
        if not ours:
            raise
        raise UnknownOperatorError(
            f"{title}: no operator of type {name!r}; here it is {ours}"
        ) from None


def activation_type(title: str, value: Any) -> str:
    """The type of an argument `activation`: an operator's name in any case, or "".

    Args:
        title: of the layer, in messages.

    Raises:
        AttributeTypeError: no string, such as `b.relu`. UnknownOperatorError: no operator.
    """
    if isinstance(value, str):
        return operator_typed(value, f"{title}: activation").type if value else ""
    name = spelled(getattr(value, "__name__", type(value).__name__), operator_types())
    known = name in operator_types()
    raise AttributeTypeError(
        f"{title}: activation is the name of an operator, not {value!r}; "
        + (f'write activation="{name}"' if known else 'such as activation="relu", or "" for none')
    )
