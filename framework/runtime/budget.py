"""Nets that run within a budget of memory: what a plan would take decides what is recomputed.

What counts is what a run needs on its place: parameters, states, inputs, results, and the memory
that temporaries share, as plans lay them out; besides, scratch memory of kernels, once it is known.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ..base.backend import Place, on_device
from ..base.context import OpContext
from ..base.dtypes import HALVES
from ..base.errors import RunError, format_shape
from ..base.options.settings import read_options
from ..base.scope import Scope
from ..base.sizes.byte_sizes import byte_size, size_text
from ..base.untrusted.limits import known_memory
from ..fusion.cuda.cublas import WORKSPACE
from ..ir.desc import INPUT, PARAMETER, STATE
from ..ir.infer import declared_spec
from ..ir.names import FROM_HOST_WAIT_OP, kept_name
from ..ir.op_list import OpList
from ..ir.operation import Operator
from ..passes.memory.less_memory import Chooser, LessMemory
from .executor import drop_all
from .externals import externals_of
from .plain_net import PlainNet, grouping
from .plans.memory import NoMemoryError, workspace_of
from .plans.plan import Plan, analyze, make_plan, plan_options
from .plans.steps import Units

_MOST_SHOWN = 2
_SURELY = 0.95
"""Share of the budget below which an estimate is looked at more closely."""
MOST_ROUNDS = 4
"""Choices for the same inputs, where kernels want other memory after each."""
_TABLES = 1 << 16


def memory_budget(given: Any, place: Place, what: str = "memory") -> int:
    """The bytes that an option wants, of a place's memory where it is a share.

    Raises:
        OpscopeError: see `byte_size`.
    """
    whole = known_memory()
    if place.kind != "cpu":
        with on_device(place):
            whole = place.xp.cuda.runtime.memGetInfo()[1]
    return byte_size(given, what, whole)


def peak_bytes(plan: Plan) -> int:
    """What a run takes at most, with parameters, states and inputs."""
    around = {*plan.externals, *plan.live_out}
    return plan.temporaries + sum(plan.nbytes(name) for name in around if name in plan.specs)


def held_apart(net: PlainNet, plan: Plan, scope: Scope) -> dict[int, int]:
    """The bytes of parameters and of states, by kind, that the scope holds for other runs of the
    net: an update after several minibatches has the states of optimizers for itself."""
    held = {PARAMETER: 0, STATE: 0}
    used = {*plan.externals, *plan.live_out}
    for name, var in net.vars.items():
        if var.kind in held and var.view is None and name not in used:
            variable = scope.find(name)
            if variable is not None and variable.inner is not None:
                held[var.kind] += variable.inner.nbytes
    return held


def _always_beside(place: Place) -> int:
    """What products work in on a GPU, and the tables of kernels."""
    return 0 if place.kind == "cpu" else WORKSPACE + _TABLES


class _Units:
    """Which operators are one step in a plan, and stay so when others are put between.

    Args:
        net: that has the plan.
    """

    def __init__(self, net: PlainNet, plan: Plan) -> None:
        first: dict[int, int] = {}  # operator -> the first step that it is in
        joined = list(range(len(plan.steps)))  # step -> an earlier one with a part of an operator
        tails = set()
        for number, step in enumerate(plan.steps):
            for op in step.operators:
                joined[number] = min(joined[number], joined[first.setdefault(op.index, number)])
            if step.has_tail:
                tails.add(number)
        units = {index: joined[step] for index, step in first.items()}
        self._with_tails = {joined[number] for number in tails}
        self._count = len(plan.steps)
        self._by_result: dict[tuple[str, int], int] = {}
        for key, op in _by_result(net):
            self._by_result[key] = units.get(op.index, -1 - op.index)

    def numbers(self, net: PlainNet) -> list[int]:
        """The units of the operators of a net; one that the plan lacks is a unit of its own."""
        found = []
        for number, ((name, count), op) in enumerate(_by_result(net)):
            kept = kept_name(name)
            unit = self._by_result.get((kept, count))
            if unit is None or op.type == FROM_HOST_WAIT_OP:
                unit = -1 - self._count - len(self._by_result) - number
            elif kept != name:
                unit += self._count  # what is repeated is apart from what it repeats
            found.append(unit)
        return found

    def of(self, net: PlainNet) -> Units:
        """As `numbers`, for plans."""
        again = {unit + self._count for unit in self._with_tails}
        return Units(self.numbers(net), self._with_tails | again)


def _by_result(net: PlainNet) -> Iterator[tuple[tuple[str, int], Operator]]:
    """Operators by their first result, and how often it was written before."""
    written: Counter[str] = Counter()
    for op in net.operators:
        name = next(iter(op.output_vars()), "")
        yield (name, written[name]), op
        written[name] += 1


class _Tried(NamedTuple):
    """A choice, the net with it, and the bytes of its run."""

    done: LessMemory
    net: PlainNet
    peak: int


class WithinMemory:
    """A net that is rewritten, by what it is fed, so that its runs stay within a budget.

    Args:
        net: with gradients and updates.
        finish: makes of it what runs: adds sums over ranks, for example.
        budget: in bytes.
        span: the operators of a run, of what `finish` has made; None: all.
        smaller: what a user may do beside, for messages.

    Attributes:
        net: what runs now. plain: what would run without a budget. done: what makes one the other.
    """

    def __init__(
        self,
        net: OpList,
        finish: Callable[[OpList], PlainNet],
        budget: int,
        *,
        span: Callable[[PlainNet], tuple[int, int]] | None = None,
        smaller: str,
    ) -> None:
        # Composites are opened first, so that numbers of operators hold.
        self._base = PlainNet(net, check=False)
        self._finish = finish
        self._span = span or (lambda net: (-1, -1))
        self._smaller = smaller
        self.budget = budget
        self.done = LessMemory()
        self._units: _Units | None = None
        self.plain = self.net = finish(self._base.op_list)

    def peak(self, scope: Scope, context: OpContext) -> int:
        """The bytes of a run of the net as it is now."""
        return self._peak(self.net, scope, context) + self._beside_of(scope, context)

    def plain_peak(self, scope: Scope, context: OpContext) -> int:
        """The bytes of a run of the net as it would be without a budget."""
        return self._peak(self.plain, scope, context)

    def fits(self, scope: Scope, context: OpContext) -> bool:
        """Whether a run stays within the budget, with the inputs that are in the scope; if so, it
        is prepared."""
        if self.peak(scope, context) > self.budget:
            return False
        self.net.frame(scope, context, *self._span(self.net))
        return self.peak(scope, context) <= self.budget  # kernels have taken what they want beside

    def net_for(self, scope: Scope, context: OpContext) -> PlainNet:
        """The net for the inputs in the scope.

        Raises:
            RunError: see `choose`.
        """
        for _ in range(MOST_ROUNDS):
            if self.fits(scope, context):
                return self.net
            # Again where kernels take more beside than they did for the choice before.
            self.use(self.choose(scope, context))
        raise RunError(self.beyond(self.peak(scope, context)))

    def beyond(self, peak: int) -> str:
        """Why a run of so many bytes is refused."""
        return f"memory={self.budget}: the run takes {peak} bytes; {self._smaller}"

    def choose(self, scope: Scope, context: OpContext) -> LessMemory:
        """What to do so that a run stays within the budget, with the inputs that are in the scope.

        Raises:
            RunError: nothing does; the message says how much does, what it holds, and what helps.
        """
        place = context.device or scope.place
        workspace = workspace_of(scope, place)
        # What kernels take beside shows when they are bound.
        beside = workspace.beside + _always_beside(place)
        drop_all(workspace)
        tries: dict[int, _Tried] = {}
        choices: list[tuple[int, LessMemory]] = []

        def tried(number: int) -> _Tried:
            if number not in tries:
                done = choices[number][1]
                net = self._made(done)
                tries[number] = _Tried(done, net, self._peak(net, scope, context))
            return tries[number]

        for estimate, done in self._chooser(scope, context).choices():
            choices.append((estimate, done))
            around = tried(0).peak - choices[0][0] + beside  # parameters and their like
            # Few choices suffice mostly, and to find all of them takes long.
            if estimate + around <= _SURELY * self.budget:
                if tried(len(choices) - 1).peak + beside <= self.budget:
                    break
        last = tried(len(choices) - 1)
        if last.peak + beside > self.budget:
            with contextlib.suppress(NoMemoryError):
                last.net.frame(scope, context, *self._span(last.net))
            own = workspace.beside + _always_beside(place)
            drop_all(workspace)
            if last.peak + own > self.budget:
                raise RunError(self._too_little(last.net, own, scope, context))
            return last.done
        # The fewest choices that suffice; more of them take less memory, nearly always.
        low = 0
        high = len(choices) - 1
        while low < high:
            middle = (low + high) // 2
            if tried(middle).peak + beside <= self.budget:
                high = middle
            else:
                low = middle + 1
        return tried(high).done

    def use(self, done: LessMemory) -> None:
        """Run the net with this choice from now on."""
        self.done = done
        self.net = self._made(done)

    def _made(self, done: LessMemory) -> PlainNet:
        net = self._finish(done.apply(self._base.op_list))
        if self._units is not None:
            net.units = self._units.of(net)
        return net

    def _peak(self, net: PlainNet, scope: Scope, context: OpContext) -> int:
        plan = net.plan(scope, context, *self._span(net))
        return peak_bytes(plan) + sum(held_apart(net, plan, scope).values())

    def _beside_of(self, scope: Scope, context: OpContext) -> int:
        place = context.device or scope.place
        return workspace_of(scope, place).beside + _always_beside(place)

    def _chooser(self, scope: Scope, context: OpContext) -> Chooser:
        net = self._base
        place = context.device or scope.place
        fed = [name for name in net.externals() if net.vars[name].kind == INPUT]
        known, offsets, _ = externals_of(fed, scope).specs(net.vars, "memory")
        for name in net.externals():
            if name not in known and (spec := declared_spec(net.vars[name])) is not None:
                known[name] = spec
        options = plan_options(read_options(), place)
        span = analyze(net.operators, (), net.vars, context.live_out)
        group = grouping(place, options, context.train)
        plan = make_plan(span, known, net.vars, options, group, offsets, packed=True)
        live_out = context.live_out or frozenset()
        placed = plan.placement.keys()
        units: list[int] = []
        self._units = None
        if any(dtype in HALVES for _, dtype in plan.specs.values()):
            # Inside of a loop halves have the digits of float32, so that the loops must stay.
            self._units = _Units(
                self.plain, self.plain.plan(scope, context, *self._span(self.plain))
            )
            units = self._units.numbers(net)
        to_host = place.kind != "cpu"
        return Chooser(net.op_list, plan.specs, placed, live_out, to_host=to_host, units=units)

    def _too_little(self, net: PlainNet, beside: int, scope: Scope, context: OpContext) -> str:
        plan = net.plan(scope, context, *self._span(net))
        kinds = {INPUT: 0, **held_apart(net, plan, scope)}
        wanted = peak_bytes(plan) + sum(kinds.values()) + beside
        names = {*plan.externals, *plan.live_out} & plan.specs.keys()
        rest = 0
        for name in names:
            var = plan.declared.get(name)
            if var is not None and var.kind in kinds:
                kinds[var.kind] += plan.nbytes(name)
            else:
                rest += plan.nbytes(name)
        parts: Mapping[str, int] = {
            "parameters": kinds[PARAMETER],
            "states": kinds[STATE],
            "inputs": kinds[INPUT],
            "results": rest,
            "temporaries": plan.temporaries,
            "what kernels work in": beside,
        }
        shown = ", ".join(f"{what} {size_text(size)}" for what, size in parts.items() if size)
        sizes = {name: plan.nbytes(name) for name in (*plan.placement, *names)}
        largest = heapq.nlargest(_MOST_SHOWN, sizes, key=lambda name: (sizes[name], name))
        held = "; ".join(
            f"{n!r} {plan.specs[n][1]}{format_shape(plan.specs[n][0])} {size_text(sizes[n])}"
            for n in largest
        )
        return (
            f"memory={self.budget}: the smallest that suffices is {wanted} bytes"
            f" ({size_text(wanted)}): {shown}; the largest variables are {held};"
            f" {self._smaller}"
        )
