"""The arguments of kernels: arrays by slot, attributes, and the state of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..base.backend import CPUPlace, Place, to_host
from ..base.context import OpContext
from ..base.errors import SlotError
from ..base.scope import Scope
from ..base.sizes.shape import ArraySpec, Levels, OperatorView, Shape

if TYPE_CHECKING:
    from ..base.device_checks import Explain

Call = Callable[[], Any]
"""Work that is prepared and runs without arguments."""


class RunState:
    """The context of the run under way, for bound kernels that need it while running."""

    __slots__ = ("_context", "_fetched", "place")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.context = None

    @property
    def context(self) -> OpContext:
        """The context of the run under way; setting it begins a run."""
        return self._context

    @context.setter
    def context(self, context: OpContext | None) -> None:
        self._context: Any = context  # None before the first run, when nothing asks
        # New for each run: a later one may hold other values in the same array.
        self._fetched: dict[int, tuple[Any, np.ndarray]] = {}

    def fetched(self, array: Any) -> np.ndarray:
        """An array that no operator of the run writes, on the host; copied once a run."""
        if isinstance(array, np.ndarray):
            return array
        entry = self._fetched.get(id(array))
        if entry is None:  # the array is kept, so that no other one gets its id
            entry = self._fetched[id(array)] = array, to_host(array)
        return entry[1]

    @property
    def generator(self) -> Any:
        """The random generator of this run on this place."""
        return self.context.generator(self.place)

    @property
    def host_generator(self) -> np.random.Generator:
        """The generator of the host: for decisions that it takes itself, without asking a GPU."""
        return self.context.generator(CPUPlace())


class KernelFrame(Protocol):
    """The part of a frame that kernels use (see runtime/binding.py).

    `xp` is NumPy or CuPy; `train` says whether the run is one of training; `scope` holds the
    variables that the frame is bound to.
    """

    @property
    def place(self) -> Place: ...

    @property
    def xp(self) -> Any: ...

    @property
    def train(self) -> bool: ...

    @property
    def state(self) -> RunState: ...

    @property
    def scope(self) -> Scope: ...

    def scratch(self, shape: Sequence[int], dtype: Any) -> Any: ...

    def offsets(self, name: str) -> Levels: ...


@dataclass(frozen=True)
class BoundEpilogue:
    """A loop over the results of a kernel.

    Attributes:
        loop: its structure. arrays: of its operands; None for the results themselves.
        made, out: numbers of the operands that are the results, and what becomes of them.
    """

    loop: Any
    arrays: Sequence[Any]
    made: int
    out: int


def describe_by(op: OperatorView, arrays: Mapping[str, Any], why: str) -> str:
    """As `KernelArgs.describe`, for what knows no more than the arrays of an operator's frame."""
    names = [name for slots in (op.inputs, op.outputs) for own in slots.values() for name in own]
    known = {name: arrays.get(name) for name in names}
    specs = {name: (one.shape, one.dtype) for name, one in known.items() if one is not None}
    return op.describe(why, specs)


class KernelArgs:
    """Everything that a kernel binds to: arrays by slot, attributes, and the run's state.

    A kernel is called once for each plan with arrays that stay where they are, and returns a
    callable without arguments that does the work; views and scratch memory are made while binding.

    Attributes:
        op: the operator. attrs: its attributes, defaults filled in.
        xp: NumPy or CuPy.
        state: random generators and the like of the run under way, for use while running.
        accumulate: add to what the output holds (see `OperatorDef.accumulates`).
        train: whether the run is one of training.
        prepared: in a loop, weights packed before it starts, keyed by array; else None.
        tail: the operators that it shall compute along (see runtime/fused/tails.py).
        epilogue: the loop that it shall compute after these, or None.
        frame: the frame that binds the kernel; `binding.frame_of` gives it with its plan.
        arrays: of its variables, by name.
    """

    def __init__(
        self,
        op: OperatorView,
        arrays: Mapping[str, Any],
        specs: Mapping[str, ArraySpec],
        frame: KernelFrame,
    ) -> None:
        self.op = op
        self.attrs: dict[str, Any] = op.attrs
        self.xp = frame.xp
        self.frame = frame
        self.state = frame.state
        self.arrays = arrays
        self.accumulate: bool = op.accumulate
        self.train: bool = frame.train
        self.prepared: Any = getattr(frame, "prepared", None)
        self.tail: tuple[KernelArgs, ...] = ()
        self.epilogue: BoundEpilogue | None = None
        self._specs = specs

    def __getitem__(self, slot: str) -> Any:
        """The array of the one variable of a slot."""
        return self.arrays[self._names(slot)[0]]

    def _names(self, slot: str) -> tuple[str, ...]:
        """The variables of a slot that the kernel cannot do without."""
        names = self.op.inputs.get(slot) or self.op.outputs.get(slot)
        if not names:
            raise SlotError(self.describe(f"slot {slot!r} is missing, which it needs here"))
        return names

    def get(self, slot: str) -> Any:
        """Like `[]`, but None where the slot holds no variable."""
        names = self.op.inputs.get(slot) or self.op.outputs.get(slot)
        return self.arrays.get(names[0]) if names else None

    def list(self, slot: str) -> list[Any]:
        """The arrays of a duplicable slot; None for variables that nothing needs."""
        names = self.op.inputs.get(slot) or self.op.outputs.get(slot, ())
        return [self.arrays.get(name) for name in names]

    def shape(self, slot: str) -> Shape:
        """Shape of a slot's variable, also where the value itself is not at hand (`shape_only`)."""
        return self._specs[self._names(slot)[0]][0]

    def shapes(self, slot: str) -> list[Shape]:
        """Shapes of all variables of an input slot."""
        return [self._specs[name][0] for name in self.op.inputs.get(slot, ())]

    def joined(self, slot: str) -> Any:
        """The one array in which the variables of a slot lie side by side; None where they do not.

        See `OperatorDef.joins`: so they do where all are temporaries.
        """
        return getattr(self.frame, "joined", {}).get(self.op.inputs[slot])

    def scratch(self, shape: Sequence[int], dtype: Any) -> Any:
        """Memory for use within one call of the kernel; its contents do not last between calls."""
        return self.frame.scratch(shape, dtype)

    def in_one_piece(self, array: Any) -> Any:
        """An array itself where it is contiguous, else scratch memory like it."""
        return array if array.flags.c_contiguous else self.scratch(array.shape, array.dtype)

    def describe(self, why: str) -> str:
        """An error message for data that the kernel refuses; see `Operator.describe`."""
        return self.op.describe(why, self._specs)

    def note(self, what: str, explain: Explain) -> Any:
        """Memory on the GPU, [3], for a kernel that finds something wrong: see device_checks.py.

        Args:
            what: of the operator's checks this is. explain: makes the message.
        """
        from ..base.device_checks import DeviceChecks  # without a GPU it is not needed

        key = self.op.type, what, *self.op.inputs.items(), *self.op.outputs.items()
        root = self.scope.root
        if root.checks is None:
            root.checks = DeviceChecks()
        return root.checks.memory(self.place, key, explain)

    def host(self, slot: str) -> np.ndarray:
        """The value of an input on the host, which keeps it from now on where it is fed.

        Args:
            slot: an input that no operator of the run writes before this one.
        """
        array = self[slot]
        variable = self.scope.find(self._names(slot)[0])
        if isinstance(array, np.ndarray) or variable is None or variable.inner is not array:
            return to_host(array)
        if variable.fed is None:
            variable.keeps, variable.fed = True, to_host(array)
        return variable.fed

    def offsets(self, slot: str) -> Levels:
        """Sequence offsets of an input's variable; () for a plain array."""
        return self.frame.offsets(self._names(slot)[0])

    @property
    def place(self) -> Place:
        """Where the kernel runs."""
        return self.frame.place

    @property
    def scope(self) -> Scope:
        """The scope whose variables the frame is bound to."""
        return self.frame.scope
