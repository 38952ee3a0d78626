"""PlainNet: runs its operators one after the other."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from ...proto import net_pb2 as pb
from ..base.backend import Place, on_device, require_dtype
from ..base.context import OpContext, default_context
from ..base.cpu import threads
from ..base.errors import FormatError, OpscopeError, RunError, VariableError
from ..base.options.settings import CHOSEN, Options, current, read_once, read_options, using
from ..base.python.bounded_cache import BoundedCache, HashedOnce
from ..base.python.cached import new_lock
from ..base.python.gc_disabled import gc_disabled
from ..base.scope import Scope, default_scope
from ..base.sizes.shape import ArraySpec
from ..ir.desc import FORWARD, INPUT, PLAIN, STATE, TYPE_NAMES, enum_name, make_var
from ..ir.infer import declared_spec, infer_one
from ..ir.messages import from_message, to_message, var_from_message
from ..ir.names import LOSS_SCALE
from ..ir.op_list import OpList, OpNode, SourceLocation, StepDecl, VarDecl
from ..ir.operation import Operator, SlotsGiven, expand_op, node_of
from ..ir.registry import REGISTERED
from ..passes.backward import build_backward
from ..passes.lowering import lower
from ..passes.optimizer import OptimizerAttrs, build_optimizer
from ..passes.precision.loss_scaling import LossScale, scale_ops, scale_vars
from .binding import BoundSteps, CannotFuseError
from .executor import Frame, drop_all, drop_outgrown
from .externals import externals_of
from .net import Net, check_live_out, check_places, register_net
from .plans.memory import workspace_of
from .plans.plan import Grouping, Plan, PlanStep, Range, analyze, make_plan, plan_options
from .plans.steps import Units

_tokens = itertools.count()
_NO_TAILS = Options(tails=False)
_SIZES_BYTES = 256
"""What a plan takes for each operator beside its form, which plans of other shapes share."""


@register_net(PLAIN)
class PlainNet(Net):
    """A list of operators, run in order.

    Args:
        desc: the network; later changes to it do not reach the net.
        check: whether it is verified; not needed where a pass or a compiler made it of a net.
        most_shapes: of its inputs that it is planned, and bound in a scope, for; None: as many as
            the limit `cache` lets be.
        packed: whether its plans lay temporaries into as little memory as is found.

    Attributes:
        name: the network's name.
        operators: in the order in which they run.
        vars: declared variables by name, in the order of their declaration.
        units: which operators may become one step; None: all. Set before the first run.

    Raises:
        OpscopeError: an operator is unknown or wrongly used.
    """

    def __init__(
        self,
        desc: OpList | pb.NetDesc | None = None,
        *,
        check: bool = True,
        most_shapes: int | None = None,
        packed: bool = False,
    ) -> None:
        self.name = ""
        self._metadata: dict[str, str] = {}
        self._desc: pb.NetDesc | None = None
        self._steps: list[StepDecl] = []
        self._format_version = 0
        self.operators: list[Operator] = []
        self._composites: dict[int, tuple[OpNode, int]] = {}  # by number: it, and where it ends
        self._whole: dict[int, OpNode] = {}  # by number: what is kept whole of an operator
        self.vars: dict[str, VarDecl] = {}
        self._most_shapes = most_shapes
        self._packed = packed
        self.units: Units | None = None
        self._token = next(_tokens)
        self._lock = new_lock()
        self._ranges: BoundedCache[Any, Range] = BoundedCache()
        self._plans: BoundedCache[Any, Plan] = BoundedCache(most_shapes, _plan_bytes)
        self._forget()
        if desc is not None:
            net = desc if isinstance(desc, OpList) else from_message(desc)
            if check:
                from ..passes.verify.verifier import verify  # what a compiler made needs none

                _refuse_steps(net)
                verify(net, undeclared=True)  # it finds its inputs in the scope
            self._build(net)

    @gc_disabled()
    def _build(self, net: OpList) -> None:
        # Nets that a compiler made have no composites, and lowering would walk over thousands of
        # operators for nothing.
        entries = [REGISTERED.get(op.type) for op in net.ops]
        plain = all([entry is not None and entry.expand is None for entry in entries])
        lowered = net if plain and not read_options().verify else lower(net, keep_whole=True)
        self.name = lowered.name
        self._metadata = dict(lowered.metadata)
        self._steps = lowered.steps
        self._format_version = lowered.format_version
        for var in lowered.vars:
            if self.vars.setdefault(var.name, var) is not var:
                raise VariableError(f"{self._title()}: variable {var.name!r} is defined twice")
        self.operators = [self._operator(op, index) for index, op in enumerate(lowered.ops)]
        for op in self.operators:
            self._declare(op, {})

    def copy(self) -> PlainNet:
        """Another net of the same operators, which both share: what either gets later reaches no
        other."""
        if read_options().verify:
            lower(self.op_list, keep_whole=True)  # which verifies it
        net = PlainNet()
        net.name = self.name
        net._metadata = dict(self.metadata)
        net._steps = self._steps
        net._format_version = self._format_version
        net.operators = list(self.operators)
        net._whole = dict(self._whole)
        net.vars = dict(self.vars)
        return net

    def _forget(self) -> None:
        """The list has changed: what was derived from it is void."""
        self.version = next(_tokens)
        self._live_out = None
        self._last_forward: int | None = None
        if self._ranges:
            self._ranges = BoundedCache()
        if self._plans:
            self._plans = BoundedCache(self._most_shapes, _plan_bytes)
        if self._desc is not None:
            self._metadata = dict(self._desc.metadata)
            self._desc = None

    @property
    def metadata(self) -> MutableMapping[str, str]:
        """Free text by key, saved with the net: who wrote it, label names, units."""
        return self._metadata if self._desc is None else self._desc.metadata

    @property
    def op_list(self) -> OpList:
        """The net as passes take it: a new list over the operators and variables of this one."""
        return OpList(
            self.name,
            PLAIN,
            list(self.vars.values()),
            [self._whole.get(op.index, op.node) for op in self.operators],
            self._steps,
            dict(self.metadata),
            self._format_version,
        )

    @property
    def written(self) -> list[OpNode]:
        """The operators that were added, composite ones whole."""
        ops: list[OpNode] = []
        index = 0
        while index < len(self.operators):
            one = self._whole.get(index, self.operators[index].node), index + 1
            node, index = self._composites.get(index, one)
            ops.append(node)
        return ops

    @property
    def desc(self) -> pb.NetDesc:
        """The net as a message; see `Net.desc`."""
        if self._desc is None:
            self._desc = to_message(self.op_list)
        return self._desc

    # -- building ------------------------------------------------------------------------------

    def add_var(self, var: VarDecl | pb.VarDesc) -> VarDecl:
        """Declare a variable.

        Raises:
            VariableError: the name is declared already.
        """
        if isinstance(var, pb.VarDesc):
            var = var_from_message(var)
        if var.name in self.vars:
            raise VariableError(f"variable {var.name!r} is defined twice")
        self.vars[var.name] = var
        self._forget()
        return var

    def remove_vars(self, names: Iterable[str]) -> None:
        """Take declarations back, of variables that no operator uses."""
        for name in names:
            del self.vars[name]
        self._forget()

    def add_op(
        self,
        op: OpNode | pb.OpDesc | str,
        inputs: SlotsGiven = None,
        outputs: SlotsGiven = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> int:
        """Append an operator: a made one, or type, inputs, outputs and attributes.

            net.add_op("matmul", ["x", "w"], ["y"], {"transpose_y": True})

        Inputs and outputs are lists in the order of the slots, a list for a slot that takes several
        (`net.add_op("concat", [["a", "b"]], ["c"])`), or mappings from slots to variables.
        Undeclared outputs become temporaries with inferred shapes, undeclared inputs variables to
        be found in the scope.

        Returns:
            The operator's index, which `run` takes as `begin` and `end`.

        Raises:
            OpscopeError: the net is left as it was.
        """
        node = node_of(op, inputs, outputs, attrs)
        first = len(self.operators)
        self._extend([node], ())
        return first

    def _extend(self, ops: Sequence[OpNode], variables: Sequence[VarDecl]) -> None:
        """Append operators and variables: all of them or, where an operator is wrong, nothing."""
        with self.all_or_nothing():
            for var in variables:
                self.vars.setdefault(var.name, var)
            for op in ops:
                first = len(self.operators)
                expanded = expand_op(op, keep_whole=True)
                for one in expanded:
                    self._append(one)
                # Composites are kept whole beside their parts, for exporters and people (see
                # `written`).
                if expanded != [op]:
                    self._composites[first] = op, len(self.operators)
            self._forget()

    @contextlib.contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Where the block fails, the operators and variables that it appended are gone again."""
        first, declared = len(self.operators), len(self.vars)
        try:
            yield
        except BaseException:
            # Only where something was appended: a new version would make all frames be bound again.
            if len(self.operators) > first or len(self.vars) > declared:
                del self.operators[first:]
                self._composites = {n: one for n, one in self._composites.items() if n < first}
                self._whole = {n: one for n, one in self._whole.items() if n < first}
                for name in list(itertools.islice(self.vars, declared, None)):
                    del self.vars[name]
                self._forget()
            raise

    def _operator(self, node: OpNode, index: int) -> Operator:
        """What runs for a node; a composite that is kept whole stands for one operator."""
        entry = REGISTERED.get(node.type)
        plain = node
        if entry is None or entry.expand is not None:
            (plain,) = expand_op(node)
        if plain is not node:
            self._whole[index] = node
        return Operator(plain, index)

    def _append(self, node: OpNode) -> None:
        op = self._operator(node, len(self.operators))
        self._declare(op, self._shapes_while_building(op))
        self.operators.append(op)

    def _declare(self, op: Operator, shapes: Mapping[str, ArraySpec]) -> None:
        """Declare the rest: inputs are to be found in the scope, outputs are temporaries."""
        known = self.vars
        for name in op.input_vars():
            if name not in known:
                known[name] = VarDecl(name, kind=INPUT)
        for name in op.output_vars():
            if name not in known:
                source = op.node.source or SourceLocation()
                if name in shapes:
                    known[name] = make_var(name, *shapes[name], source=source)
                else:
                    known[name] = VarDecl(name, source=source)

    def _shapes_while_building(self, op: Operator) -> dict[str, ArraySpec]:
        specs = {}
        for name in op.input_vars():
            spec = declared_spec(self.vars[name]) if name in self.vars else None
            if spec is None:
                return {}
            specs[name] = spec
        return infer_one(op, specs, self.vars)

    def add_backward_ops(
        self,
        targets: str | Sequence[str] | Mapping[str, str] | None = None,
        wrt: Sequence[str] | None = None,
        stop: Sequence[str] = (),
        *,
        loss_scale: LossScale | None = None,
    ) -> dict[str, str]:
        """Append gradient operators.

        Args:
            targets: variables to differentiate (their sum, where several), or variable -> the name
                of a variable that holds its gradient. None: the last forward operator's output.
            wrt: variables whose gradients are wanted; None: every parameter that is not stopped.
            stop: variables that no gradient flows through, besides those declared so.
            loss_scale: factor of the targets, so of all gradients; optimizers undo it.

        Returns:
            Variable -> name of its gradient, for each of `wrt` that `targets` depend on.

        Raises:
            GradientError: an operator has no gradient, or it would read an overwritten value.
        """
        if self.predicts:
            self._refuse_training("gradients are asked for")
        scale = LOSS_SCALE if loss_scale is not None else ""
        result = build_backward(self.op_list, targets=targets, wrt=wrt, stop=stop, scale=scale)
        ops, variables = result.ops, result.vars
        if loss_scale is not None:
            ops = [*ops, *scale_ops(loss_scale, result.gradients.values())]
            variables = [*scale_vars(loss_scale), *variables]
        self._extend(ops, variables)
        return result.gradients

    def add_optimizer_ops(self, attrs: OptimizerAttrs) -> list[str]:
        """Append update operators for every parameter that has a gradient; see `OptimizerAttrs`.

        Returns:
            Names of the optimizer's state variables.
        """
        if self.predicts:
            self._refuse_training("updates are asked for")
        result = build_optimizer(self.op_list, attrs)
        self._extend(result.ops, result.vars)
        return [var.name for var in result.vars if var.kind == STATE]

    @property
    def last_forward_op(self) -> int:
        """Index of the last FORWARD operator before the first other one; -1 where there is none."""
        if self._last_forward is None:
            roles = (index for index, op in enumerate(self.operators) if op.role != FORWARD)
            self._last_forward = next(roles, len(self.operators)) - 1
        return self._last_forward

    # -- running -------------------------------------------------------------------------------

    def run(
        self,
        scope: Scope | None = None,
        context: OpContext | None = None,
        begin: int = -1,
        end: int = -1,
    ) -> None:
        """See `Net.run`.

        Raises:
            VariableError: an input is missing in the scope; `live_out` names what there is not.
            ShapeError: wrong shapes or dtypes. RunError: an operator, or another rank, failed.
        """
        threads.look()
        scope = default_scope() if scope is None else scope
        context = default_context() if context is None else context
        try:
            if context.communicator is not None:
                from ..parallel.handshake import agree

                agree(context, self.version, self.operators, lambda: self.op_list)
            if context.live_out != self._live_out:
                self._live_out = check_live_out(context.live_out, self.op_list, scope)
            frame = self.frame(scope, context, begin, end)
        except AttributeError:
            check_places(scope, context)
            raise
        frame.run(context)

    def frame(self, scope: Scope, context: OpContext, begin: int = -1, end: int = -1) -> Frame:
        """The bound plan that `run` runs: made, or taken from the scope where it still fits."""
        if self.predicts:
            context, end = self._to_predict(context, begin, end)
        key = self._key(context, begin, end)
        frame = scope.bound.get(key)
        if (
            frame is not None
            and frame.scope_version == scope.root.version
            and frame.net_version == self.version
            and frame.chosen is CHOSEN.get()
        ):
            return frame
        return self._prepare(scope, context, begin, end, key)

    def _key(self, context: OpContext, begin: int, end: int) -> tuple:
        train = context.phase is not False
        # A token and not `id(self)`: a net that is gone may leave its id to another one.
        return self._token, begin, end, train, context.live_out, context.device

    def plan(self, scope: Scope, context: OpContext, begin: int = -1, end: int = -1) -> Plan:
        """The plan of a run, which takes no memory for it."""
        if self.predicts:
            context, end = self._to_predict(context, begin, end)
        key = self._key(context, begin, end)
        first, last = self._check_range(begin, end)
        span = self._range(first, last, context.live_out)
        place = context.device or scope.place
        outside = externals_of(span.externals, scope)
        known, offsets, signature = outside.specs(self.vars, self._title())
        given = read_options()
        plan_key = (key, HashedOnce((self.version, signature, given)), place)
        with read_once(), using(given), gc_disabled():
            options = plan_options(given, place)
            return self._plan((span, known, offsets), plan_key, options, place, context.train)

    def _to_predict(self, context: OpContext, begin: int, end: int) -> tuple[OpContext, int]:
        """The context and the end of a run of a net that only predicts.

        Raises:
            OpscopeError: the run would train.
        """
        last = self.last_forward_op + 1
        why = ""
        if context.phase:
            why = "the context says train=True"
        elif max(begin, end) > last:
            why = f"operators {begin}:{end} reach into its gradients and updates, {last} and up"
        if why:
            self._refuse_training(why)
        if context.phase is None:
            context = context.derive(train=False, live_out=context.live_out)
        return context, last if end < 0 else end

    def _refuse_training(self, why: str) -> None:
        raise OpscopeError(
            f"{self._title()} was loaded to predict, but {why}; load(path, train=True) gives a net"
            " to train"
        )

    def bound_frame(self, scope: Scope, context: OpContext) -> Frame | None:
        """The frame of a run of all operators where it still fits: preparing it cannot fail."""
        frame = scope.bound.get(self._key(context, -1, -1))
        if (
            frame is not None
            and frame.scope_version == scope.root.version
            and frame.net_version == self.version
            and frame.chosen is CHOSEN.get()
        ):
            return frame
        return None

    def externals(
        self, live_out: frozenset[str] | None = None, begin: int = -1, end: int = -1
    ) -> list[str]:
        """The variables that a run of operators, by default of all, reads, or updates, from the
        scope."""
        return list(self._range(*self._check_range(begin, end), live_out).externals)

    def _prepare(self, scope: Scope, context: OpContext, begin: int, end: int, key: tuple) -> Frame:
        first, last = self._check_range(begin, end)
        span = self._range(first, last, context.live_out)
        place = context.device or scope.place
        outside = externals_of(span.externals, scope)
        known, offsets, signature = outside.specs(self.vars, self._title())
        frames = scope.bound.setdefault("frames", {})
        if key not in frames:
            frames[key] = BoundedCache(self._most_shapes, attrgetter("nbytes"), Frame.release)
        frame_key = HashedOnce((self.version, signature, current()))
        frame = frames[key].get(frame_key)
        if frame is None:  # something is planned: the environment may have changed
            frame_key = HashedOnce((self.version, signature, read_options()))
            frame = frames[key].get(frame_key)
        options = frame_key[-1]
        try:
            with read_once(), on_device(place, context.stream):
                if frame is None or not frame.accept_inputs():
                    frames[key].drop(frame_key)
                    sources = (span, known, offsets)
                    phase = context.train
                    plan_key = (key, frame_key, place)
                    with using(options), gc_disabled():
                        frame = self._make_frame(sources, plan_key, scope, place, options, phase)
                    frame.net_version = self.version
                    frames[key].add(frame_key, frame)
                    drop_outgrown(workspace_of(scope, place), scope)
        except OpscopeError:
            raise
        except Exception as error:  # no operator's own: those are named where they are bound
            why = f"{type(error).__name__}: {error}"
            raise RunError(f"{self._title()}: the run cannot be prepared: {why}") from error
        before = scope.bound.get(key)
        if before is not None and before is not frame:
            before.rest()
        frame.publish()
        frame.chosen = CHOSEN.get()
        scope.bound[key] = frame
        return frame

    def _make_frame(
        self,
        sources: tuple,
        key: tuple,
        scope: Scope,
        place: Place,
        options: Options,
        train: bool,
    ) -> Frame:
        options = plan_options(options, place)
        plan = self._plan(sources, key, options, place, train)
        for dtype in {dtype for _, dtype in plan.specs.values()}:
            require_dtype(place, dtype)
        if plan.starts is not None:
            workspace = workspace_of(scope, place)
            # The smaller memory goes before the larger is taken.
            if workspace.is_short_of(plan.temporaries):
                drop_all(workspace)
        try:
            return Frame(plan, scope, place, train, bind_chain)
        # Whether arrays overlap shows only when they are bound; the plan knows shapes alone.
        except CannotFuseError:
            options = replace(options, fuse=False)
            plan = self._plan(sources, (key, "unfused"), options, place, train)
            return Frame(plan, scope, place, train)

    def _check_range(self, begin: int, end: int) -> tuple[int, int]:
        count = len(self.operators)
        first = 0 if begin < 0 else begin
        last = count if end < 0 else end
        if not first <= last <= count:
            raise OpscopeError(
                f"{self._title()}: operators {begin}:{end} do not lie within 0:{count}"
            )
        return first, last

    def _range(self, first: int, last: int, live_out: frozenset[str] | None) -> Range:
        key = (first, last, live_out)
        span = self._ranges.get(key)
        if span is None:
            ops = self.operators
            span = analyze(ops[first:last], ops[last:], self.vars, live_out, before=ops[:first])
            self._ranges.add(key, span)
        return span

    def _plan(self, sources: tuple, key: Any, options: Options, place: Place, train: bool) -> Plan:
        span, known, offsets = sources
        # Two threads that come with the same new shape make one plan.
        with self._lock:
            plan = self._plans.get(key)
            if plan is None:
                group = grouping(place, options, train, self.units)
                kept = span.forms.setdefault((options, place.kind, train), [])
                forms = None if self._packed else kept
                plan = make_plan(
                    span, known, self.vars, options, group, offsets, forms, packed=self._packed
                )
                self._plans.add(key, plan)
            return plan

    def infer_shape(self, scope: Scope) -> None:
        """Infer all shapes from the inputs in `scope`; its variables get tensors of those shapes.

        Raises:
            VariableError, ShapeError: as `run`; nothing in the scope has changed then.
        """
        span = self._range(0, len(self.operators), None)
        known, offsets, _ = externals_of(span.externals, scope).specs(self.vars, self._title())
        plan = make_plan(span, known, self.vars, Options(fuse=False), offsets=offsets)
        for op in self.operators:
            for name in op.output_vars():
                shape, dtype = plan.specs[name]
                variable = scope.find(name) or scope.var(name)
                array = variable.inner
                if array is None or array.shape != shape or array.dtype != dtype:
                    with on_device(scope.place):
                        variable.bind(scope.place.xp.empty(shape, dtype))

    def _title(self) -> str:
        return f"net {self.name!r}" if self.name else "net"

    def __repr__(self) -> str:
        return f"<PlainNet {self.name or '?'}: {len(self.operators)} operators>"


def _plan_bytes(plan: Plan) -> int:
    return _SIZES_BYTES * len(plan.operators)


def _refuse_steps(net: OpList) -> None:
    if net.type != PLAIN:
        kind = enum_name(TYPE_NAMES, net.type)
        raise FormatError(f"net {net.name!r} is {kind}, not PLAIN: Net.create makes what runs it")


def grouping(
    place: Place, options: Options = _NO_TAILS, train: bool = True, units: Units | None = None
) -> Grouping:
    """`make_plan`'s function that groups operators into chains, with tails where options say so."""
    # On use: a net of kernels never needs it.
    from .fused.fuse import group_chains

    libraries = options.libraries if options.tails else ()
    return partial(group_chains, device=place.kind, libraries=libraries, train=train, units=units)


def bind_chain(frame: BoundSteps, step: PlanStep) -> Callable[[], Any] | None:
    """See `fuse.bind_chain`; without loops, fusion is not loaded."""
    if not step.loops:
        return None
    from .fused import fuse

    return fuse.bind_chain(frame, step)
