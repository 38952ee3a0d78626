"""A plan: everything about running a range of a net that depends on shapes and not on data.

For one (op range, input shapes and dtypes, place, phase, options) it holds the inferred shapes,
which variables outlive the run, the steps (single operators or fused chains), and which block of
memory each temporary occupies. Plans own no memory; frames (executor.py) do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ...base.backend import Place
from ...base.dtypes import to_dtype
from ...base.errors import OpscopeError, RunError, nearest
from ...base.options.settings import Options, option_text
from ...base.python.cached import cached_property
from ...base.scope import Scope
from ...base.sizes.shape import ArraySpec, Levels, Shape, nbytes_of
from ...fusion.scalars.codegen import COLUMN, ROW
from ...fusion.scalars.pointwise import kind_of, width_of
from ...ir.desc import INPUT, OUTPUT, PARAMETER, STATE
from ...ir.infer import declared_spec, infer_specs
from ...ir.op_list import VarDecl, View
from ...ir.operation import Operator, results_of, roots_of
from ...ir.registry import REFERENCE, kernel_libraries
from .layouts import channels_last, is_of_channels
from .memory import FreeBlocks
from .parts import Part, joined_parts
from .steps import Chain, PlanStep, Steps, steps_of

_PERSISTENT = (PARAMETER, STATE, OUTPUT, INPUT)
_log = logging.getLogger(__name__)

_MOST_FORMS = 4
"""Forms of one range: for batches of one row, say, and for larger ones."""
_MOST_OPENED = 4
"""How often sizes of a form are left open."""
_Infer = Callable[
    [Mapping[str, ArraySpec], Mapping[str, Levels]],
    tuple[dict[str, ArraySpec], dict[str, Levels]],
]


Grouping = Callable[
    [Sequence[Operator], Mapping[str, ArraySpec], set[str], Mapping[str, View]], list[Chain]
]
"""(operators, specs, live_out, views) -> chains of operators that run as one step each."""


@dataclass
class Range:
    """A range of operators, seen from outside; it holds for any shapes.

    Attributes:
        externals: variables that it reads, or updates, from outside.
        live_out: variables that must be in memory after it has run.
        views: view variable -> its base.
        forms: what its plans have in common, by what they depend on beside shapes.
    """

    operators: list[Operator]
    externals: list[str]
    live_out: set[str]
    views: dict[str, str]
    forms: dict[Any, list[Form]] = field(default_factory=dict)


class Traces(dict[int, Any]):
    """Steps as they are for other shapes, by id; None for one that was slow to bind, once.

    Attributes:
        joint: all of them, by which a frame is bound at once.
        lying: how arrays lie that do not differ from frame to frame, for alike.py.
    """

    joint: Any = None
    lying: Any = None


@dataclass
class Plan:
    """How a range of operators runs for given shapes and dtypes; see the module's text.

    Attributes:
        operators, externals, live_out: those of the range.
        specs: shape and dtype of every variable. declared: declarations of the net's variables.
        steps: the callables to bind, in order.
        offsets: sequence offsets of variables that hold sequences.
        blocks: sizes of blocks of memory, in bytes. placement: temporary -> number of its block.
        starts: where the blocks begin in one piece of memory, whose parts several may use one after
            another; None where each is memory of its own.
        temporaries: the bytes of all blocks.
        joined: temporaries that lie side by side in one block, in order (see `OperatorDef.joins`).
        options: the switches. loops: fused loops by id of the step, filled by fuse.py.
        channels_last: temporaries whose channels lie last in memory (see layouts.py).
        parts: those of them that lie in others (see parts.py).
        views: view variable -> its base.
        overwrites: inputs whose block a result takes over, with that result.
        traces: for each tree of scopes, by its root: they hold arrays of these. Filled by
            rebinding.py.
        accesses: when variables are read and written, filled by narrow_fills.py.
    """

    operators: list[Operator]
    externals: list[str]
    live_out: set[str]
    specs: dict[str, ArraySpec]
    declared: Mapping[str, VarDecl]
    steps: Steps
    offsets: Mapping[str, Levels] = field(default_factory=dict)
    blocks: list[int] = field(default_factory=list)
    placement: dict[str, int] = field(default_factory=dict)
    starts: list[int] | None = None
    temporaries: int = 0
    joined: list[tuple[str, ...]] = field(default_factory=list)
    options: Options = Options()
    loops: dict[int, Any] = field(default_factory=dict)
    channels_last: set[str] = field(default_factory=set)
    parts: dict[str, Part] = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)
    overwrites: list[tuple[str, str]] = field(default_factory=list)
    traces: WeakKeyDictionary[Scope, Traces] = field(default_factory=WeakKeyDictionary)
    accesses: Any = None

    @cached_property
    def bases(self) -> frozenset[str]:
        """Variables that views are cut out of."""
        return frozenset(self.views.values())

    @property
    def fed(self) -> list[str]:
        """Inputs: variables from outside of which a run may bring other arrays."""
        return self.steps.fact("fed", lambda: [n for n in self.externals if self._is_fed(n)])

    def _is_fed(self, name: str) -> bool:
        declared = self.declared.get(name)
        return declared is None or declared.kind == INPUT

    @property
    def fixed(self) -> frozenset[str]:
        """Parameters, states and constants: variables from outside whose arrays stay."""
        find = self.steps.fact
        return find("fixed", lambda: frozenset(self.externals).difference(self.fed))

    @property
    def own(self) -> list[str]:
        """Variables of which a frame has arrays that no other frame shares, temporaries aside."""
        find = self.steps.fact
        return find("own", lambda: [*self.fed, *self.live_out.difference(self.externals)])

    def nbytes(self, name: str) -> int:
        return nbytes_of(self.specs[name])

    def outliving(self) -> dict[str, int]:
        """The bytes of each variable that outlives a run; `blocks` are those of all others."""
        return {name: self.nbytes(name) for name in self.live_out if name in self.specs}


class Form:
    """What plans of a range share whatever the sizes are: order, loops, tails, who shares memory.

    It follows from which shapes are equal, and from how operands meet the loops that read them
    (whole, as rows, columns, or single numbers). Where that is the same, so are the steps.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._open: list[Any] = []  # OpenSizes
        self._varying: dict[str, set[int]] = {}  # inputs whose sizes were others, by axis
        self._opened = 0
        self._specs: list[ArraySpec] = []

    def _look(self) -> None:
        """Find out what other shapes must meet; most plans never see any."""
        plan = self._plan
        specs = plan.specs
        numbers: dict[ArraySpec, int] = {}
        self._numbers = [numbers.setdefault(spec, len(numbers)) for spec in specs.values()]
        # What lies in blocks at one time, one after the other.
        held = {(block, (numbers[specs[name]],)) for name, block in plan.placement.items()}
        held |= {
            (plan.placement[names[0]], tuple([numbers[specs[name]] for name in names]))
            for names in plan.joined
        }
        self._held = sorted(held)
        loops = [loop for step in plan.steps for loop in step.loops]
        kinds = {
            (specs[name], member.shape(specs), member.dtype): operand.kind
            for loop in loops
            for member in loop
            for name, operand in member.reads.items()
        }
        for step in plan.steps:
            if step.epilogue is not None:
                bound, shape = step.epilogue.bound, specs[step.epilogue.out][0]
                for name, operand in zip(bound.variables, bound.loop.operands, strict=True):
                    kinds[specs[name], shape, to_dtype(bound.loop.dtype)] = operand.kind
        self._kinds = kinds
        # Of loops with rows or columns, those operands by number, and what each meets: all of one
        # loop have one width.
        wide = [
            frozenset(
                (operand.kind, numbers[specs[name]], numbers[specs[next(iter(member.writes))]])
                for member in loop
                for name, operand in member.reads.items()
                if operand.kind in (ROW, COLUMN)
            )
            for loop in loops
        ]
        self._wide = {one for one in wide if len(one) > 1}
        self._equal = {(specs[over], specs[name]) for over, name in plan.overwrites}
        joined = plan.channels_last if plan.parts else ()
        self._images = {specs[name][0] for name in joined}
        # Last: it says that all is known, and another thread may look at the same form.
        self._specs = list(numbers)

    def resized(self, specs: dict[str, ArraySpec], offsets: Mapping[str, Levels]) -> Plan | None:
        """The plan for other shapes; None where they do not fit the form."""
        if not self._specs:
            self._look()
        found = self._fitting(specs)
        return None if found is None else self._plan_of(found, specs, offsets)

    def computed(
        self, known: Mapping[str, ArraySpec], levels: Mapping[str, Levels], infer: _Infer
    ) -> Plan | None:
        """As `resized`, of what comes from outside, by polynomials of its sizes; None where shapes
        are to be inferred.

        Args:
            infer: gives all specs, and offsets, by those of what comes from outside.
        """
        # A second shape may be the last one. Where the shape rules decide by the sizes, each new
        # shape may meet no condition of those before, so that opening again pays no more.
        varies = self._varying and self._opened < _MOST_OPENED
        tries = (*self._open, None) if varies else self._open
        for one in tries:
            opened = self._leave_open(known, levels, infer) if one is None else one
            found = None if opened is None else opened.specs(known, levels)
            if found is not None:
                break
        else:
            return None
        own, levels = found
        specs = dict(zip(self._plan.specs, [own[n] for n in self._numbers], strict=True))
        return self._plan_of(own, specs, levels)

    def note(self, known: Mapping[str, ArraySpec]) -> bool:
        """Note which sizes of inputs vary, by another shape; whether all may be left open."""
        first = self._plan.specs
        if any([len(own[0]) != len(first[name][0]) for name, own in known.items()]):
            return False
        varying = dict(self._varying)  # another thread may go through the one before
        for name, (shape, _) in known.items():
            if shape is not first[name][0]:  # that of a parameter is the one object
                pairs = enumerate(zip(shape, first[name][0], strict=True))
                if axes := {axis for axis, (size, before) in pairs if size != before}:
                    varying[name] = varying.get(name, set()) | axes
        self._varying = varying
        sizes = [known[name][0][axis] for name, axes in varying.items() for axis in axes]
        return min(sizes, default=0) > 1

    def _leave_open(
        self, known: Mapping[str, ArraySpec], levels: Mapping[str, Levels], infer: _Infer
    ) -> Any:
        """Leave the sizes that vary open: specs of later shapes are computed by polynomials of
        them, as are those of this one. None where that cannot be."""
        if not self.note(known) or any([len(own) > 1 for own in levels.values()]):
            return None
        self._opened += 1
        from .open_sizes import OpenSizes  # for nets that come with several shapes

        def fitting(
            own: Mapping[str, ArraySpec], own_levels: Mapping[str, Levels]
        ) -> tuple[Any, Mapping[str, Levels]]:
            specs, made = infer(own, own_levels)
            return self._fitting(specs), made

        try:
            opened = OpenSizes(known, levels, self._varying, fitting)
        except Exception as error:  # a rule may do anything with what stands for sizes
            _log.debug("shapes are inferred for all sizes: %r", error)
            return None
        self._open.append(opened)
        return opened

    def _fitting(self, specs: Mapping[str, ArraySpec]) -> list[ArraySpec] | None:
        """The specs in place of those of the plan; None where they do not fit the form."""
        plan = self._plan
        if specs.keys() != plan.specs.keys():
            return None
        found: list[Any] = [None] * len(self._specs)
        for name, number in zip(plan.specs, self._numbers, strict=True):
            spec = specs[name]
            if found[number] is None:
                found[number] = spec
            elif found[number] is not spec and found[number] != spec:
                return None
        shapes: dict[Shape, Shape] = {}
        for (old, old_dtype), (new, dtype) in zip(self._specs, found, strict=True):
            if dtype != old_dtype or shapes.setdefault(old, new) != new or not _alike(old, new):
                return None
        return found if self._holds(shapes, found) else None

    def _plan_of(
        self, found: Sequence[ArraySpec], specs: dict[str, ArraySpec], offsets: Mapping[str, Levels]
    ) -> Plan:
        plan = copy(self._plan)  # `replace` names and checks each of twenty fields
        blocks = [0] * len(plan.blocks)
        sizes = [nbytes_of(spec) for spec in found]
        for block, numbers in self._held:
            blocks[block] = max(blocks[block], sum([sizes[number] for number in numbers]))
        plan.specs, plan.offsets = specs, offsets
        plan.blocks, plan.temporaries = blocks, sum(blocks)
        return plan

    def _holds(self, shapes: Mapping[Shape, Shape], found: Sequence[ArraySpec]) -> bool:
        """Whether steps and memory are right for shapes in place of those of the plan."""
        for ((own, own_dtype), shape, dtype), kind in self._kinds.items():
            new_own, new = shapes[own], shapes[shape]
            if kind_of((new_own, own_dtype), new, dtype) != kind:
                return False
            if kind == COLUMN and is_of_channels(own, shape) != is_of_channels(new_own, new):
                return False
        for loop in self._wide:
            widths = [width_of(kind, found[own][0], found[of][0]) for kind, own, of in loop]
            if any([width != widths[0] for width in widths]):
                return False
        if any(old[1] != shapes[old][1] for old in self._images):
            return False
        return all(
            nbytes_of((shapes[over], dtype)) == nbytes_of((shapes[shape], other))
            for (over, dtype), (shape, other) in self._equal
        )


def _alike(old: Shape, new: Shape) -> bool:
    """Whether layouts treat two shapes in the same way."""
    return (
        len(old) == len(new)
        and (0 in old) == (0 in new)
        and is_of_channels(old) == is_of_channels(new)
    )


def analyze(
    operators: Sequence[Operator],
    rest: Sequence[Operator],
    declared: Mapping[str, VarDecl],
    wanted: frozenset[str] | None,
    before: Iterable[Operator] = (),
) -> Range:
    """The externals of a range, and the variables that outlive it.

    Args:
        operators: the range itself.
        rest: operators that may run after it.
        wanted: temporaries to be read afterwards; None means those that `rest` reads, and those
            whose last values no operator reads, a cost for instance.
        before: operators that ran before it. What they wrote is not made again where the range
            begins with writing to a view of it.
    """
    bases = {name: var.view.base for name, var in declared.items() if var.view is not None}
    touched: set[str] = set()
    for op in operators if bases else ():
        touched.update(op.input_vars(), op.output_vars())
    views = {name: bases[name] for name in bases if name in touched}
    earlier = {bases.get(name, name) for op in before for name in op.output_vars()}
    written: set[str] = set()
    externals: dict[str, None] = {}
    for op in operators:
        for root in roots_of(op.input_vars(), views):
            # Read before it is written in the range: it comes from outside.
            if root not in written:
                externals[root] = None
        for name in op.output_vars() if earlier and views else ():
            root = views.get(name, name)
            # Writing a part of what an earlier range made: the other parts of it are still wanted.
            if root is not name and root in earlier and root not in written:
                externals[root] = None
        written.update(roots_of(op.output_vars(), views))
    later = {name for op in rest for name in op.input_vars()}
    later.update(bases[name] for name in tuple(later) if name in bases)
    results = results_of(operators, bases, by_value=wanted is None) - later
    live_out = {
        name
        for name in written
        if (name in declared and declared[name].kind in _PERSISTENT)
        or (wanted is not None and name in wanted)
        or (wanted is None and name in later)
        or name in results
    }
    # Writing to an external variable means writing to the caller's own: it outlives the run.
    live_out.update(name for name in externals if name in written)
    return Range(list(operators), list(externals), live_out, views)


def plan_options(options: Options, place: Place) -> Options:
    """Options as plans on a place have them: the reference is always one of the libraries.

    Raises:
        OpscopeError: no operator has a kernel of one of the libraries.
    """
    return replace(
        options,
        # What gains by such arrays are kernels compiled for the CPU.
        channels_last=options.channels_last and place.kind == "cpu",
        libraries=_with_reference(options.libraries),
    )


@lru_cache(maxsize=64)
def _with_reference(names: tuple[str, ...]) -> tuple[str, ...]:
    known = kernel_libraries(names)
    for name in names:
        if name not in known:
            raise OpscopeError(
                f"OPSCOPE_LIBRARIES={option_text(names)}: no kernel library"
                f" {name!r}{nearest(name, known)}; there are {', '.join(sorted(known))}"
            )
    return names if REFERENCE in names else (*names, REFERENCE)


def make_plan(
    span: Range,
    known: Mapping[str, ArraySpec],
    declared: Mapping[str, VarDecl],
    options: Options,
    group: Grouping | None = None,
    offsets: Mapping[str, Levels] | None = None,
    forms: list[Form] | None = None,
    *,
    packed: bool = False,
) -> Plan:
    """Infer shapes, group operators into steps, and lay out temporaries.

    Args:
        known: shape and dtype of every external variable.
        offsets: of those that hold sequences.
        group: cuts the operators into chains to fuse.
        forms: of earlier plans of the range, with these options and this grouping: where one
            holds for the shapes, sizes alone are found again. That of a new plan is added.
        packed: lay temporaries into as little memory as is found, in one piece; no form is for such
            a plan.

    Raises:
        ShapeError: an operator refuses its inputs.
    """
    levels = dict(offsets or {})
    for form in forms or ():
        plan = form.computed(known, levels, partial(_open_specs, span, declared))
        if plan is not None:
            if options.verify:
                _check(plan, _all_specs(span, known, declared, levels), levels)
            return plan
    specs = _all_specs(span, known, declared, levels)
    for form in forms or ():
        plan = form.resized(specs, levels)
        if plan is not None:
            form.note(known)
            return plan
    groups = [Chain([op]) for op in span.operators]
    if group is not None and options.fuse:
        declarations = {name: declared[name] for name in span.views}
        rectangles = {name: var.view for name, var in declarations.items() if var.view is not None}
        groups = group(span.operators, specs, span.live_out, rectangles)
    steps = steps_of(groups, span.live_out, span.views)
    plan = Plan(
        span.operators,
        span.externals,
        span.live_out,
        specs,
        declared,
        steps,
        levels,
        options=options,
        views=span.views,
    )
    lives = _lay_out(plan, span, packed)
    plan.temporaries = sum(plan.blocks)
    if packed:
        from .packing import pack  # for who has little memory

        plan.starts, plan.temporaries = pack(plan.blocks, lives)
    elif forms is not None:
        forms.insert(0, Form(plan))
        del forms[_MOST_FORMS:]
    return plan


def _all_specs(
    span: Range,
    known: Mapping[str, ArraySpec],
    declared: Mapping[str, VarDecl],
    levels: dict[str, Levels],
    *,
    remember: bool = True,
) -> dict[str, ArraySpec]:
    """Shape and dtype of every variable of a range, by those of what comes from outside."""
    specs = infer_specs(span.operators, known, declared, levels, remember=remember)
    for base in set(span.views.values()):
        if base not in specs:
            spec = declared_spec(declared[base]) if base in declared else None
            if spec is not None:
                specs[base] = spec
    return specs


def _open_specs(
    span: Range,
    declared: Mapping[str, VarDecl],
    known: Mapping[str, ArraySpec],
    offsets: Mapping[str, Levels],
) -> tuple[dict[str, ArraySpec], dict[str, Levels]]:
    """As `_all_specs`, with offsets, of sizes that vary."""
    levels = dict(offsets)
    return _all_specs(span, known, declared, levels, remember=False), levels


def _check(plan: Plan, specs: Mapping[str, ArraySpec], levels: Mapping[str, Levels]) -> None:
    """Compare the specs and offsets of a plan with those that are inferred."""
    for name, own in levels.items():
        given = plan.offsets.get(name, ())
        if len(given) != len(own) or not all(map(np.array_equal, given, own)):
            raise RunError(f"{name!r} is computed with the offsets {given}, not {own}")
    wrong = [name for name, spec in specs.items() if plan.specs.get(name) != spec]
    if wrong:
        raise RunError(
            f"{wrong[0]!r} is computed as {plan.specs.get(wrong[0])}, not {specs[wrong[0]]}"
        )


def _lay_out(plan: Plan, span: Range, packed: bool) -> list[tuple[int, int]]:
    """Give every temporary a block of memory; blocks are reused once nothing reads their holders.

    Order of preference: the block of an input that dies here and that the slot may write over
    (`inplace`), or whose elements a reshape leaves as they are, the free block whose size is
    nearest, a new block. Blocks grow to their largest holder, as nothing is allocated before the
    whole list is laid out.

    Args:
        packed: leave the reuse of others' memory to `pack`.

    Returns:
        The first and the last step that uses each block.
    """
    views = span.views
    outside = set(plan.externals) | plan.live_out
    shared = set(views) | set(views.values())
    plan.joined = _joined(plan, span, outside | shared)
    buckets = {name: names for names in plan.joined for name in names}
    if plan.options.channels_last and plan.options.fuse:
        libraries = plan.options.libraries
        elsewhere = outside | shared | buckets.keys()
        plan.channels_last = channels_last(plan.steps, plan.specs, elsewhere, libraries)
        if plan.channels_last:
            channels = {name: plan.specs[name][0][1] for name in plan.channels_last}
            plan.parts = joined_parts(plan.steps, channels, libraries)
            views = views | {name: part.whole for name, part in plan.parts.items()}
    bases = set(views.values())
    fixed = outside | bases | buckets.keys()
    last_use: dict[str, int] = {}
    last_write: dict[str, int] = {}
    for index, step in enumerate(plan.steps):
        for names in (step.reads, step.writes):
            for root in roots_of(names, views):
                last_use[root] = index
        for op in step.operators:
            for root in roots_of(op.output_vars(), views):
                last_write[root] = index
    free = FreeBlocks()
    begins: list[int] = []  # of each block, the step
    done: dict[int, int] = {}  # block -> the step after which nothing uses it
    busy_until: dict[int, int] = {}  # block -> the last step that uses it
    ends: dict[int, set[int]] = {}  # step -> blocks that some holder leaves there
    for index, step in enumerate(plan.steps):
        for name, root in zip(step.writes, roots_of(step.writes, views), strict=True):
            # The first write places a variable; a view takes the place of its base.
            if root in outside or root in plan.placement:
                continue
            members = buckets.get(root, (root,))
            block = over = None
            # A part of a base must not write over an input: the other parts are not written yet.
            if plan.options.inplace and root not in buckets and (name == root or root not in bases):
                over = _overwritten(plan, step, root, index, busy_until, fixed)
                if over is None and last_write[root] == index:
                    over = _reshaped(plan, step, root, index, last_write, fixed)
            if over is not None:
                plan.overwrites.append((over, root))
                block = plan.placement[over]
            if block is None:
                size = sum([nbytes_of(plan.specs[one]) for one in members])
                block = _take_block(plan, free, size)
                begins += [index] * (len(plan.blocks) - len(begins))
            for name in members:
                plan.placement[name] = block
            last = max([last_use[name] for name in members])
            busy_until[block] = max(busy_until.get(block, 0), last)
            ends.setdefault(last, set()).add(block)
        # Freed after all of the step's writes are placed: a result must not get the memory of an
        # input that its kernel still reads.
        for block in sorted(ends.pop(index)) if index in ends else ():
            if busy_until.get(block) == index:
                del busy_until[block]
                done[block] = index
                if plan.options.reuse and not packed:
                    free.add(block, plan.blocks[block])
    end = len(plan.steps)
    lasting = not plan.options.reuse
    return [(0, end) if lasting else (first, done[n]) for n, first in enumerate(begins)]


def _joined(plan: Plan, span: Range, fixed: set[str]) -> list[tuple[str, ...]]:
    """The buckets that operators want, of temporaries that some operator of the range writes.

    Args:
        fixed: variables that have their places already.
    """
    joining = [op for op in span.operators if op.entry.joins]
    written = {name for step in plan.steps if joining for name in step.writes}
    taken: set[str] = set()
    joined = []
    for op in joining:
        names = op.inputs.get(op.entry.joins, ())
        # A name that comes twice, or is in another bucket already, cannot lie at two places.
        if len(set(names) - fixed - taken) == len(names) > 1 and written.issuperset(names):
            joined.append(names)
            taken.update(names)
    return joined


def _overwritten(
    plan: Plan,
    step: PlanStep,
    name: str,
    index: int,
    busy_until: Mapping[int, int],
    fixed: set[str],
) -> str | None:
    """The input that `name` may write over, if there is one.

    Args:
        busy_until: block -> the last step that uses it. fixed: what nothing may be written over.
    """
    for op in step.operators:
        for slot, sharing in op.entry.inplace.items():
            if op.outputs.get(slot) != (name,):
                continue
            for candidate in _shared_along(step, op.inputs.get(sharing, ())[:1]):
                block = plan.placement.get(candidate)
                if block is None or candidate in fixed or busy_until[block] != index:
                    continue
                # Read twice, also by another name, it may be needed at another element after the
                # first was overwritten.
                if (
                    [plan.placement.get(read) for read in step.reads].count(block) == 1
                    and plan.specs[candidate][1] == plan.specs[name][1]
                    and plan.nbytes(candidate) == plan.nbytes(name)
                    and (len(step.writes) < 2 or block not in _blocks_written(plan, step, name))
                    and not (step.has_tail and candidate in step.operators[0].value_reads())
                    and (candidate in plan.channels_last) == (name in plan.channels_last)
                ):
                    return candidate
    return None


def _reshaped(
    plan: Plan,
    step: PlanStep,
    name: str,
    index: int,
    last_write: Mapping[str, int],
    fixed: set[str],
) -> str | None:
    """The input whose elements `name` has in their order, if nothing writes to it any more."""
    op = step.operators[0]
    if not op.entry.reshapes or len(step.operators) > 1:
        return None
    source = op.input_vars()[0]
    if (
        source in plan.placement
        and source not in fixed
        and last_write[source] < index
        and plan.specs[source][1] == plan.specs[name][1]
        and plan.channels_last.isdisjoint((source, name))
    ):
        return source
    return None


def _shared_along(step: PlanStep, names: tuple[str, ...]) -> tuple[str, ...]:
    """An input that may be written over; of a value inside a fused loop, the one that its operator
    may write over, and so on to what the loop reads."""
    for op in reversed(step.operators) if len(step.operators) > 1 else ():
        for slot, own in op.outputs.items():
            if own == names and names[0] not in step.reads:
                sharing = op.entry.inplace.get(slot)
                names = op.inputs.get(sharing, ())[:1] if sharing else ()
                if not names:
                    return ()
    return names


def _blocks_written(plan: Plan, step: PlanStep, name: str) -> set[int]:
    """Blocks that the step's other outputs already occupy."""
    return {plan.placement[w] for w in step.writes if w != name and w in plan.placement}


def _take_block(plan: Plan, free: FreeBlocks, size: int) -> int:
    best = free.take(size)
    if best is not None:
        plan.blocks[best] = max(plan.blocks[best], size)
        return best
    plan.blocks.append(size)
    return len(plan.blocks) - 1
