"""Calls of the builder's methods: what is wrong with their arguments, and what to write instead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from ...framework.base.errors import (
    AttributeTypeError,
    ShapeError,
    UnknownOperatorError,
    VariableError,
    nearest,
)
from ...framework.ir.desc import caller_location
from ...framework.ir.registry import lookup

_F = TypeVar("_F", bound=Callable[..., Any])

_ELSEWHERE = {
    "kernel_size": "kernel",
    "pool_size": "kernel",
    "out_channels": "filters",
    "out_features": "size",
    "output_size": "size",
    "units": "size",
    "hidden_size": "size",
    "num_layers": "layers",
    "num_heads": "heads",
    "nhead": "heads",
    "dim_feedforward": "feedforward",
    "embed_dim": "size",
    "d_model": "size",
    "is_causal": "causal",
    "num_groups": "groups",
    "scale_factor": "scale",
    "weight": "w",
    "use_bias": "bias",
    "kernel_initializer": "init",
    "eps": "epsilon",
    "dim": "axis",
    "dims": "axes",
    "ord": "p",
    "k": "diagonal",
    "correction": "ddof",
    "rate": "p",
    "probability": "p",
    "num_classes": "depth",
    "end_dim": "axis",
    "start_dim": "axis",
    "permutation": "perm",
    "input_shape": "shape",
    "level": "levels",
    "epoch": "epochs",
    "num_epochs": "epochs",
    "nb_epoch": "epochs",
    "validation_data": "evaluate",
    "eval_data": "evaluate",
    "feed_dict": "feed",
    "fetches": "fetch",
    "fetch_list": "fetch",
    "outputs": "fetch",
    "requires_grad": "trainable",
    "initializer": "init",
    "weight_init": "init",
    "padding_mode": "mode",
}
"""Names of arguments in PyTorch, NumPy and Keras -> ours, for messages."""

_LONG = 60
"""Characters of a value that a message does not repeat."""

_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    "bool": ((bool, np.bool_), "True or False"),
    "int": ((int, np.integer), "a whole number"),
    "int | None": ((int, np.integer), "a whole number"),
    "float | None": ((int, float, np.number), "a number"),
}
"""Annotations of plain arguments -> their types, and what a message calls them."""


def where() -> str:
    """File and line of the user's call, for messages."""
    location = caller_location()
    return f"{location.file}:{location.line}" if location.file else "NetBuilder"


def checked(function: _F) -> _F:
    """A function of (builder, further arguments) whose wrong calls say where they are and why.

    It may be another's, whose first argument is always given.
    """
    signature = inspect.signature(function)
    kinds = {
        name: _KINDS[parameter.annotation]
        for name, parameter in signature.parameters.items()
        if parameter.annotation in _KINDS
    }
    if "name" in signature.parameters:
        kinds["name"] = (str,), "a str"
    activation = signature.parameters.get("activation")
    has_activation = activation is not None and activation.annotation in (str, "str")

    @functools.wraps(function)
    def method(*args: Any, **keywords: Any) -> Any:
        if has_activation:
            given = _bound(function, signature, args, keywords).arguments
            if "activation" in given:
                check_activation(f"{where()}: {function.__name__}", given["activation"])
        _check_kinds(function, kinds, keywords)
        try:
            return function(*args, **keywords)
        except TypeError:  # say it better where the call is wrong
            given = _bound(function, signature, args, keywords)
            _check_kinds(function, kinds, given.arguments)
            raise

    return cast(_F, method)


def _check_kinds(
    function: Callable[..., Any],
    kinds: Mapping[str, tuple[tuple[type, ...], str]],
    given: Mapping[str, Any],
) -> None:
    """Refuse arguments of other types than the signature says, where these are plain ones."""
    for key in kinds.keys() & given.keys():
        value, (types, said) = given[key], kinds[key]
        switch = isinstance(value, bool) and bool not in types
        if value is not None and (switch or not isinstance(value, types)):
            raise AttributeTypeError(
                f"{where()}: {function.__name__}: {key} is {said}, not {value!r}"
            )


def _bound(
    function: Callable[..., Any],
    signature: inspect.Signature,
    args: tuple[Any, ...],
    keywords: dict[str, Any],
) -> inspect.BoundArguments:
    """The arguments of a call by name.

    Raises:
        AttributeTypeError: the function does not take them.
    """
    known = [name for name in signature.parameters][1:]
    title = f"{where()}: {function.__name__}"
    if not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        for key, value in keywords.items():
            if key not in known:
                raise AttributeTypeError(
                    f"{title} has no argument {key!r}{instead_of(key, value, known)};"
                    f" it has {', '.join(known)}"
                )
    try:
        return signature.bind(*args, **keywords)
    except TypeError as error:
        raise AttributeTypeError(f"{title}: {error}; it takes {', '.join(known)}") from None


def instead_of(key: str, value: Any, known: Sequence[str]) -> str:
    """What to write for an argument that there is not: ` (write kernel=3)`, or the nearest names.

    Args:
        value: what was given for it.
        known: the arguments that there are.
    """
    ours, shown = _ELSEWHERE.get(key, ""), repr(value)
    if ours not in known:
        return nearest(key, known)
    return f" (write {ours}={shown if len(shown) < _LONG else '...'})"


def check_activation(title: str, value: Any) -> None:
    """Refuse an argument `activation` that is no operator's name, in any case, nor "".

    Args:
        title: of the layer, in messages.

    Raises:
        AttributeTypeError: no string, such as `b.relu`. UnknownOperatorError: no operator.
    """
    if isinstance(value, str):
        if value:
            lookup(value.lower(), f"{title}: activation")
        return
    name = getattr(value, "__name__", type(value).__name__).lower()
    try:
        lookup(name)
    except UnknownOperatorError:
        name = ""
    raise AttributeTypeError(
        f"{title}: activation is the name of an operator, not {value!r}; "
        + (f'write activation="{name}"' if name else 'such as activation="relu", or "" for none')
    )


def check_name(name: Any, what: str) -> None:
    """Refuse a name of a variable that is no text.

    Raises:
        VariableError: it is none, or empty. `what` begins the message: `an input`.
    """
    if not isinstance(name, str) or not name:
        raise VariableError(f"{where()}: {what} is named by a str, not by {name!r}")


def no_variable(value: Any) -> str:
    """What somebody gave instead of a variable, and how numbers become one; for messages."""
    if value is None or isinstance(value, (dict, set)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        kinds = ", ".join(type(item).__name__ for item in value[:3])
        return (
            f"a {type(value).__name__} of {len(value)} ({kinds}); pick what is meant, as [0] does"
        )
    if isinstance(value, (int, float, np.number)):
        return (
            f"{value!r}: numbers go with variables in Python's operators, x + {value!r};"
            f" b.constant(value={value!r}) makes a variable of one"
        )
    if hasattr(value, "__array__"):
        dims = list(np.shape(value))
        return (
            f"an array {dims}: feed it to an input, b.input(name, shape), in a run, or make a"
            " constant of it, b.constant(value=array)"
        )
    return f"a {type(value).__name__}: {value!r}"


def declared_shape(what: str, shape: Any) -> tuple[int, ...]:
    """A shape as declarations hold it: None becomes -1, a dimension that is not known.

    Args:
        what: begins the message of an error: `input 'x'`, say.

    Raises:
        ShapeError: no list of whole numbers from -1 on.
    """
    if isinstance(shape, np.ndarray):
        shape = shape.tolist()
    if isinstance(shape, (list, tuple)):
        dims = [-1 if dim is None else dim for dim in shape]
        whole = (isinstance(dim, (int, np.integer)) and not isinstance(dim, bool) for dim in dims)
        if all(whole) and all(dim >= -1 for dim in dims):
            return tuple(map(int, dims))
    hint = f"; write [{shape}]" if isinstance(shape, int) else ""
    raise ShapeError(
        f"{where()}: {what}: want a list of whole numbers, -1 for a dimension that may differ,"
        f" not {shape!r}{hint}"
    )
