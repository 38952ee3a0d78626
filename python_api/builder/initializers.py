"""Initializers of parameters by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, nearest, spelled
from ...framework.ir.desc import attr_values, make_op
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import REGISTERED, lookup

# name -> operator type and attributes
INITIALIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "zeros": ("fill_constant", {"value": 0.0}),
    "ones": ("fill_constant", {"value": 1.0}),
    "uniform": ("uniform_random", {"low": -0.05, "high": 0.05}),
    "normal": ("gaussian_random", {"mean": 0.0, "std": 0.01}),
    "xavier": ("xavier_random", {}),
    "he": ("he_random", {}),
}


_ELSEWHERE = {
    "zero": "zeros",
    "one": "ones",
    "constant": "fill_constant",
    "glorot": "xavier",
    "glorot_normal": "xavier",
    "glorot_uniform": "xavier",
    "xavier_normal": "xavier",
    "xavier_uniform": "xavier",
    "he_normal": "he",
    "he_uniform": "he",
    "kaiming": "he",
    "kaiming_normal": "he",
    "kaiming_uniform": "he",
    "gaussian": "normal",
    "random_normal": "normal",
    "random_uniform": "uniform",
    "orthogonal": "orthogonal_random",
}
"""Names of initializers in PyTorch and Keras -> ours, for messages."""


def initializer(init: Any, name: str, shape: Sequence[int], dtype: np.dtype) -> OpNode:
    """The operator that fills variable `name`.

    Args:
        init: a name of `INITIALIZERS`; a number (constant); (operator type, attributes); or a name
            with attributes, as `("uniform", {"low": -1.0, "high": 1.0})`; or an array, or what
            makes one.

    Raises:
        AttributeTypeError: no such initializer, no such attribute of it, or an array of another
            shape.
    """
    if not isinstance(init, np.ndarray):
        init = _as_array(init, name)
    if isinstance(init, np.ndarray):
        if init.shape != tuple(shape):
            raise AttributeTypeError(
                f"parameter {name!r} is {list(shape)}, its first value {list(init.shape)}"
            )
        return make_op("constant", {}, {"out": name}, {"value": init.astype(dtype)})
    attrs: Mapping[str, Any] = {}
    if isinstance(init, (int, float)):
        init, attrs = "fill_constant", {"value": float(init)}
    elif isinstance(init, tuple) and len(init) == 2 and isinstance(init[0], str):
        init, attrs = init
        if not isinstance(attrs, Mapping):
            raise AttributeTypeError(
                f'parameter {name!r}: attributes go by name, ("uniform", {{"low": -1.0}}), not'
                f" ({init!r}, {attrs!r})"
            )
    elif not isinstance(init, str):
        raise AttributeTypeError(
            f"parameter {name!r}: {init!r} is no initializer; want a name"
            f" ({', '.join(INITIALIZERS)}), a name with attributes, a number, or an array"
        )
    if init not in INITIALIZERS and init not in REGISTERED:
        init = spelled(init, INITIALIZERS)
    if init in INITIALIZERS:
        op_type, defaults = INITIALIZERS[init]
        attrs = {**defaults, **attrs}
    elif init.endswith("_random") or init == "fill_constant":
        op_type = init
    else:
        ours = _ELSEWHERE.get(spelled(init, _ELSEWHERE), "")
        hint = f' (write "{ours}")' if ours else nearest(init, INITIALIZERS)
        raise AttributeTypeError(
            f"parameter {name!r}: no initializer {init!r}{hint}; known: {', '.join(INITIALIZERS)}"
        )
    entry = REGISTERED.get(op_type) or lookup(op_type, f"parameter {name!r}: initializer")
    known = entry.attr_specs
    for key in attrs:
        if key not in known:
            own = [attr for attr in known if attr not in ("shape", "dtype")]
            raise AttributeTypeError(
                f"parameter {name!r}: initializer {init!r} has no attribute"
                f" {key!r}{nearest(key, own)}; it has {', '.join(own)}"
            )
    own = make_op(op_type, {}, {"out": name})
    own.attrs = _attrs_of(op_type, tuple([int(dim) for dim in shape]), dtype, attrs)
    return own


_MOST_ALIKE = 1 << 10
_ALIKE: dict[Any, dict[str, Any]] = {}
"""Attributes of initializers, which those share that fill variables alike."""


def _attrs_of(
    op_type: str, shape: tuple[int, ...], dtype: np.dtype, attrs: Mapping[str, Any]
) -> dict[str, Any]:
    """The attributes of an initializer as nets hold them."""
    own = {"shape": shape, "dtype": dtype, **attrs}
    if not all([isinstance(value, (int, float, str)) for value in attrs.values()]):
        return attr_values(own)
    key = op_type, shape, dtype, repr(attrs)  # by text: 0.0 equals -0.0, and False 0
    found = _ALIKE.get(key)
    if found is None:
        if len(_ALIKE) >= _MOST_ALIKE:
            _ALIKE.clear()
        found = _ALIKE[key] = attr_values(own)
    return found


def _as_array(init: Any, name: str) -> Any:
    """A list of numbers, or a tensor of somebody else's, as an array; all else as it is."""
    pair = isinstance(init, tuple) and any(isinstance(item, str) for item in init)
    if pair or not (isinstance(init, (list, tuple)) or hasattr(init, "__array__")):
        return init
    try:
        array = np.asarray(init)
    except (ValueError, TypeError, RuntimeError) as error:
        raise AttributeTypeError(
            f"parameter {name!r}: its first value is no array: {error}"
        ) from None
    return array if array.dtype.kind in "biuf" else init
