"""The base of all nnet3 components: properties, files, config lines, registration.

A component is a transformation with its parameters and statistics. Its class lists the fields of
files (`fields`), the keys of config lines (`keys`) and the trained parameters (`trained`); its
methods describe it in words (`info`) and compute it by operators (`lower`). Attributes have Kaldi's
names without the last underscore, and annotations with their types; arrays are NumPy, float32 for
parameters and float64 for statistics.

Source: Kaldi's `nnet3/nnet-component-itf.h`.
"""

from __future__ import annotations

import copy
from enum import IntFlag
from functools import cache
from types import SimpleNamespace
from typing import Any, ClassVar, Final, Self

import numpy as np

from ....framework.base.errors import (
    FormatError,
    OpscopeError,
    ShapeError,
    UnknownOperatorError,
    nearest,
)
from ....framework.base.options.plugins import entry_points, load_plugin
from ....framework.base.untrusted.limits import check_limit
from ....framework.base.untrusted.values import Fills
from ....kaldi.files.kaldi_io import Reader, Writer
from ...index.indexes import Columns, IndexList
from ...language.config import ConfigLine, Key, read_keys
from .dependence import SAME, Reads
from .fields import (
    BOOL,
    FLOAT,
    Deviation,
    Field,
    read_fields,
    settle,
    write_fields,
)
from .keys import optional
from .lowering import Recipe
from .summary import number

_FEW_COLUMNS = 1 << 16  # fewer are not compared with the limit, to save the time


class Properties(IntFlag):
    """Abilities of a component, and the matrices that its backprop reads.

    Source: Kaldi's `ComponentProperties`.
    """

    SIMPLE = 0x001  # each output row depends on the input row of the same index only
    UPDATABLE = 0x002
    PROPAGATE_IN_PLACE = 0x004
    PROPAGATE_ADDS = 0x008
    REORDERS_INDEXES = 0x010
    BACKPROP_ADDS = 0x020
    BACKPROP_NEEDS_INPUT = 0x040
    BACKPROP_NEEDS_OUTPUT = 0x080
    BACKPROP_IN_PLACE = 0x100
    STORES_STATS = 0x200
    INPUT_CONTIGUOUS = 0x400
    OUTPUT_CONTIGUOUS = 0x800
    USES_MEMO = 0x1000
    RANDOM = 0x2000


COMPONENTS: Final[dict[str, type[Component]]] = {}


class Component:
    """Base of all components. A class of its own name in Kaldi registers itself as that type."""

    type: ClassVar[str] = ""
    fields: ClassVar[tuple[Field, ...]] = ()
    keys: ClassVar[tuple[Key, ...]] = ()
    trained: ClassVar[tuple[str, ...]] = ()
    flags: ClassVar[Properties] = Properties(0)
    indexes_type: ClassVar[Any] = object  # what `precompute` gives; `object`: anything
    closing = ""  # the closing token that was read, if it was not the usual one

    input_dim: int  # columns of the input
    output_dim: int  # columns of the output
    deviations: dict[int, Deviation]  # see fields.read_fields
    was_binary: bool | None  # the form of the file that it came from

    def __init__(self) -> None:
        self.deviations = {}
        self.was_binary = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__name__.endswith("Component") and not cls.__dict__.get("abstract", False):
            cls.type = cls.__name__
            before = COMPONENTS.get(cls.type, cls).__module__
            if before != cls.__module__:  # a module may be loaded anew
                raise OpscopeError(
                    f"{cls.__module__} defines the component type {cls.type}, which belongs to"
                    f" {before}"
                )
            COMPONENTS[cls.type] = cls

    # Properties

    @property
    def properties(self) -> Properties:
        """Abilities of the component, which may depend on its configuration."""
        return self.flags

    @property
    def is_updatable(self) -> bool:
        """Whether it has parameters to train."""
        return bool(self.properties & Properties.UPDATABLE)

    # Configuration

    def init_from_config(self, line: ConfigLine, rng: np.random.Generator) -> None:
        """Set everything from a config line; random parameters come from `rng`.

        Raises:
            FormatError: a key is missing, unknown, or has an impossible value.
        """
        values = read_keys(line, self.keys, self.type)
        line.check_unused(known=[k.name for k in self.keys])
        try:
            with Fills() as fills:
                before = fills.nbytes
                self.configure(values, rng)
                rest = self._nbytes() - (fills.nbytes - before)
                fills.add(max(rest, 0), "its arrays")
            self.check()
            self.check_settings()
        except (ValueError, ShapeError, FormatError) as error:
            has_place = line.is_named_by(error)  # else it may be about a file that the line names
            raise error if has_place else line.error(f"{self.type}: {error}") from error

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        """Set attributes from the values of `keys`; by default each becomes an attribute.

        Raises:
            ValueError: values that do not go together.
        """
        self.set_attributes(o, *vars(o))

    def set_attributes(self, o: SimpleNamespace, *names: str) -> None:
        """Copy values of a config line to attributes of the same names."""
        for name in names:
            setattr(self, name, getattr(o, name))

    def check(self) -> None:
        """Raises ValueError where attributes contradict one another."""
        columns = min(self.input_dim, self.output_dim), max(self.input_dim, self.output_dim)
        self.demand(columns[0] > 0, "dimensions must be positive")
        if columns[1] > _FEW_COLUMNS:
            self.within("columns", columns[1])

    def check_settings(self) -> None:
        """Raises ValueError where a setting of training is out of range."""

    def check_window(self, frames: int) -> None:
        """Raises ValueError where an output frame reads too many input frames."""
        self.within("window", frames)

    def within(self, name: str, wanted: int) -> None:
        """Raises ValueError where a limit of what files may ask for does not allow it."""
        try:
            check_limit(name, wanted, "its settings")
        except FormatError as error:
            raise ValueError(str(error)) from None

    @staticmethod
    def demand(condition: bool, message: str) -> None:
        """Raises ValueError unless the condition holds."""
        if not condition:
            raise ValueError(message)

    # Files

    @classmethod
    def read_new(cls, reader: Reader) -> Component:
        """Read any component, from its opening token on.

        Raises:
            FormatError: an unknown component, or a damaged file.
        """
        start = reader.offset
        token = reader.read_token()
        type = token[1:-1]
        if token[:1] + token[-1:] != "<>" or not is_component_type(type):
            raise reader.error(f"unknown component {token!r}{nearest(type, COMPONENTS)}", start)
        component = COMPONENTS[type]()
        component.read(reader)
        return component

    def read(self, reader: Reader) -> None:
        """Read the fields after the opening token, and the closing token.

        Raises:
            FormatError: the file is damaged, or its values contradict one another.
        """
        start = reader.offset
        read_fields(self, reader, self.fields)
        self.read_close(reader)
        try:
            self.after_read()
            self.check()
            self.check_settings()
        except (ValueError, ShapeError) as error:
            raise reader.error(f"{self.type}: {error}", start) from error

    def read_close(self, reader: Reader) -> None:
        """Pass over the closing token."""
        reader.expect_token(f"</{self.type}>")

    def after_read(self) -> None:
        """Compute the fields that files do not hold."""
        settle(self)

    def write(self, writer: Writer) -> None:
        """Write it as Kaldi does, opening and closing token included."""
        writer.write_token(f"<{self.type}>")
        write_fields(self, writer, self.fields)
        writer.write_token(self.closing or f"</{self.type}>")

    def copy(self) -> Self:
        """A deep copy."""
        return copy.deepcopy(self)

    # Computation

    def lower(self, recipe: Recipe) -> None:
        """Write the forward operators into a recipe: they compute `OUT` from `X`.

        The backward operators follow from these. A recipe also takes the component's parameters,
        the statistics that it collects, and gradients that are better than the registry's.

        Raises:
            UnknownOperatorError: there is no computation for this type.
        """
        raise UnknownOperatorError(f"components of type {self.type!r} cannot be computed")

    def precondition(self, recipe: Recipe) -> None:
        """Write how natural gradient makes the gradients of parameters; see `preconditioning`.

        Without an own definition all gradients are plain. It is called after `lower`.
        """

    def reads(self) -> Reads:
        """The candidate rows of the input for each output row: by default the same row alone."""
        return SAME

    def reorder(self, inputs: Columns, outputs: Columns) -> tuple[Columns, Columns]:
        """Input and output rows in the order that the component wants, with its padding rows.

        The compiler asks components with the property REORDERS_INDEXES alone.
        """
        return inputs, outputs

    def precompute(self, inputs: IndexList, outputs: IndexList) -> Any:
        """Facts about the rows that operators need, from rows in the order of `reorder`.

        `lower` finds the result in `recipe.indexes`.

        Raises:
            ShapeError: an input that the outputs depend on is not there.
        """

    # Text

    def info(self) -> str:
        """One line for `nnet3-info`, without the component's name."""
        return f"{self.type}, input-dim={self.input_dim}, output-dim={self.output_dim}"

    def __repr__(self) -> str:
        return f"<{self.info().split(', learning-rate')[0][:200]}>"

    # Parameters

    @property
    def num_parameters(self) -> int:
        """How many numbers `vectorize` gives."""
        return sum(getattr(self, name).size for name in self.trained) if self.is_updatable else 0

    def vectorize(self) -> np.ndarray:
        """All parameters as one float32 vector, in Kaldi's order."""
        parts = [getattr(self, name).reshape(-1) for name in self.trained]
        if not self.is_updatable or not parts:
            return np.zeros(0, np.float32)
        return np.concatenate(parts).astype(np.float32, copy=False)

    def unvectorize(self, vector: np.ndarray) -> None:
        """Set all parameters from a vector in the order of `vectorize`.

        Raises:
            ShapeError: it has the wrong size.
        """
        self.check_size(vector)
        begin = 0
        for name in self.trained if self.is_updatable else ():
            old = getattr(self, name)
            part = vector[begin : begin + old.size]
            setattr(self, name, part.reshape(old.shape).astype(np.float32))
            begin += old.size

    def check_size(self, vector: np.ndarray) -> None:
        """Refuse a vector that is not as long as there are parameters."""
        if vector.shape != (self.num_parameters,):
            raise ShapeError(
                f"{self.type} has {self.num_parameters} parameters, the vector {vector.shape}"
            )

    def _nbytes(self) -> int:
        return sum(array.nbytes for array in vars(self).values() if isinstance(array, np.ndarray))

    # Statistics

    def zero_stats(self) -> None:
        """Forget all statistics, if it keeps any."""


PLUGINS: Final = "opscope.components"
"""The group of entry points that name modules with component types of other packages."""


@cache
def load_plugins() -> None:
    """Import the modules of other packages that register component types.

    Raises:
        OpscopeError: a module cannot be imported.
    """
    for point in entry_points(group=PLUGINS):
        load_plugin(point)


def is_component_type(type: str) -> bool:
    """Whether there is a component type of this name, here or in an installed package."""
    if type not in COMPONENTS:
        load_plugins()
    return type in COMPONENTS


def new_component(type: str) -> Component:
    """An empty component of Kaldi's type name.

    Raises:
        FormatError: there is no such type.
    """
    if not is_component_type(type):
        raise FormatError(f"unknown component type {type!r}{nearest(type, COMPONENTS)}")
    return COMPONENTS[type]()


UPDATABLE_FIELDS: Final = (
    Field(
        "<LearningRateFactor>",
        FLOAT,
        "learning_rate_factor",
        default=1.0,
        when=lambda c: c.learning_rate_factor != 1,
    ),
    Field("<IsGradient>", BOOL, "is_gradient", default=False, when=lambda c: c.is_gradient),
    Field("<MaxChange>", FLOAT, "max_change", default=0.0, when=lambda c: c.max_change > 0),
    Field(
        "<L2Regularize>", FLOAT, "l2_regularize", default=0.0, when=lambda c: c.l2_regularize > 0
    ),
    Field("<LearningRate>", FLOAT, "learning_rate", default=float(np.float32(0.001))),
)
UPDATABLE_KEYS: Final = optional(
    float, learning_rate=0.001, learning_rate_factor=1.0, max_change=0.0, l2_regularize=0.0
)
# Settings of the natural gradient by attribute: the least value, whether that is allowed, the most.
_SETTINGS: Final = {
    **dict.fromkeys(("rank", "rank_in", "rank_out", "update_period"), (0, False, np.inf)),
    **dict.fromkeys(("alpha", "alpha_in", "alpha_out"), (0, True, np.inf)),
    "num_samples_history": (0, False, 1e6),
    "num_minibatches_history": (1, False, np.inf),
}
OLD_IS_GRADIENT: Final = Field("<IsGradient>", BOOL, "is_gradient", old=True)


class KeepsDim:
    """Mixin: input and output have `dim` columns."""

    dim: int

    @property
    def input_dim(self) -> int:
        """Columns of the input."""
        return self.dim

    @property
    def output_dim(self) -> int:
        """Columns of the output."""
        return self.dim


class UpdatableComponent(Component):
    """A component with parameters: learning rate, its factor, L2 and the largest change a step."""

    abstract = True
    own_fields: ClassVar[tuple[Field, ...]] = ()
    own_keys: ClassVar[tuple[Key, ...]] = ()
    common_keys: ClassVar[tuple[Key, ...]] = UPDATABLE_KEYS

    def __init__(self) -> None:
        super().__init__()
        self.learning_rate = float(np.float32(0.001))
        self.learning_rate_factor = 1.0
        self.l2_regularize = 0.0
        self.max_change = 0.0
        self.is_gradient = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.fields = UPDATABLE_FIELDS + cls.own_fields
        cls.keys = cls.common_keys + cls.own_keys

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        for k in UPDATABLE_KEYS:
            name = k.name.replace("-", "_")
            value = o.__dict__.pop(name)
            self.demand(value >= 0, f"{k.name} must not be negative")
            setattr(self, name, value)
        self.is_gradient = False
        self.set_up(o, rng)

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        """As `configure`, for the component's own keys."""
        super().configure(o, rng)

    def check_settings(self) -> None:
        for name, (least, included, most) in _SETTINGS.items():
            value = getattr(self, name, None)
            if value is not None:
                if not (least < value < most or (included and value == least)):
                    self.demand(False, f"{name.replace('_', '-')}={number(value)} is out of range")

    def copy_configs(self, other: UpdatableComponent) -> None:
        """Take learning rate and the like from another component."""
        for k in UPDATABLE_KEYS:
            name = k.name.replace("-", "_")
            setattr(self, name, getattr(other, name))
        self.is_gradient = other.is_gradient

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate, which the component's own factor multiplies."""
        self.learning_rate = float(np.float32(rate) * np.float32(self.learning_rate_factor))

    def info(self) -> str:
        text = f"{super().info()}, learning-rate={number(self.learning_rate)}"
        if self.is_gradient:
            text += ", is-gradient=true"
        if self.l2_regularize != 0:
            text += f", l2-regularize={number(self.l2_regularize)}"
        if self.learning_rate_factor != 1:
            text += f", learning-rate-factor={number(self.learning_rate_factor)}"
        if self.max_change > 0:
            text += f", max-change={number(self.max_change)}"
        return text
