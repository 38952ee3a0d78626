"""Frames: a plan bound to the arrays of one scope, and the flat loop over its callables.

Binding gives every operator its arrays once and takes back one callable without arguments; a run is
`for call in calls: call()`. There is no look-up, allocation or protobuf in that loop.
"""

from __future__ import annotations

import contextvars
import heapq
import operator as _operator
from collections.abc import Callable, Mapping, Sequence, Set
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.backend import Place, copy_into, on_device, to_place
from ..base.context import OpContext
from ..base.errors import RunError, VariableError, format_shape
from ..base.options.settings import Options, read_options, using
from ..base.scope import Scope, Variable
from ..base.untrusted.limits import limit
from ..fusion import chains
from ..fusion.compiled import hot
from ..fusion.team import in_blocks, in_lists, nothing, one_blas_thread, parts_of, task_of
from ..ir.desc import INPUT, OUTPUT, TEMPORARY
from ..ir.infer import view_slices
from ..ir.kernel_args import RunState
from ..ir.operation import Operator
from .binding import BoundSteps, FusedBinder
from .externals import externals_of
from .plans.constant_factors import constant_factors, prepared_factors
from .plans.kept_factors import kept_factors, written_variables
from .plans.memory import (
    Held,
    NoMemoryError,
    Workspace,
    as_view,
    fresh_array,
    shared_panels,
    was_replaced,
    workspace_of,
)
from .plans.plan import Plan, PlanStep, Traces

if TYPE_CHECKING:
    from ..base.context import Hook
    from .recording import Recording

_COPIED = 1 << 16
"""Bytes up to which a replaced input is copied."""
_SMALL_RUN = 1 << 28
"""Bytes; smaller runs are not compared with the limit."""
_SLOW = 3e-6
"""Seconds of binding a step from which its structs are computed for shapes that follow."""
_MANY = 256
"""Steps to be bound from which it is worth looking for alike ones."""
_LARGE = 4096
"""Elements of the largest array from which NumPy's BLAS may use threads: its products use them from
2^18 multiplications on."""
OPERATOR_BYTES = 2560
"""What an operator takes besides arrays: once in a net, once where it is bound."""


class ScopeValues:
    """The variables of a scope that a plan reads or writes."""

    def __init__(self, plan: Plan, scope: Scope, place: Place) -> None:
        self.plan = plan
        self.scope = scope
        self.place = place
        self._borrowed: set[str] = set()

    def adopt(self) -> dict[str, Any]:
        """The arrays of all externals, on the frame's place.

        Raises:
            VariableError: the net writes to an array that is the caller's.
        """
        names = self.plan.externals
        variables = externals_of(names, self.scope).variables
        arrays = [one.inner for one in variables]
        if self.place.kind != "cpu" or not all([type(array) is np.ndarray for array in arrays]):
            for number, variable in enumerate(variables):
                # The variable keeps the copy on the device: the next run finds it there and copies
                # nothing.
                moved = to_place(arrays[number], self.place)
                if moved is not arrays[number]:
                    variable.move(moved)
                    arrays[number] = moved
        for variable in [one for one in variables if one.borrowed]:
            self._note_owner(variable)
        return dict(zip(names, arrays, strict=True))

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

    def variable(self, name: str) -> Variable:
        """Where a value that outlives the run is: local, or outside if the run updates it."""
        declared = self.plan.declared.get(name)
        if declared is None or declared.kind in (TEMPORARY, OUTPUT):
            if name not in self.plan.externals:
                return self.scope.var(name)
        return self.scope.find(name) or self.scope.var(name)

    def store(self, arrays: Mapping[str, Any]) -> None:
        """Make the scope's variables hold the results; drop values that are now stale."""
        scope = self.scope
        for name in scope.names():
            if name in self.plan.placement:
                scope.var(name).clear()  # of an earlier run with another `live_out`
        for name in self.plan.live_out:
            self.variable(name).bind(arrays[name], self.plan.offsets.get(name, ()))

    def accept(self, arrays: dict[str, Any]) -> set[str] | None:
        """Take inputs whose array was replaced; None for a parameter: that needs a new frame.

        Small ones are copied into the frame's own array. For large ones it is cheaper to bind
        again the steps that read them: the names of the inputs are returned.
        """
        replaced: set[str] = set()
        names = self.plan.externals
        for name, variable in zip(names, externals_of(names, self.scope).variables, strict=True):
            mine = arrays[name]
            if variable.inner is mine:
                continue
            declared = self.plan.declared.get(name)
            if declared is None or declared.kind != INPUT or name in self.plan.live_out:
                return None
            copied = variable.inner.nbytes <= _COPIED or self.place.kind != "cpu"
            if copied and not variable.borrowed and name not in self._borrowed:
                copy_into(mine, variable.inner)
                variable.move(mine)
            else:
                arrays[name] = to_place(variable.inner, self.place)
                replaced.add(name)
                self._note_owner(variable)
        return replaced

    def large_inputs(self, arrays: Mapping[str, Any]) -> set[str]:
        """Inputs that the next run binds again in any case: large ones of the scope's own."""
        if self.place.kind != "cpu":
            return set()  # where they are copied
        large = set()
        for name in self.plan.fed:
            array = arrays[name]
            is_own = name in self.plan.declared and name not in self._borrowed
            if is_own and name not in self.plan.live_out:
                if array is not None and array.nbytes > _COPIED:
                    large.add(name)
        return large


class FrameMemory:
    """Arrays of inputs, temporaries, results and views.

    Args:
        workspace: holds temporaries, which frames of a scope share: one of them runs at a time.

    Attributes:
        arrays: name -> array. joined: see `Frame`.
        addresses: of temporaries on the host: where their arrays begin.
    """

    def __init__(self, plan: Plan, place: Place, workspace: Workspace, values: ScopeValues) -> None:
        self.plan = plan
        self.place = place
        self.arrays = values.adopt()
        self.addresses: dict[str, int] = {}
        self.joined: dict[tuple[str, ...], Any] = {}
        self._workspace = workspace
        self._values = values
        self._shared: dict[Any, tuple[Mapping[Any, Any], Any]] = {}
        self._check()
        try:
            self._allocate()
        except NoMemoryError as error:
            raise NoMemoryError(self._without_memory(error)) from error
        self.make_views()

    def _check(self) -> None:
        """Refuse a run that no memory holds, before any of it is taken."""
        plan = self.plan
        outliving = plan.outliving()
        # The sum of all shapes is known before anything is allocated: where the system promises
        # more memory than it has, the run would be killed instead of refused.
        wanted = plan.temporaries + sum(outliving.values())
        if self.place.kind != "cpu" or wanted <= _SMALL_RUN or wanted <= limit("run"):
            return
        (largest,) = self._largest(1)
        raise RunError(
            f"the run wants {wanted} bytes, beyond the limit of {limit('run')}; the largest of its"
            f" variables is {largest}; where that is meant, set OPSCOPE_LIMITS=run=NUMBER"
        )

    def _largest(self, count: int) -> list[str]:
        """The variables that take the most memory, with dtypes and shapes."""
        plan = self.plan
        sizes = plan.outliving() | {name: plan.nbytes(name) for name in plan.placement}
        names = heapq.nlargest(count, sizes, key=sizes.__getitem__)
        return [f"{n!r}, {plan.specs[n][1]}{format_shape(plan.specs[n][0])}" for n in names]

    def _without_memory(self, error: NoMemoryError) -> str:
        """What wants how much memory, how much there is, and what would help."""
        plan = self.plan
        wanted = plan.temporaries + sum(plan.outliving().values())
        text = f"{self.place}: {error}; all of it is {wanted} bytes"
        if self.place.kind != "cpu":
            with on_device(self.place):
                free, whole = self.place.xp.cuda.runtime.memGetInfo()
            text += f", and {free} of {whole} are free"
        return (
            f"{text}; the largest of its variables are {'; '.join(self._largest(3))}; smaller"
            " batches help, train(..., memory=BYTES), and dtypes of 16 bits"
        )

    def _allocate(self) -> None:
        plan = self.plan
        blocks = self._blocks()
        begins = [block.ctypes.data for block in blocks] if self.place.kind == "cpu" else []
        for name, block in plan.placement.items():
            last = name in plan.channels_last
            self.arrays[name] = as_view(blocks[block], plan.specs[name], channels_last=last)
            if begins:
                self.addresses[name] = begins[block]
        for name, (whole, begin) in plan.parts.items():
            end = begin + plan.specs[name][0][1]
            self.arrays[name] = self.arrays[whole][:, begin:end]
            self.addresses[name] = self.arrays[name].ctypes.data
        for names in plan.joined:
            self._join(names, blocks[plan.placement[names[0]]])
        for name in plan.live_out:
            if name in self.arrays:
                continue
            shape, dtype = plan.specs[name]
            array = self._values.variable(name).inner
            if array is None or array.shape != shape or array.dtype != dtype:
                array = fresh_array(self.place.xp, shape, dtype)
            self.arrays[name] = to_place(array, self.place)

    def _join(self, names: tuple[str, ...], block: Any) -> None:
        """Lay variables out side by side in a block of memory."""
        end = 0
        for name in names:
            self.arrays[name] = as_view(block[end:], self.plan.specs[name])
            self.addresses.pop(name, None)
            end += self.plan.nbytes(name)
        dtype = self.plan.specs[names[0]][1]
        self.joined[names] = block[:end].view(dtype)

    def _blocks(self) -> list[Any]:
        """Memory of temporaries."""
        blocks, self._taken = self._workspace.take(self.plan.blocks, self.plan.starts)
        return blocks

    def share(self, memory: Mapping[Any, Any], key: Any) -> None:
        """Note that the frame uses memory that other frames share, and replace by larger one."""
        self._shared[id(memory), key] = memory, memory[key]

    @property
    def holds_replaced(self) -> bool:
        """Whether other frames have replaced some of the memory by larger one."""
        # All in C: whoever binds a frame asks all others, of thousands of blocks.
        present = map(self._workspace.blocks.get, self._taken)
        return any(map(_operator.is_not, present, self._taken.values())) or self.shares_replaced

    @property
    def shares_replaced(self) -> bool:
        """As `holds_replaced`, of memory that is not the workspace's: that of loops."""
        return any(
            [memory.get(key) is not used for (_, key), (memory, used) in self._shared.items()]
        )

    def make_views(self) -> None:
        """Cut the views of other variables out of the arrays that these have now."""
        for name in self.plan.views:
            view = self.plan.declared[name].view
            if view is not None and view.base in self.arrays:
                base = self.arrays[view.base]
                rows, cols = view_slices(name, view, base.shape)
                self.arrays[name] = base[rows, cols]

    def with_views(self, names: set[str]) -> set[str]:
        """Some variables, and the views of them."""
        return names | {name for name, base in self.plan.views.items() if base in names}


class Frame(BoundSteps):
    """A plan bound to the variables of a scope, which can be run.

    Args:
        fused: binds steps that are fused loops; without it every operator has a call of its own.

    Attributes:
        traces: those of its plan for its scopes; None where each step is bound by its kernel.
        traced: new traces of its steps, by id, with what kernels have bound. layers: those that
            steps of other layers may take, with the names of their variables.
        addresses: see `FrameMemory`.
        joined: buckets: names of arrays that lie side by side -> the one array of all.
        options: that it was bound with. chosen: those of the block that it last ran in, if any.
        net_version: of the operator list that the plan was made for.
        scope_version: of the scope tree when the results were last published.
    """

    chosen: Options | None = None
    net_version = -1
    scope_version = -1
    _computed: Sequence[Variable] = ()  # on a GPU, variables that a run writes to
    _writes: Sequence[Variable] = ()  # from outside, that a run writes to
    traces: Traces | None = None
    _recording: Recording | None = None
    _dropped = 0  # of the kept weights, when the frame was bound
    _leaves_lists = True  # whether a call is none that a team can run
    _joined: tuple[Sequence[Callable[[], Any]], Sequence[int]] | None = None

    def __init__(
        self,
        plan: Plan,
        scope: Scope,
        place: Place,
        train: bool,
        fused: FusedBinder | None = None,
    ) -> None:
        self.options = read_options()
        workspace = workspace_of(scope, place)
        self._values = ScopeValues(plan, scope, place)
        self._memory = memory = FrameMemory(plan, place, workspace, self._values)
        self.joined, self.addresses = memory.joined, memory.addresses
        kernels = RunState(place), memory.arrays, workspace.scratch, memory.share
        super().__init__(plan, scope, place, train, *kernels, fused)
        self.traced: dict[int, tuple[Any, Callable[[], Any]]] = {}
        self.layers: dict[Any, tuple[Any, list[str]]] = {}
        if place.kind == "cpu":
            self._writes = written_variables(plan, scope)
            self.kept = kept_factors(plan, scope, self._writes)
            self._dropped = 0 if self.kept is None else len(self.kept.dropped)
            factors = constant_factors(plan)
            self.makes_lists = bool(factors) and plan.options.fuse
            # What stays packed from run to run is not packed before each of them.
            self.prepared = prepared_factors([self.arrays[name] for name in factors], self.kept)
            # In lists every call that is not C would end the list, so cheap operators are compiled
            # as well.
            self.least_cost = 0 if self.makes_lists else self.least_cost
            if plan.options.rebind and not (self.joined or plan.views):
                self.traces = plan.traces.setdefault(scope.root, Traces())
        else:
            self._computed = [self._values.variable(name) for name in plan.live_out]
        with shared_panels(workspace.panels):
            self.bind()
        # Infinities are values here, not warnings. Entering a prepared context is ten times
        # cheaper than numpy.errstate.
        quiet = contextvars.copy_context()
        quiet.run(np.seterr, all="ignore")
        self._quietly = quiet.run
        self._blas = None
        if place.kind == "cpu" and any(array.size >= _LARGE for array in self.arrays.values()):
            self._blas = one_blas_thread()

    @property
    def is_outgrown(self) -> bool:
        """Whether the frame keeps memory that others have replaced by larger one."""
        return self._memory.holds_replaced

    @property
    def has_outgrown_loops(self) -> bool:
        """As `is_outgrown`, where no block of the workspace was replaced."""
        return self._memory.shares_replaced

    @property
    def nbytes(self) -> int:
        """The memory that goes with the frame: what no other frame and no parameter shares."""
        plan = self.plan
        arrays = [self.arrays.get(name) for name in plan.own]
        arrays += [level for levels in plan.offsets.values() for level in levels]
        packed = 0 if self.prepared is None else self.prepared.nbytes
        held = sum(array.nbytes for array in arrays if array is not None)
        return held + packed + OPERATOR_BYTES * len(plan.operators)

    def bind(self) -> None:
        """See `BoundSteps.bind`."""
        traced: Mapping[int, Callable[[], Any]] = {}
        if self.traces is not None and any(self.traces.values()):
            from .other_shapes.rebinding import bound  # for nets that come with several shapes

            traced = bound(self)
        steps = self.plan.steps
        if self.traces is not None and len(steps) - len(traced) >= _MANY:
            from .other_shapes.alike import bind_alike  # for nets of many layers

            traced = {**traced, **bind_alike(self, traced)}
        self.calls = [traced.get(id(step)) or self._by_kernel(step) for step in steps]
        self._keep_traces()

    def bind_readers(self, names: Set[str]) -> bool:
        """See `BoundSteps.bind_readers`."""
        bound = super().bind_readers(names)
        self._keep_traces()
        return bound

    def _keep_traces(self) -> None:
        if self.traced:
            from .other_shapes.rebinding import keep  # for nets that come with several shapes

            keep(self)

    def _bind(self, step: PlanStep) -> Callable[[], Any]:
        traces = None if self.traces is None else self.traces.get(id(step))
        call = None if traces is None else traces.bound(self)
        return call or self._by_kernel(step)

    def _by_kernel(self, step: PlanStep) -> Callable[[], Any]:
        """As `_bind`, without traces."""
        known = self.traces
        if known is None:
            return super()._bind(step)
        started = perf_counter()
        call = super()._bind(step)
        if id(step) in known:
            from .other_shapes.rebinding import note  # for nets that come with several shapes

            note(self, step, call)
        elif perf_counter() - started > _SLOW:
            known[id(step)] = None
        return call

    def array(self, name: str) -> Any:
        """Value of a variable as of now; None for one that lives only inside a fused chain."""
        if self.kept is not None:
            self.kept.expose(name)
        return self.arrays.get(name)

    def publish(self) -> None:
        """Make the scope's variables hold the frame's results; drop values that are now stale."""
        self._values.store(self.arrays)
        self.scope_version = self.scope.root.version

    def accept_inputs(self) -> bool:
        """Take inputs whose array was replaced; False for a parameter: that needs a new frame."""
        replaced = self._values.accept(self.arrays)
        return replaced is not None and (not replaced or self._bind_again(replaced))

    def release(self) -> None:
        """Let go of all calls, and what they refer to: nothing runs the frame again."""
        self.calls = []
        self._joined = [_released], [0]
        self.net_version = -1

    def rest(self) -> None:
        """Let go of large inputs, as frames of other shapes run now: the next run of these shapes
        brings new ones, and binds the steps that read them."""
        if self.net_version < 0:
            return  # released: the frame that runs now took its room in the cache
        large = self._memory.with_views(self._values.large_inputs(self.arrays))
        if not large:
            return
        self.arrays.update(dict.fromkeys(large))
        self.calls = [
            call if large.isdisjoint(step.reads) else nothing
            for call, step in zip(self.calls, self.plan.steps, strict=True)
        ]
        self._joined = None

    def _bind_again(self, replaced: set[str]) -> bool:
        """Bind the steps that read other arrays now; False where that needs another plan."""
        self._memory.make_views()
        self._joined = None
        with using(self.options):
            return self.bind_readers(self._memory.with_views(replaced))

    def run(self, context: OpContext) -> None:
        """Run every step.

        Raises:
            RunError: an operator failed; named with its operands. Own errors pass through. Or
                the net is running already in this scope, in another thread.
        """
        self.state.context = context
        if chains.HOT.value:
            hot.look()
        # Before the first call: a weight may have been set since the last run.
        if self.kept is not None and (exposed := self.kept.refresh(self._dropped)):
            self._dropped = len(self.kept.dropped)
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
            # Python refuses to enter one context twice at once: this is the check that a frame runs
            # in one thread, and it costs nothing.
            if not str(error).startswith("cannot enter context"):
                raise  # of a hook
            raise RunError(
                "this net is running already in this scope; give each thread a Scope of its own, or"
                " call predict, which several threads may do at once"
            ) from None
        finally:
            for variable in self._writes:
                # In `finally`: a run that failed halfway may have written as well.
                variable.count_write()
            if blas is not None and self._leaves_lists:
                blas[1](0)

    def _run_all(self) -> None:
        calls, steps = self._joined or self._in_few_calls()
        rest = iter(calls)
        try:
            for call in rest:
                call()
        except Exception as error:
            # The iterator knows how far it came, so the loop need not count.
            self.fail(steps[len(calls) - 1 - _operator.length_hint(rest)], error)

    def _in_few_calls(self) -> tuple[list[Callable[[], Any]], Sequence[int]]:
        """The calls, with neighbors made one that a team can run as a list, or a block of rows
        after another; and the number of the first step of each."""
        # While lists run, NumPy's BLAS has one thread in any case.
        calls: Sequence[Callable[[], Any]] = self.calls
        if sum([hasattr(type(call), "in_parts") for call in calls]) > 1:
            from .side_by_side import with_loops_beside  # for nets of several loops

            calls = with_loops_beside(self.plan, calls)
        single = [(part, number) for number, call in enumerate(calls) for part in parts_of(call)]
        calls = [part for part, _ in single]
        self._leaves_lists = any(task_of(call) is None for call in calls)
        joined, firsts = (in_lists if self.makes_lists else in_blocks)(calls)
        return joined, [single[first][1] for first in firsts]

    def _run_watched(self, context: OpContext) -> None:
        hooks = context.hooks
        with on_device(self.place, context.stream):
            if not hooks and self.place.kind != "cpu" and self.options.graphs:
                self.recording.replay(self._run_each, self.fail)
            else:
                self._run_each(hooks)
        checks = self.scope.root.checks
        if checks is not None:
            checks.stale = True
        for variable in self._computed:
            variable.fed = None

    def _run_each(self, hooks: Sequence[Hook] = ()) -> None:
        for hook in hooks:
            hook.before_run(self)
        for index, call in enumerate(self.calls):
            for hook in hooks:
                hook.before_op(self, index)
            try:
                call()
            except Exception as error:
                self.fail(index, error)
            for hook in hooks:
                hook.after_op(self, index)
        for hook in hooks:
            hook.after_run(self)

    @property
    def recording(self) -> Recording:
        """The calls that it has now, on a GPU, as CUDA graphs."""
        from .recording import Recording  # without a GPU it is not needed

        if self._recording is None or not self._recording.has(self.calls):
            self._recording = Recording(self.place.xp, self.calls, self.plan.steps)
        return self._recording


def _released() -> None:
    raise RunError("this frame was given up for frames of other shapes; see the limit 'cache'")


def drop_outgrown(workspace: Workspace, scope: Scope) -> None:
    """Let go of frames that keep memory which was replaced by larger one: they are bound again.

    Args:
        scope: where a frame was just bound. Those of other scopes share blocks alone with it, and
            are looked at where one of these was replaced: there may be a hundred.
    """
    scopes, is_outgrown = [scope] if was_replaced(scope) else [], attrgetter("has_outgrown_loops")
    if workspace.has_replaced:
        scopes, is_outgrown = list(workspace.scopes), attrgetter("is_outgrown")
        workspace.has_replaced = False
    for each in scopes:
        for key, frames in each.bound.get("frames", {}).items():
            # Bound again they share the larger memory; kept they would hold the smaller one beside
            # it.
            frames.drop_where(is_outgrown)
            current = each.bound.get(key)
            if current is not None and is_outgrown(current):
                del each.bound[key]


def drop_all(workspace: Workspace) -> None:
    """Let go of all frames that share a workspace, and of its memory."""
    for scope in list(workspace.scopes):
        for key, frames in scope.bound.pop("frames", {}).items():
            scope.bound.pop(key, None)
            for frame_key, _ in frames.items():
                frames.give_up(frame_key)
        for key in [key for key, one in scope.bound.items() if isinstance(one, Held)]:
            del scope.bound[key]
    workspace.give_up()


def bound_bytes(operators: Sequence[Operator], scope: Scope) -> int:
    """The memory of a net that runs in this scope alone, without what its parents hold."""
    bound = sum(frame.nbytes for frame in scope.frames())
    return bound + OPERATOR_BYTES * len(operators)
