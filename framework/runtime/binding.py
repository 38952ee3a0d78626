"""Kernels for operators over given arrays, and the steps of a plan.

Binding gives every operator its arrays once and takes back one callable without arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from copy import copy
from functools import partial
from typing import Any, cast

import numpy as np

from ..base.backend import Place
from ..base.dtypes import FLOATS, HALVES, SINGLE
from ..base.errors import OpscopeError, RunError
from ..base.scope import Scope
from ..base.sizes.shape import ArraySpec
from ..fusion.team import in_order
from ..ir.kernel_args import KernelArgs, KernelFrame, RunState
from ..ir.operation import Operator
from .fused.tails import bind_tailed
from .halves import in_float32
from .plans.kept_factors import Kept
from .plans.memory import ScratchPool
from .plans.narrow_fills import narrow_fill
from .plans.plan import Plan, PlanStep


def bind_operator(
    op: Operator,
    arrays: Mapping[str, Any],
    specs: Mapping[str, ArraySpec],
    frame: KernelFrame,
    libraries: Sequence[str],
) -> Callable[[], Any]:
    """A call that computes an operator.

    Args:
        arrays: of its variables; those whose values it does not read may be missing.
        specs: shapes and dtypes of all of its variables.
        libraries: of kernels, the best first.

    Raises:
        RunError: no kernel fits, or one cannot be bound. Own errors pass through.
    """
    # Names without an array stay inside a fused step and overwrite nothing.
    if overwritten := [name for name in op.overwritten() if name in arrays]:
        return _bind_apart(op, overwritten, arrays, specs, frame, libraries)
    names = (*op.input_vars(), *op.output_vars())
    half = any(name in specs and specs[name][1] in HALVES for name in names)
    if not half or frame.place.kind in op.entry.takes_halves:
        return _bind_kernel(op, arrays, specs, frame, libraries, True)
    seen = in_float32(op, arrays, specs, frame)
    # The copies are new memory, which no loop has packed, unless `in_float32` made them before it.
    call = _bind_kernel(op, seen.arrays, seen.specs, frame, libraries, seen.prepared)
    return in_order(*seen.before, call, *seen.after)


def _bind_apart(
    op: Operator,
    overwritten: Sequence[str],
    arrays: Mapping[str, Any],
    specs: Mapping[str, ArraySpec],
    frame: KernelFrame,
    libraries: Sequence[str],
) -> Callable[[], Any]:
    """As `bind_operator`, for one that writes to what it reads without being made for that.

    A kernel reads its inputs at any time, so it writes to memory of its own, which is copied.
    """
    new = {name: f"{name} (new)" for name in overwritten}
    apart = copy(op)
    apart.outputs = {
        slot: tuple([new.get(name, name) for name in names]) for slot, names in op.outputs.items()
    }
    scratch = {new[name]: frame.scratch(*specs[name]) for name in overwritten}
    described = {new[name]: specs[name] for name in overwritten}
    call = bind_operator(apart, {**arrays, **scratch}, {**specs, **described}, frame, libraries)
    copies = [partial(frame.xp.copyto, arrays[name], scratch[new[name]]) for name in overwritten]
    return in_order(call, *copies)


def _bind_kernel(
    op: Operator,
    arrays: Mapping[str, Any],
    specs: Mapping[str, ArraySpec],
    frame: KernelFrame,
    libraries: Sequence[str],
    packs: bool,
) -> Callable[[], Any]:
    """The call of the first kernel that does not decline.

    Args:
        packs: whether kernels serve that pack the weights of a loop before it.
    """
    args = KernelArgs(op, arrays, specs, frame)
    dtype = _deciding_dtype(op, specs)
    for kernel in op.entry.kernels_for(frame.place.kind, dtype, libraries):
        # Such a kernel reads packed weights; packing them for one product alone costs more than it
        # saves.
        if kernel.in_loops and not (packs and args.prepared is not None):
            continue
        try:
            call = kernel.bind(args)
        except OpscopeError:
            raise
        except Exception as error:
            raise RunError(op.describe(f"cannot be bound: {error!r}", specs)) from error
        if call is not None:
            return call
    raise RunError(op.describe(f"no kernel for {dtype} on {frame.place}", specs))


def _deciding_dtype(op: Operator, specs: Mapping[str, ArraySpec]) -> np.dtype:
    """The dtype that kernels are chosen by: the first floating operand's, outputs first."""
    first = None
    for name in (*op.output_vars(), *op.input_vars()):
        if name in specs:
            dtype = specs[name][1]
            # Outputs first and floats first: ids, masks and labels must not choose the kernel of a
            # product.
            if dtype in FLOATS:
                return dtype
            first = first or dtype
    return first or SINGLE


FusedBinder = Callable[["BoundSteps", PlanStep], Callable[[], Any] | None]
"""Binds a step of a plan as fused loops; None where its operator is better off with its kernel."""


class CannotFuseError(Exception):
    """A fused step cannot be bound here: the plan must be made again without fusion."""


class BoundSteps:
    """A callable for each step of a plan; what operators that run inner nets know of a frame.

    Args:
        arrays: name -> array of everything the plan names (fused-away temporaries have none).
        pool: scratch memory of kernels.
        share: takes a mapping and a key: notes memory that other frames share; see `FrameMemory`.
        fused: binds steps that are fused loops; without it every operator has a call of its own.

    Attributes:
        calls: one callable a step, once `bind` has run.
        prepared: weights packed before the loop, or the net, starts, keyed by array; else None.
        kept: weights packed when the frame is bound, and again when they have changed; else None.
        least_cost: from which a lone operator is compiled; below, NumPy's kernel is also one pass.
        makes_lists: whether neighboring calls become one, in a net that unrolls loops.
    """

    prepared: Any = None
    kept: Kept | None = None
    least_cost = 2
    makes_lists = False

    def __init__(
        self,
        plan: Plan,
        scope: Scope,
        place: Place,
        train: bool,
        state: RunState,
        arrays: dict[str, Any],
        pool: ScratchPool,
        share: Callable[[Mapping[Any, Any], Any], None],
        fused: FusedBinder | None = None,
    ) -> None:
        self.plan = plan
        self.scope = scope
        self.place = place
        self.xp = place.xp
        self.train = train
        self.state = state
        self.arrays = arrays
        self.share = share
        self._pool = pool
        self._fused = fused
        self.calls: list[Callable[[], Any]] = []

    def scratch(self, shape: Sequence[int], dtype: Any) -> Any:
        """Memory that a kernel writes and reads within one call."""
        return self._pool.take(tuple(shape), np.dtype(dtype))

    def offsets(self, name: str) -> tuple[np.ndarray, ...]:
        """Sequence offsets of a variable; () for a plain array."""
        return self.plan.offsets.get(name, ())

    def bind(self) -> None:
        """Bind every step.

        Raises:
            CannotFuseError: several operators that the arrays at hand do not let run as one.
        """
        self.calls = [self._bind(step) for step in self.plan.steps]

    def bind_readers(self, names: Set[str]) -> bool:
        """Bind again the steps that read one of these; False where that needs another plan."""
        try:
            for index, step in enumerate(self.plan.steps):
                if not names.isdisjoint(step.reads):
                    self.calls[index] = self._bind(step)
        except CannotFuseError:
            return False
        return True

    def _bind(self, step: PlanStep) -> Callable[[], Any]:
        """One callable for a step; a fused one where there is one."""
        if self._fused is not None and self.plan.options.fuse:
            call = self._fused(self, step)
            if call is not None:
                return call
        narrow = narrow_fill(self.plan, step, self.arrays) if self.makes_lists else None
        if narrow is not None:
            return narrow
        # Scratch memory lasts for one call only, so all steps of a frame begin at the same place of
        # it.
        self._pool.restart()
        op, *tail = step.operators
        if tail:
            plan = self.plan
            libraries = plan.options.libraries
            return bind_tailed(step, self.arrays, plan.specs, self, libraries, self._bind_one)
        return self._bind_one(op, self.arrays)

    def _bind_one(self, op: Operator, arrays: Mapping[str, Any]) -> Callable[[], Any]:
        return bind_operator(op, arrays, self.plan.specs, self, self.plan.options.libraries)

    def fail(self, index: int, error: Exception) -> None:
        """Raise the error of a step's call, with the operator named."""
        if isinstance(error, OpscopeError):
            raise error
        op = self.plan.steps[index].operators[0]
        why = f"failed: {type(error).__name__}: {error}"
        raise RunError(op.describe(why, self.plan.specs)) from error


def frame_of(k: KernelArgs) -> BoundSteps:
    """The bound plan that a kernel belongs to: for operators that run inner nets."""
    return cast(BoundSteps, k.frame)
