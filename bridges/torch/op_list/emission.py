"""How operators become lines of a module: the registry of writers, and what a writer works with.

    @writes("softmax")
    def softmax(e: Emission) -> None:
        e.set("out", f"torch.softmax({e['x']}, {e.axis()})")

Values are laid out as in our own executor: sequences as all their rows, end to end, so that
axes are the operators' own. All sequences of an input have one length: its rows are [N T, ...].
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ....framework.base.dtypes import is_float
from ....framework.base.sizes.shape import ArraySpec
from ....framework.fusion.scalars.expression import ExpressionError
from ....framework.fusion.scalars.pointwise import formulas, operands
from ....framework.ir.operation import Operator
from ....operators.names import names_of
from ...inference.reading import Reading, RefusedError
from ...inference.refusals import OF_MODULES, OF_TRAINING, reason_of
from ..formatting import atom
from ..naming import Names
from .expressions import Printer, Text, called, number_text

Write = Callable[["Emission"], None]
WRITERS: dict[str, Write] = {}
"""Operator type -> the function that writes it."""

SEQUENCES: Final = "n"
"""What the function calls the number of sequences, of which each input that is one has as many."""
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_TAKEN: Final = "self torch nn F math load save Path Model n t states rows".split()


def writes(*types: str) -> Callable[[Write], Write]:
    """Decorator: the writer of some operators."""

    def add(write: Write) -> Write:
        WRITERS.update(dict.fromkeys(types, write))
        return write

    return add


def dtype_text(dtype: Any) -> str:
    """A dtype as PyTorch calls it."""
    name = np.dtype(dtype).name
    return f"torch.{name}"


def shortest(value: float, dtype: np.dtype) -> float:
    """The number with fewest digits that is the same one in a dtype."""
    same = np.float32(value)
    return float(str(same)) if dtype == np.float32 and float(same) == value else value


def lists(values: Sequence[str]) -> str:
    """Values as a tuple."""
    return f"({', '.join(values)}{',' * (len(values) == 1)})"


@dataclass
class Layer:
    """A layer of the module.

    Attributes:
        name: what it is called after. make: the expression that makes it; "" for a buffer.
        tensors: by their names in the layer, "" for one that is the layer itself.
        variables: the same: the parameters that these are; none for what is computed of several.
    """

    name: str
    make: str
    tensors: dict[str, np.ndarray]
    variables: dict[str, str] = field(default_factory=dict)


@dataclass
class Lines:
    """Lines that compute some values, and go where nothing reads these."""

    targets: tuple[str, ...]
    text: list[str]

    def reads(self) -> set[str]:
        """All names in them."""
        return {name for line in self.text for name in _NAME.findall(line)}


@dataclass
class Module:
    """What a module is made of, so far.

    Attributes:
        layers: by attribute. helpers: names of functions and classes of `sources` that lines use.
        arrays: parameters and states, and what is only another shape of one.
        trained: the parameters among these. frozen: parameters that do not learn.
        uses: variable -> how many slots read it, also in step nets.
        origins: another shape of a parameter -> the parameter.
        title: what a variable is called in the module.
        notes: what the module does not do in training as the net does.
        refused: a line for each operator that has no text.
    """

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    trained: Collection[str] = ()
    frozen: Collection[str] = ()
    uses: Counter[str] = field(default_factory=Counter)
    origins: dict[str, str] = field(default_factory=dict)
    title: Callable[[str], str] = str
    layers: dict[str, Layer] = field(default_factory=dict)
    helpers: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    attributes: Names = field(default_factory=Names)
    names: Names = field(default_factory=lambda: Names(*_TAKEN))
    plain: dict[str, str] = field(default_factory=dict)

    def add(self, layer: Layer) -> str:
        """Add a layer; the text that reads it."""
        attribute = self.attributes.unique(self.title(layer.name))
        self.layers[attribute] = layer
        return f"self.{attribute}"

    def parameter(self, variable: str) -> str:
        """The text of a parameter or state that no layer has taken."""
        attribute = self.plain.get(variable)
        if attribute is None:
            array = np.asarray(self.arrays[variable])
            origin = self.origins.get(variable, variable)
            make = ""
            if origin in self.trained and is_float(array.dtype):
                dtype = "" if array.dtype == np.float32 else f", dtype={dtype_text(array.dtype)}"
                make = f"nn.Parameter(torch.zeros({list(array.shape)}{dtype}))"
            attribute = self.add(Layer(origin, make, {"": array}, {"": origin}))
            self.plain[variable] = attribute
        return attribute


@dataclass
class Values:
    """What is known of the variables of a net, or of a step net, while it is written.

    Attributes:
        module: takes the layers. specs: variable -> shape, -1: unknown, and dtype.
        names: variable -> its text.
        steps: variables that are sequences -> the text of their length.
        stacks: sequences of one length that are arrays [N, T, ...] in the order of steps -> their
            text; no rows [N T, ...] hold them.
        parameters: variables that are parameters or states -> these, as the outer net calls them.
        sums: variables that are sums of two parameters, and no lines write -> these.
        lines: of the function.
        broken: variables that refused operators write.
    """

    module: Module
    specs: Mapping[str, ArraySpec]
    names: dict[str, str] = field(default_factory=dict)
    steps: dict[str, str] = field(default_factory=dict)
    stacks: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    sums: dict[str, tuple[str, str]] = field(default_factory=dict)
    lines: list[Lines] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def text(self, variable: str) -> str:
        """The text of a variable's value."""
        text = self.names.get(variable)
        if text is not None:
            return text
        if variable in self.parameters:
            return self.module.parameter(self.parameters[variable])
        if variable in self.sums:
            terms = (self.module.parameter(self.parameters[name]) for name in self.sums[variable])
            return f"({' + '.join(terms)})"
        raise RefusedError(f"nothing computes {variable!r}")

    def spec_of(self, variable: str) -> ArraySpec | None:
        """Shape and dtype of a variable, where they are known."""
        return self.specs.get(variable)

    def array(self, variable: str) -> np.ndarray | None:
        """The array of a parameter or state; None for what is computed."""
        name = self.parameters.get(variable)
        return None if name is None else np.asarray(self.module.arrays[name])

    def owned(self, variable: str) -> np.ndarray | None:
        """The array of a parameter or state that one slot alone reads: a layer may hold it."""
        name = self.parameters.get(variable)
        return self.array(variable) if name is not None and self.module.uses[name] == 1 else None

    def origin(self, variable: str) -> str:
        """The parameter or state that a variable is, maybe in another shape."""
        outer = self.parameters[variable]
        return self.module.origins.get(outer, outer)

    def hold(self, variable: str, parameter: str, view: np.ndarray) -> str:
        """Say that a variable is a parameter in another shape.

        Args:
            view: of the parameter's array, so that writing to it changes the parameter.
        """
        module = self.module
        name = variable
        if variable in module.arrays:  # of another step net
            name = f"{self.parameters[parameter]}@{variable}"
        self.parameters[variable] = name
        module.arrays[name] = view
        module.origins[name] = self.origin(parameter)
        module.uses.setdefault(name, 1)
        return variable

    def name(self, variable: str, what: str = "") -> str:
        """A new name in the function, after a variable and what of it is meant."""
        inner, _, part = variable.partition("@INNER@")
        inner = self.module.title(inner)
        return self.module.names.unique("_".join(filter(None, (inner, part.lower(), what))))

    def stack(self, variable: str, text: str) -> None:
        """Say what sequences are as one array."""
        self.stacks[variable] = self.name(variable)
        self.write([self.stacks[variable]], f"{self.stacks[variable]} = {text}")

    def write(self, targets: Sequence[str], *text: str) -> None:
        """Add lines that compute some names."""
        self.lines.append(Lines(tuple(targets), list(text)))


class Emission(Reading):
    """One operator while it is written.

    Attributes:
        module: takes layers.
    """

    values: Values
    system = "torch"

    def __init__(self, values: Values, op: Operator) -> None:
        super().__init__(values, op)
        self.module = values.module

    def value(self, variable: str) -> str:
        return self.values.text(variable)

    def axes(self) -> list[int]:
        """The attribute `axes`, from 0 on; all where it is empty."""
        rank = self.rank("x")
        return [axis % rank for axis in self.attrs["axes"]] or list(range(rank))

    def owned(self, slot: str) -> np.ndarray | None:
        """The array of a parameter or state that this operator alone reads: a layer may hold it."""
        names = self.op.inputs.get(slot)
        return self.values.owned(names[0]) if names else None

    def steps(self, slot: str, number: int = 0) -> str:
        """The text of the length of sequences.

        Raises:
            RefusedError: the variable is no sequence.
        """
        steps = self.values.steps.get(self.op.inputs[slot][number])
        if steps is None:
            self.refuse(f"its {slot} holds no sequences")
        return steps

    def sequences(self, slot: str = "x", number: int = 0) -> str:
        """The value of an input slot as [N, T, ...]."""
        stack = self.values.stacks.get(self.op.inputs[slot][number])
        if stack is not None:
            return stack
        return f"{self.list(slot)[number]}.unflatten(0, (-1, {self.steps(slot, number)}))"

    # -- what is written -----------------------------------------------------------------------

    def set(self, slot: str, *texts: str) -> None:
        """Say what the variables of an output slot are; they are sequences if an input is."""
        lengths = [self.values.steps.get(name) for name in self.op.input_vars()]
        length = next((one for one in lengths if one is not None), None)
        for variable, text in zip(self.op.outputs.get(slot, ()), texts, strict=False):
            self._set_one(variable, text)
            spec = self.values.specs.get(variable)
            if length is not None and (spec is None or (spec[0] and spec[0][0] < 0)):
                self.values.steps[variable] = length

    def _set_one(self, variable: str, text: str) -> None:
        if text.removeprefix("self.").isidentifier():
            self.values.names[variable] = text
            return
        name = self.values.name(variable)
        self.values.write([name], f"{name} = {text}")
        self.values.names[variable] = name

    def set_sequences(self, slot: str, text: str) -> None:
        """Say what the sequences of an output slot are, [N, T, ...]; T may be a new length."""
        (variable,) = self.op.outputs[slot]
        name = self.values.name(variable)
        length = self.module.names.unique(f"t_{name}")
        self.values.write([name], f"{name} = {text}")
        self.values.write([length], f"{length} = {name}.shape[1]")
        rows = self.values.name(variable)
        self.values.write([rows], f"{rows} = {name}.flatten(0, 1)")
        self.values.names[variable], self.values.steps[variable] = rows, length

    def set_rows(self, slot: str, text: str) -> None:
        """Say what an output slot is that has one row a sequence."""
        (variable,) = self.op.outputs[slot]
        self._set_one(variable, text)
        self.values.steps.pop(variable, None)

    def take(self, *names: str) -> Any:
        """Names of values before lines that compute them: `write` adds these."""
        taken = [self.module.names.unique(name) for name in names]
        return taken[0] if len(taken) == 1 else taken

    def helper(self, name: str) -> str:
        """A function or class of `sources`."""
        self.module.helpers.add(name)
        return name

    def layer(self, make: str, *tensors: tuple[str, np.ndarray, str], **more: np.ndarray) -> str:
        """Add a layer; the text that calls it.

        Args:
            tensors: name in the layer, array, and the input slot with the parameter.
            more: other tensors of its state.
        """
        inputs = self.op.inputs
        return self.layer_of(
            make, {n: (array, inputs[slot][0]) for n, array, slot in tensors}, more
        )

    def layer_of(
        self,
        make: str,
        tensors: Mapping[str, tuple[np.ndarray, str]],
        more: Mapping[str, np.ndarray],
    ) -> str:
        """As `layer`, of tensors by name with the variables of their parameters."""
        variables = {name: self.values.origin(variable) for name, (_, variable) in tensors.items()}
        held = {name: array for name, (array, _) in tensors.items()} | dict(more)
        names = list(variables.values()) or [self.op.output_vars()[0]]
        front = _common(names)
        title = names[0] if self.module.attributes.has(self.module.title(front)) else front
        return self.module.add(Layer(title, make, held, variables))

    def constant(self, array: np.ndarray) -> str:
        """A buffer with numbers that the net holds."""
        return self.module.add(Layer(self.op.output_vars()[0], "", {"": np.asarray(array)}))

    def number(self, value: float, slot: str = "x") -> str:
        """A number of the dtype of a slot."""
        return number_text(shortest(value, self.dtype(slot)), self.is_float(slot))


def _common(names: Sequence[str]) -> str:
    """What the names of parameters begin with: the name of the layer that they belong to."""
    fronts = {name.rpartition(".")[0] for name in names}
    return fronts.pop() or names[0] if len(fronts) == 1 else names[0]


def write_operators(values: Values, operators: Iterable[Operator]) -> None:
    """Write operators in their order; what has no text is noted in `Module.refused`."""
    for op in operators:
        outputs = set(op.output_vars())
        if any(name in values.broken for name in op.input_vars()):
            values.broken |= outputs
            continue
        try:
            _write(Emission(values, op))
        except RefusedError as error:
            values.broken |= outputs
            if str(error):
                names = ", ".join(map(repr, op.results()))
                values.module.refused.append(f"{op.title()}, which makes {names}: {error}")


def _write(e: Emission) -> None:
    op = e.op
    write = WRITERS.get(op.type) or op.entry.forms.get("torch")
    name = names_of(op.type).get("torch")
    if write is not None:
        write(e)
    elif name is not None and name.means(e.attrs):
        given = {ours: e.attrs[ours] for ours in name.attrs.values()}
        numbers = {k: repr(v) if isinstance(v, int) else e.number(v) for k, v in given.items()}
        e.set("out", called(name, [e[slot] for slot in op.entry.input_slots], numbers))
    elif op.entry.expressions and not reason_of(op.type, op.entry, OF_TRAINING):
        _print(e)
    else:
        why = reason_of(op.type, op.entry, OF_TRAINING | OF_MODULES)
        raise RefusedError(why or "there is no text of it for PyTorch")


def _print(e: Emission) -> None:
    """Write an operator from its scalar expressions."""
    try:
        trees = formulas(e.op)
    except ExpressionError as error:
        raise RefusedError(str(error)) from None
    values = {name: _read(e, variable) for name, variable in operands(e.op).items()}
    numbers = [slot for slot in e.op.inputs if e.dtype(slot) != np.bool_] or list(e.op.inputs)
    printer = Printer(values, e[numbers[0]], e.is_float(numbers[0]))
    for slot, tree in trees.items():
        variables = e.op.outputs.get(slot, ())
        text = printer.print(tree, bool(variables) and e.dtype(slot) == np.bool_)
        e.set(slot, text)
        values[slot] = next((_read(e, name) for name in variables), Text(f"({text})"))


def _read(e: Emission, variable: str) -> Text:
    spec = e.values.specs.get(variable)
    is_condition = spec is not None and spec[1] == np.bool_
    return Text(e.values.text(variable), is_condition=is_condition)


def read_lines(values: Values, wanted: Iterable[str]) -> list[str]:
    """The lines that some names need."""
    needed = set(wanted)
    kept: list[list[str]] = []
    for lines in reversed(values.lines):
        if needed.intersection(lines.targets):
            kept.append(lines.text)
            needed |= lines.reads()
    return [line for text in reversed(kept) for line in text]


def nested(lines: Sequence[Lines], names: set[str], most: int) -> list[Lines]:
    """Lines in which expressions with some names stand where they are read, if that is once.

    Args:
        most: characters of a line, up to which that is done.
    """
    kept: list[Lines] = []
    reads = Counter(name for one in lines for text in one.text for name in _NAME.findall(text))
    for place, one in enumerate(lines):
        name = one.targets[0]
        # Its own line mentions it, too.
        single = len(one.text) == len(one.targets) == 1 and reads[name] == 2
        if not single or name not in names:
            kept.append(one)
            continue
        expression = one.text[0].removeprefix(f"{name} = ")
        for later in lines[place + 1 :]:
            for number, text in enumerate(later.text):
                match = re.search(rf"\b{name}\b", text)
                if match is None:
                    continue
                whole = re.fullmatch(r".*[(\[,=] ?", text[: match.start()]) is not None
                whole = whole and re.match(r"$|[)\],]", text[match.end() :]) is not None
                given = expression if whole else atom(expression)
                replaced = text[: match.start()] + given + text[match.end() :]
                if len(replaced) > most:
                    kept.append(one)
                else:
                    later.text[number] = replaced
    return kept
