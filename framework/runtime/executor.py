"""Frames: a plan bound to the arrays of one scope, and the flat loop over its callables.

Binding gives every operator its arrays once and takes back one callable without arguments; a run is
`for call in calls: call()`. There is no look-up, allocation or protobuf in that loop.
"""

from __future__ import annotations

import contextvars
import operator as _operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from ..base.backend import Place, copy_into, on_device, to_place
from ..base.context import OpContext
from ..base.errors import OpscopeError, RunError, VariableError, format_shape
from ..base.scope import Scope, Variable
from ..base.untrusted.limits import limit
from ..fusion.team import in_blocks, in_lists, nothing, one_blas_thread, task_of
from ..ir.desc import INPUT, OUTPUT, TEMPORARY
from ..ir.infer import view_slices
from ..ir.kernel_args import KernelArgs, RunState
from ..ir.op_list import VarDecl
from ..ir.operation import Operator
from .binding import bind_operator
from .plans.constant_factors import constant_factors
from .plans.kept_factors import Kept, kept_factors, written_variables
from .plans.memory import Workspace, as_view, fresh_array, shared_panels, workspace_of
from .plans.narrow_fills import narrow_fill
from .plans.plan import Plan, PlanStep
from .tails import bind_tailed

FusedBinder = Callable[["Frame", PlanStep], Callable[[], Any] | None]
"""Binds a step of a plan as fused loops; None where its operator is better off with its kernel."""

_COPIED = 1 << 16
_SMALL_RUN = 1 << 28  # bytes; smaller runs are not compared with the limit
"""Bytes up to which a replaced input is copied."""


_LARGE = 4096
"""Elements of the largest array from which NumPy's BLAS may use threads: its products use them from
2^18 multiplications on."""


OPERATOR_BYTES = 4096
"""What an operator takes besides arrays: once in a net with its plan, once where it is bound."""


class CannotFuseError(Exception):
    """A fused step cannot be bound here: the plan must be made again without fusion."""


class Frame:
    """A plan bound to a scope.

    Args:
        fused: binds steps that are fused loops; without it every operator has a call of its own.

    Attributes:
        calls: one callable a step. operators: those of the plan, by step where fused.
        arrays: name -> array of everything the plan names (fused-away temporaries have none).
        joined: buckets: names of arrays that lie side by side -> the one array of all.
        prepared: weights packed before the loop, or the net, starts, keyed by array; else None.
        kept: weights packed when the frame is bound, and again when they have changed; else None.
        net_version: of the operator list that the plan was made for.
        scope_version: of the scope tree when the results were last published.
        least_cost: from which a lone operator is compiled; below, its NumPy kernel is one pass too.
    """

    prepared: Any = None
    kept: Kept | None = None
    _writes: Sequence[Variable] = ()  # large variables from outside that a run writes to
    _leaves_lists = True  # whether a call is none that a team can run
    _makes_lists = False  # whether neighbouring calls become one, in a net that unrolls loops
    _joined: tuple[Sequence[Callable[[], Any]], Sequence[int]] | None = None
    least_cost = 2
    net_version = -1

    def __init__(
        self,
        plan: Plan,
        scope: Scope,
        place: Place,
        train: bool,
        fused: FusedBinder | None = None,
    ) -> None:
        self.plan = plan
        self.scope = scope
        self.place = place
        self.xp = place.xp
        self.train = train
        self.state = RunState(place)
        self.scope_version = -1
        self.arrays: dict[str, Any] = {}
        self.joined: dict[tuple[str, ...], Any] = {}
        self._workspace = workspace_of(scope, place)
        self._scratch = self._workspace.scratch
        self._shared: dict[Any, tuple[Mapping[Any, Any], Any]] = {}
        self._fused = fused
        self._borrowed: set[str] = set()
        self._adopt_externals()
        self._check_memory()
        self._allocate()
        self._make_views()
        if place.kind == "cpu":
            self._writes = written_variables(plan, scope)
            self.prepared = constant_factors(plan, self.arrays)
            self._makes_lists = self.prepared is not None and plan.options.fuse
            self.least_cost = 0 if self._makes_lists else self.least_cost
            if self.prepared is None:
                self.kept = kept_factors(plan, scope, self._writes)
        with shared_panels(self._workspace.panels):
            self.calls: list[Callable[[], Any]] = [self._bind(step) for step in plan.steps]
        # Infinities are values here, not warnings. Entering a prepared context is ten times
        # cheaper than numpy.errstate.
        quiet = contextvars.copy_context()
        quiet.run(np.seterr, all="ignore")
        self._quietly = quiet.run
        self._blas = None
        if place.kind == "cpu" and any(array.size >= _LARGE for array in self.arrays.values()):
            self._blas = one_blas_thread()

    # -- memory --------------------------------------------------------------------------------

    def _adopt_externals(self) -> None:
        for name in self.plan.externals:
            variable = self.scope.get(name)
            array = to_place(variable.inner, self.place)
            if array is not variable.inner:
                variable.bind(array, variable.offsets)
            self.arrays[name] = array
            self._note_owner(variable)

    def _note_owner(self, variable: Variable) -> None:
        """Remember whose array an external is, and refuse to write to a borrowed one."""
        name = variable.name
        self._borrowed.discard(name)
        if variable.borrowed:
            if name in self.plan.live_out:
                raise VariableError(
                    f"variable {name!r} shares the caller's array; the net writes it"
                )
            self._borrowed.add(name)

    def _check_memory(self) -> None:
        """Refuse a run that no memory holds, before any of it is taken."""
        plan = self.plan
        outliving = plan.outliving()
        wanted = sum(plan.blocks) + sum(outliving.values())
        if self.place.kind != "cpu" or wanted <= _SMALL_RUN or wanted <= limit("run"):
            return
        sizes = outliving | {name: plan.nbytes(name) for name in plan.placement}
        largest = max(sizes, key=sizes.__getitem__)
        shape, dtype = plan.specs[largest]
        raise RunError(
            f"the run wants {wanted} bytes, beyond the limit of {limit('run')}; the largest of its"
            f" variables is {largest!r}, {dtype}{format_shape(shape)}; where that is meant, set"
            f" OPSCOPE_LIMITS=run=NUMBER"
        )

    def _allocate(self) -> None:
        plan, xp = self.plan, self.xp
        blocks = self._blocks()
        for name, block in plan.placement.items():
            last = name in plan.channels_last
            self.arrays[name] = as_view(blocks[block], plan.specs[name], channels_last=last)
        for names in plan.joined:
            self._join(names, blocks[plan.placement[names[0]]])
        for name in plan.live_out:
            if name in self.arrays:
                continue
            shape, dtype = plan.specs[name]
            array = self._variable(name).inner
            if array is None or array.shape != shape or array.dtype != dtype:
                array = fresh_array(xp, shape, dtype)
            self.arrays[name] = to_place(array, self.place)

    def _join(self, names: tuple[str, ...], block: Any) -> None:
        """Lay variables out side by side in a block of memory."""
        end = 0
        for name in names:
            self.arrays[name] = as_view(block[end:], self.plan.specs[name])
            end += self.plan.nbytes(name)
        dtype = self.plan.specs[names[0]][1]
        self.joined[names] = block[:end].view(dtype)

    def _blocks(self) -> list[Any]:
        """Memory of temporaries, shared by all frames of the scope: one of them runs at a time."""
        blocks = self._workspace.take(self.plan.blocks)
        for number in range(len(blocks)):
            self.share(self._workspace.blocks, number)
        return blocks

    def share(self, memory: Mapping[Any, Any], key: Any) -> None:
        """Note that the frame uses memory that other frames share, and replace by larger one."""
        self._shared[id(memory), key] = memory, memory[key]

    @property
    def is_outgrown(self) -> bool:
        """Whether the frame keeps memory that others have replaced by larger one."""
        return any(memory.get(key) is not used for (_, key), (memory, used) in self._shared.items())

    @property
    def nbytes(self) -> int:
        """The memory that goes with the frame: what no other frame and no parameter shares."""
        plan = self.plan
        own = {name for name in plan.externals if _is_fed(plan.declared.get(name))}
        arrays = [self.arrays.get(name) for name in (*own, *plan.live_out)]
        arrays += [level for levels in plan.offsets.values() for level in levels]
        packed = 0 if self.prepared is None else self.prepared.nbytes
        held = sum(array.nbytes for array in arrays if array is not None)
        return held + packed + OPERATOR_BYTES * len(plan.operators)

    def _variable(self, name: str) -> Variable:
        """Where a value that outlives the run is: local, or outside if the run updates it."""
        declared = self.plan.declared.get(name)
        if declared is None or declared.kind in (TEMPORARY, OUTPUT):
            if name not in self.plan.externals:
                return self.scope.var(name)
        return self.scope.find(name) or self.scope.var(name)

    def _make_views(self) -> None:
        for name, var in self.plan.declared.items():
            view = var.view
            if view is not None and name in self.plan.specs and view.base in self.arrays:
                base = self.arrays[view.base]
                rows, cols = view_slices(name, view, base.shape)
                self.arrays[name] = base[rows, cols]

    def scratch(self, shape: Sequence[int], dtype: Any) -> Any:
        return self._scratch.take(tuple(shape), np.dtype(dtype))

    def offsets(self, name: str) -> tuple[np.ndarray, ...]:
        """Sequence offsets of a variable; () for a plain array."""
        return self.plan.offsets.get(name, ())

    def array(self, name: str) -> Any:
        """Value of a variable as of now; None for one that lives only inside a fused chain."""
        if self.kept is not None:
            self.kept.expose(name)
        return self.arrays.get(name)

    def publish(self) -> None:
        """Make the scope's variables hold the frame's results; drop values that are now stale."""
        scope = self.scope
        for name in scope.names():
            if name in self.plan.placement:
                scope.var(name).clear()  # of an earlier run with another `live_out`
        for name in self.plan.live_out:
            self._variable(name).bind(self.arrays[name], self.plan.offsets.get(name, ()))
        self.scope_version = scope.root.version

    def accept_inputs(self) -> bool:
        """Take inputs whose array was replaced; False for a parameter: that needs a new frame.

        Small ones are copied into the frame's own array. For large ones it is cheaper to bind the
        steps that read them anew.
        """
        replaced = set()
        for name in self.plan.externals:
            variable = self.scope.get(name)
            mine = self.arrays[name]
            if variable.inner is mine:
                continue
            declared = self.plan.declared.get(name)
            if declared is None or declared.kind != INPUT or name in self.plan.live_out:
                return False
            copied = variable.inner.nbytes <= _COPIED or self.place.kind != "cpu"
            if copied and not variable.borrowed and name not in self._borrowed:
                copy_into(mine, variable.inner)
                variable.bind(mine, variable.offsets)
            else:
                self.arrays[name] = to_place(variable.inner, self.place)
                replaced.add(name)
                self._note_owner(variable)
        return not replaced or self._bind_again(replaced)

    def release(self) -> None:
        """Let go of all calls, and what they refer to: nobody runs the frame again."""
        self.calls, self._joined, self.net_version = [], ([_released], [0]), -1

    def rest(self) -> None:
        """Let go of large inputs, as frames of other shapes run now: the next run of these shapes
        brings new ones, and binds the steps that read them."""
        if self.place.kind != "cpu":
            return  # where they are copied
        large = set()
        for name in self.plan.externals:
            declared, array = self.plan.declared.get(name), self.arrays[name]
            is_input = declared is not None and declared.kind == INPUT
            if is_input and name not in self.plan.live_out and name not in self._borrowed:
                if array is not None and array.nbytes > _COPIED:
                    large.add(name)
        if not large:
            return
        large = self._with_views(large)
        self.arrays.update(dict.fromkeys(large))
        self.calls = [
            call if large.isdisjoint(step.reads) else nothing
            for call, step in zip(self.calls, self.plan.steps, strict=True)
        ]
        self._joined = None

    def _with_views(self, names: set[str]) -> set[str]:
        """Some variables, and the views of them."""
        declared = self.plan.declared.values()
        return names | {
            var.name for var in declared if var.view is not None and var.view.base in names
        }

    def _bind_again(self, replaced: set[str]) -> bool:
        """Bind the steps that read other arrays now; False where that needs another plan."""
        replaced = self._with_views(replaced)
        self._make_views()
        self._joined = None
        try:
            for index, step in enumerate(self.plan.steps):
                if not replaced.isdisjoint(step.reads):
                    self.calls[index] = self._bind(step)
        except CannotFuseError:
            return False
        return True

    # -- binding -------------------------------------------------------------------------------

    def _bind(self, step: PlanStep) -> Callable[[], Any]:
        """One callable for a step; a fused one where there is one.

        Raises:
            CannotFuseError: several operators that the arrays at hand do not let run as one.
        """
        if self._fused is not None and self.plan.options.fuse:
            call = self._fused(self, step)
            if call is not None:
                return call
        narrow = narrow_fill(self.plan, step, self.arrays) if self._makes_lists else None
        if narrow is not None:
            return narrow
        self._scratch.restart()
        op, *tail = step.operators
        if tail:
            plan = self.plan
            libraries = plan.options.libraries
            return bind_tailed(step, self.arrays, plan.specs, self, libraries, self._bind_one)
        return self._bind_one(op, self.arrays)

    def _bind_one(self, op: Operator, arrays: Mapping[str, Any]) -> Callable[[], Any]:
        return bind_operator(op, arrays, self.plan.specs, self, self.plan.options.libraries)

    # -- running -------------------------------------------------------------------------------

    def run(self, context: OpContext) -> None:
        """Run every step.

        Raises:
            RunError: an operator failed; named with its operands. Own errors pass through. Or
                the net is running already in this scope, in another thread.
        """
        self.state.context = context
        if self.kept is not None and (exposed := self.kept.refresh()):
            self._bind_again(exposed)
        if self._joined is None:
            self._joined = self._in_few_calls()
        blas = self._blas
        if blas is not None and self._leaves_lists:
            blas[0](0)
        try:
            if self.prepared is not None:
                for fill in self.prepared.calls():
                    fill()
            if context.hooks or self.place.kind != "cpu":
                self._quietly(self._run_watched, context)
            else:
                self._quietly(self._run_all)
        except RuntimeError as error:
            if not str(error).startswith("cannot enter context"):
                raise  # of a hook
            raise RunError(
                "this net is running already in this scope; give each thread a Scope of its own, or"
                " call predict, which several threads may do at once"
            ) from None
        finally:
            for variable in self._writes:
                variable.stamp += 1
            if blas is not None and self._leaves_lists:
                blas[1](0)

    def _run_all(self) -> None:
        calls, steps = self._joined or self._in_few_calls()
        rest = iter(calls)
        try:
            for call in rest:
                call()
        except Exception as error:
            self._fail(steps[len(calls) - 1 - _operator.length_hint(rest)], error)

    def _in_few_calls(self) -> tuple[list[Callable[[], Any]], Sequence[int]]:
        """The calls, with neighbours made one that a team can run as a list, or a block of rows
        after another; and the number of the first step of each."""
        # While lists run, NumPy's BLAS has one thread in any case.
        self._leaves_lists = any(
            task_of(call) is None for call in self.calls if call is not nothing
        )
        if self._makes_lists:
            return in_lists(self.calls)
        if self.plan.options.rows:
            return in_blocks(self.calls)
        return self.calls, range(len(self.calls))

    def _run_watched(self, context: OpContext) -> None:
        hooks = context.hooks
        with on_device(self.place, context.stream):
            for hook in hooks:
                hook.before_run(self)
            for index, call in enumerate(self.calls):
                for hook in hooks:
                    hook.before_op(self, index)
                try:
                    call()
                except Exception as error:
                    self._fail(index, error)
                for hook in hooks:
                    hook.after_op(self, index)
            for hook in hooks:
                hook.after_run(self)

    def _fail(self, index: int, error: Exception) -> None:
        if isinstance(error, OpscopeError):
            raise error
        op = self.plan.steps[index].operators[0]
        why = f"failed: {type(error).__name__}: {error}"
        raise RunError(op.describe(why, self.plan.specs)) from error


def _released() -> None:
    raise RunError("this frame was given up for those of other shapes; see the limit 'cache'")


def drop_outgrown(workspace: Workspace) -> None:
    """Let go of frames that keep memory which was replaced by larger one: they are bound anew."""
    for scope in list(workspace.scopes):
        for key, frames in scope.bound.get("frames", {}).items():
            frames.drop_where(lambda frame: frame.is_outgrown)
            current = scope.bound.get(key)
            if current is not None and current.is_outgrown:
                del scope.bound[key]


def bound_bytes(operators: Sequence[Operator], scope: Scope) -> int:
    """The memory of a net that runs in this scope alone, without what its parents hold."""
    bound = sum(frame.nbytes for frame in scope.frames())
    return bound + OPERATOR_BYTES * len(operators)


def frame_of(k: KernelArgs) -> Frame:
    """The whole frame that binds a kernel, with its plan: for operators that run inner nets."""
    return cast(Frame, k.frame)


def _is_fed(var: VarDecl | None) -> bool:
    """Whether a variable from outside is an input, of which a frame has an array of its own."""
    return var is None or var.kind == INPUT
