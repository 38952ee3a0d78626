"""Calls of the builder's methods.

The arguments of a call, such as `b.split(x, num=3)`, become input slots and attributes. What is
wrong with them is refused, with what to write instead.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from ...framework.base.errors import (
    AttributeTypeError,
    OpscopeError,
    ShapeError,
    SlotError,
    VariableError,
    nearest,
    spelled,
)
from ...framework.ir.desc import caller_location
from ...framework.ir.messages import attr_value
from ...framework.ir.registry import REGISTERED, OperatorDef
from .typed_names import activation_type

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
    "batch_size": "size",
    "epoch": "epochs",
    "type": "pool_type",
    "kind": "pool_type",
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


ALGORITHM = "_algorithm"
"""`padding="same"` says `padding_algorithm="same"`: a word where the attribute holds numbers."""

_COUNT, _SECTIONS = "num", "sections"
"""How many variables a duplicable output slot gets: `num=3`, or one for each of `sections`."""


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
    place = list(signature.parameters).index("activation") if has_activation else 0

    @functools.wraps(function)
    def method(*args: Any, **keywords: Any) -> Any:
        if has_activation:
            typed = args[place] if len(args) > place else keywords.get("activation", "")
            if not isinstance(typed, str) or (typed and typed not in REGISTERED):
                given = _bound(function, signature, args, keywords)
                title = f"{where()}: {function.__name__}"
                given.arguments["activation"] = activation_type(title, typed)
                args, keywords = given.args, given.kwargs
        if keywords:
            _check_kinds(function, kinds, keywords)
        try:
            return function(*args, **keywords)
        except TypeError:  # say it better where the call is wrong
            given = _bound(function, signature, args, keywords)
            _check_kinds(function, kinds, given.arguments)
            raise

    return cast(_F, method)


def _called(function: Callable[..., Any]) -> str:
    """The name by which a function is called: the class's for its `__init__`."""
    return function.__qualname__.removesuffix(".__init__").rpartition(".")[2]


def all_or_nothing(function: _F) -> _F:
    """A function of (builder, further arguments) that appends what it appends, or nothing."""

    @functools.wraps(function)
    def method(builder: Any, *args: Any, **keywords: Any) -> Any:
        around = builder.within
        try:
            with builder.forward_net.all_or_nothing():
                return function(builder, *args, **keywords)
        finally:
            builder.within = around

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
                f"{where()}: {_called(function)}: {key} is {said}, not {value!r}"
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
    title = f"{where()}: {_called(function)}"
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
    ours = _ELSEWHERE.get(key, "")
    shown = repr(value)
    if ours not in known:
        return nearest(key, known)
    return f" (write {ours}={shown if len(shown) < _LONG else '...'})"


def check_name(name: Any, what: str) -> None:
    """Refuse a name of a variable that is no text.

    Raises:
        VariableError: it is none, or empty. `what` begins the message: `an input`.
    """
    if not isinstance(name, str) or not name:
        raise VariableError(f"{where()}: {what} is named by a str, not by {name!r}")


def no_variable(value: Any, operand: bool = False) -> str:
    """What somebody gave instead of a variable, and how numbers become one; for messages.

    Args:
        operand: of an operator, for which a number makes sense.
    """
    if value is None or isinstance(value, (dict, set)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        kinds = ", ".join(type(item).__name__ for item in value[:3])
        return (
            f"a {type(value).__name__} of {len(value)} ({kinds}); pick what is meant, as [0] does"
        )
    if isinstance(value, (int, float, np.number)):
        if not operand:
            return f"the number {value!r}"
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
        if all([type(dim) is int and dim >= -1 for dim in dims]):
            return tuple(dims)
        whole = (isinstance(dim, (int, np.integer)) and not isinstance(dim, bool) for dim in dims)
        if all(whole) and all(dim >= -1 for dim in dims):
            return tuple(map(int, dims))
    hint = f"; write [{shape}]" if isinstance(shape, int) else ""
    raise ShapeError(
        f"{where()}: {what}: want a list of whole numbers, -1 for a dimension that may differ,"
        f" not {shape!r}{hint}"
    )


def split_arguments(
    entry: OperatorDef,
    inputs: Sequence[Any],
    keywords: Mapping[str, Any],
    names_of: Callable[[Any, OperatorDef, str], list[str]],
) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Split a call's arguments into input slots, as lists of variable names, and attributes.

    Args:
        inputs: positional arguments, in the order of the slots.
        keywords: further inputs by slot name, and attributes.
        names_of: (value, operator, slot) -> the names of the variables that the value stands for.

    Raises:
        SlotError: too many inputs, an attribute by position, or a slot that is given twice.
        AttributeTypeError: a keyword that is neither a slot nor an attribute.
    """
    if len(inputs) > len(entry.inputs):
        raise SlotError(_too_many(entry, inputs))
    slots = {}
    for slot, value in zip(entry.inputs, inputs, strict=False):
        if slot.optional and (meant := _attribute_meant(entry, value)):
            raise SlotError(
                f"{where()}: {entry.type}: slot {slot.name!r} wants a variable, not {value!r};"
                f" attributes are given by name: {meant}={value!r}"
            )
        if value is not None:
            slots[slot.name] = names_of(value, entry, slot.name)
    attrs = {}
    for key, value in keywords.items():
        if key in entry.input_slots:
            if key in slots:
                raise SlotError(f"{where()}: {entry.type}: slot {key!r} is given twice")
            if value is not None:
                slots[key] = names_of(value, entry, key)
        elif isinstance(value, str) and key + ALGORITHM in entry.attr_specs:
            attrs[key + ALGORITHM] = value
        elif key in entry.attr_specs:
            attrs[key] = value
        else:
            known = (*entry.input_slots, *entry.attr_specs)
            raise AttributeTypeError(
                f"{where()}: {entry.type} has no slot or attribute {key!r}"
                f"{instead_of(key, value, known)}; it has {', '.join(known)}"
            )
    return slots, attrs


def _attribute_meant(entry: OperatorDef, value: Any) -> str:
    """The first attribute that takes a number or list given by position; "" for other values."""
    items = value if isinstance(value, (list, tuple)) else [value]
    if not items or not all(isinstance(item, (int, float, np.number)) for item in items):
        return ""
    for attr in entry.attrs:
        with contextlib.suppress(OpscopeError):
            attr.check(value, entry.type)
            return attr.name
    return ""


def _too_many(entry: OperatorDef, inputs: Sequence[Any]) -> str:
    """The message of a call with more positional arguments than input slots, and what to write."""
    given = enumerate(zip(entry.inputs, inputs, strict=False))
    # Where a number stands in the place of an optional slot, attributes begin.
    numbers = (n for n, (slot, v) in given if slot.optional and _attribute_meant(entry, v))
    slots = [slot.name for slot in entry.inputs[: next(numbers, None)]]
    extra = inputs[len(slots) :]
    text = f"{where()}: {entry.type} takes {', '.join(slots) or 'nothing'} by position"
    if len(slots) == 1 and entry.inputs[0].duplicable:
        return f"{text}, as a list: {entry.type}([{', '.join(map(str, inputs))}])"
    if extra and isinstance(inputs[0], (list, dict)) and isinstance(inputs[1], (list, dict)):
        return (
            f"{text}; lists of inputs and of outputs are what the add_op of a net takes,"
            f" b.forward_net.add_op({entry.type!r}, ...). A builder names outputs by name=:"
            f" b.{entry.type}({', '.join(slots)}, name='y')"
        )
    if len(extra) == 1 and isinstance(extra[0], str) and not entry.attrs:
        return f"{text}; the result is named by name={extra[0]!r}"
    if len(extra) == 1 and isinstance(extra[0], str) and len(entry.attrs) == 1:
        return f"{text} and attributes by name: {entry.attrs[0].name}={extra[0]!r}"
    listed = entry.attrs and entry.attrs[0].type in ("ints", "floats")
    if listed and len(extra) > 1 and all(isinstance(v, int) for v in extra):
        return f"{text} and attributes by name: {entry.attrs[0].name}={list(extra)!r}"
    if all(not isinstance(value, str) and not hasattr(value, "builder") for value in extra):
        names = [attr.name for attr in entry.attrs][: len(extra)]
        if len(names) == len(extra):
            pairs = (f"{name}={value!r}" for name, value in zip(names, extra, strict=True))
            return f"{text} and attributes by name: {', '.join(pairs)}"
    return f"{text}, which are {len(slots)} inputs, not {len(inputs)}"


def encoded_attrs(entry: OperatorDef, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes in the form that descriptions hold; those that are None are left out."""
    encoded = {}
    for key, value in attrs.items():
        if isinstance(value, str) and entry.attr_specs[key].choices:
            value = spelled(value, map(str, entry.attr_specs[key].choices))
        if value is not None:
            encoded[key] = attr_value(value, _kind(entry, key))
    return encoded


def _kind(entry: OperatorDef, key: str) -> str | None:
    """The declared attribute type where Python's own type would be ambiguous."""
    kind = entry.attr_specs[key].type
    return kind if kind in ("dtype", "tensor", "net") else None


def pop_count(entry: OperatorDef, keywords: dict[str, Any]) -> int:
    """Take `num`, the number of variables in an output slot, out of the keywords; 0 for none."""
    if _COUNT not in keywords or _COUNT in entry.attr_specs:
        return 0
    return keywords.pop(_COUNT) if any(slot.duplicable for slot in entry.outputs) else 0


def counterparts(entry: OperatorDef, slots: Mapping[str, Sequence[str]]) -> int:
    """How many variables a duplicable output slot gets where the call does not say it.

    One for each variable of the input, where one input and one output are duplicable; else 1.
    """
    inputs = [slot.name for slot in entry.inputs if slot.duplicable]
    outputs = [slot.name for slot in entry.outputs if slot.duplicable]
    return len(slots.get(inputs[0], ())) if len(inputs) == len(outputs) == 1 else 1


def output_names(
    entry: OperatorDef, name: str, count: int, attrs: Mapping[str, Any], fixed: Mapping[str, str]
) -> dict[str, list[str]]:
    """Output slot -> variable names: `name` for the first slot, `name.slot` for others.

    Args:
        count: of variables in a duplicable slot, where no attribute `sections` says it.
        fixed: slots whose variable exists already.
    """
    sections = attrs.get(_SECTIONS)
    if sections is not None and not isinstance(sections, (list, tuple, np.ndarray)):
        raise AttributeTypeError(
            f"{where()}: {entry.type}: sections is a list of sizes, not {sections!r};"
            f" {_COUNT}={sections!r} makes so many equal parts"
        )
    count = len(sections) if sections is not None and len(sections) else count
    names = {slot: [var] for slot, var in fixed.items()}
    first = True
    for slot in entry.outputs:
        if slot.name in names:
            continue
        own = name if first else f"{name}.{slot.name}"
        first = False
        names[slot.name] = [f"{own}.{n}" for n in range(count)] if slot.duplicable else [own]
    return names
