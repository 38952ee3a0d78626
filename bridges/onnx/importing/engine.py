"""Runs graphs: nets for what shapes decide, NumPy between them for what data decide."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ....framework.base.context import OpContext
from ....framework.base.dtypes import DTYPES
from ....framework.base.errors import FormatError, OpscopeError, RunError
from ....framework.base.python.bounded_cache import BoundedCache
from ....framework.base.scope import Scope, Variable
from ....framework.base.sizes.dims import Dims
from ....framework.runtime.executor import bound_bytes
from ....framework.runtime.plain_net import PlainNet
from ....framework.runtime.plans.memory import WorkspaceOwner
from .at_once import AtOnce, HostFrame, known
from .calls import CONTROL, Attributes, Call, NotHere, failed, kind_of
from .control import run_control
from .foreign import as_held
from .graph import Graph, Node
from .loop_budget import LoopBudget
from .stage import Lowering, Promote, Stage, Store
from .types import mixed_types

_MOST_STAGES = 32
"""Stages that a part of a graph keeps, while their bytes are within the limit of all caches."""
_MOST_SHAPES = 8
"""Shapes of its inputs that a stage is bound for at once: each keeps some 1 MB, results among it,
and a new one is bound in the time of a short run. So few that a served model takes after hundreds
of shapes what it took after ten: 148 MB and 129 of an OCR recognizer, of the whole process."""
_MOST_KINDS = 256
"""Kinds of inputs of which a part remembers what sizes varied."""
_MOST_VALUES = 4096
"""Elements of an input whose value may be part of a signature."""


class Engine(Store):
    """Runs the graphs of one model; arguments as of `Store`.

    Attributes:
        scope: holds the parameters.
        seed: of random operators.
        loops: what the loops of the present run may still take.
        frame: of the kernels on the host.
    """

    def __init__(
        self,
        where: str,
        arrays: Mapping[str, np.ndarray],
        trained: Collection[str] | None = None,
        states: Collection[str] = (),
    ) -> None:
        super().__init__(where, arrays, trained, states)
        self.scope = Scope()
        self.workspaces = WorkspaceOwner()  # of the stages: one of them runs at a time
        for name, array in self.parameters.items():
            self.scope.var(name).bind(array, own=array.flags.owndata)
        self.generator = np.random.default_rng()
        self.loops = LoopBudget()
        self._bodies: dict[int, tuple[Graph, Body]] = {}
        self.frame = HostFrame()

    def current(self, name: str) -> np.ndarray:
        """The value that a parameter has now, to be read only."""
        return self.scope.get(name).inner

    def value(self, name: str, env: Mapping[str, Any]) -> Any:
        """A value on the host."""
        if name in env:
            return env[name]
        if name in self.constants:
            return self.constants[name]
        return self.scope.get(name).array

    def body(self, graph: Graph) -> Body:
        """What runs a graph inside a node."""
        body = self._bodies.get(id(graph))
        if body is None:
            body = graph, Body(self, graph.nodes, graph.outputs, may_promote=False)
            self._bodies[id(graph)] = body
        return body[1]

    def run_graph(self, graph: Graph, inputs: Sequence[Any], env: Mapping[str, Any]) -> list[Any]:
        """The outputs of a graph inside a node, for its inputs and the values around it."""
        values = {name: env[name] for name in graph.captures if name in env}
        values |= zip(graph.inputs, inputs, strict=False)
        return self.body(graph).run(values)

    def evaluate(self, node: Node, env: Mapping[str, Any]) -> Sequence[Any]:
        """The outputs of a node on the host.

        Raises:
            RunError: it cannot be computed.
        """
        attributes = Attributes(node, self.where)
        kind = kind_of(node)
        rule: Callable[..., Any] = run_control
        outputs: Any = None
        args = [self.value(name, env) if name else None for name in node.inputs]
        dtypes = [a.dtype if isinstance(a, np.ndarray) else None for a in args]
        try:
            if wrong := mixed_types(node, dtypes):
                raise FormatError(wrong)
            written = self.written_out(node)
            if node.op in CONTROL and not node.domain:
                outputs = run_control(self, attributes, args, env)
            elif written is not None:
                values = {name: self.value(name, env) for name in node.reads()}
                outputs = tuple(Body(self, written, node.outputs, may_promote=False).run(values))
            elif kind is not None:
                if kind.lower is not None:
                    rule = kind.lower
                    outputs = self._by_rule(node, rule, args)
                if outputs is None and kind.evaluate is not None:
                    rule = kind.evaluate
                    given = (self.generator, *args) if kind.is_random else args
                    with np.errstate(all="ignore"):
                        outputs = kind.evaluate(attributes, *given)
            if outputs is None:
                kinds = ", ".join(str(getattr(a, "dtype", type(a).__name__)) for a in args)
                raise RunError(f"not supported for inputs of {kinds}")
        except OpscopeError as error:
            if node.title() in str(error):
                raise
            raise RunError(f"{self.where}: {node.title()}: {error}") from error
        except Exception as error:  # NumPy's, of shapes and values that do not fit, or a mistake
            raise failed(self.where, node, rule, error) from error
        results = list(outputs) if isinstance(outputs, tuple) else [outputs]
        return [np.asarray(r) if isinstance(r, np.generic) else r for r in results]

    def _by_rule(
        self, node: Node, rule: Callable[[Call], Any], args: Sequence[Any]
    ) -> tuple[Any, ...] | None:
        """The outputs of a node by its rule for nets; None where that is for others."""
        if any(arg is not None and not isinstance(arg, np.ndarray) for arg in args):
            return None
        try:
            given, back = as_held(node, args)
            values = [None if array is None else known(array) for array in given]
            with np.errstate(all="ignore"):
                outputs = rule(Call(node, self.where, values, AtOnce(node, given, self)))
        except NotHere:
            return None
        results = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        return tuple(back([None if value is None else value.array for value in results]))


_Kind = tuple[Any, ...]
_Sizes = tuple[int, ...]


class _Derived:
    """What was computed beforehand of parameters, for a stage.

    Args:
        node: that computes it. names: variables of its results, in the scope of the stage.
    """

    def __init__(self, engine: Engine, scope: Scope, node: Node, names: Sequence[str]) -> None:
        self._engine = engine
        self._node = node
        self._results = [scope.find(name) for name in names]
        read = [name for name in node.reads() if name in engine.parameters]
        self._variables = {name: engine.scope.get(name) for name in read}
        self._stamps = self._now()

    def _now(self) -> list[int]:
        return [variable.stamp for variable in self._variables.values()]

    def refresh(self) -> None:
        """Compute it again where a parameter has changed, or somebody may have written to one."""
        stamps = self._now()
        exposed = any([variable.exposed for variable in self._variables.values()])
        if stamps == self._stamps and not exposed:
            return
        self._stamps = stamps
        arrays = {name: variable.inner for name, variable in self._variables.items()}
        for variable, array in zip(
            self._results, self._engine.evaluate(self._node, arrays), strict=True
        ):
            if variable is not None:  # the net reads it
                variable.set(array)


class _Ready:
    """A stage with its net in a scope of its own, where it is bound for several shapes.

    Args:
        kind, sizes: what it was lowered for; see `_signature`.
    """

    def __init__(self, engine: Engine, stage: Stage, kind: _Kind, sizes: _Sizes) -> None:
        self.stage = stage
        self._kind = kind
        self._sizes = sizes
        dims = stage.dims
        self._makes = None if dims is None else dims.value_of(stage.makes)
        own = [one for _, sizes_of in stage.follows.values() for one in sizes_of]
        self._sizes_followed = None if dims is None or not own else dims.values_of(own)
        self._followed: _Sizes | None = None
        self._engine = engine
        self.next = _Part(stage.rest) if stage.rest else None
        self._net = None
        self._rooms: dict[str, np.ndarray] = {}  # memory of inputs
        self._results: list[tuple[str, Variable]] | None = None  # since the first run
        self._scope = engine.workspaces.lend(Scope(parent=engine.scope))
        if stage.net.ops or stage.fetches:
            written = {name for op in stage.net.ops for name in op.output_names()}
            self._net = PlainNet(stage.net, check=False, most_shapes=_MOST_SHAPES)
            derived = {name for _, names in stage.derived for name in names}
            read = {name for node, _ in stage.derived for name in node.reads()}
            given = [engine.scope.get(name).inner for name in read & engine.parameters.keys()]
            for name, array in stage.constants.items():
                variable = self._scope.var(name)
                if name in derived:  # `refresh` writes to it
                    shared = any(np.may_share_memory(array, one) for one in given)
                    variable.bind(array.copy() if shared else array, own=True)
                else:
                    variable.share(array, constant=True)
            self._derived = [_Derived(engine, self._scope, *one) for one in stage.derived]
            feeds = stage.feeds.items()
            self._inputs = [(value, self._scope.var(name)) for value, name in feeds]
            live = [name for name in stage.fetches.values() if name in written]
            self._context = OpContext(train=False, live_out=live)

    def serves(self, kind: _Kind, sizes: _Sizes) -> bool:
        """Whether the stage is what inputs of a signature would be lowered to."""
        dims = self.stage.dims
        return kind == self._kind and (
            sizes == self._sizes or (dims is not None and dims.meets(sizes))
        )

    def makes(self, sizes: _Sizes) -> int:
        """Bytes of all that is fetched."""
        return self.stage.makes if self._makes is None else self._makes(sizes)

    def nbytes(self) -> int:
        """The memory that goes with the stage."""
        shared = set(map(id, self._engine.constants.values()))
        arrays = (*self.stage.constants.values(), *self.stage.folded.values())
        own = sum(getattr(one, "nbytes", 0) for one in arrays if id(one) not in shared)
        return own + bound_bytes(self._net.operators if self._net is not None else (), self._scope)

    def release(self) -> None:
        """Let go of what is bound."""
        self._scope.dissolve()

    def run(self, env: dict[str, Any], sizes: _Sizes) -> None:
        """Run the net for inputs of such sizes; results go into `env`."""
        env.update(self.stage.folded)
        if self._net is None:
            return
        for derived in self._derived:
            derived.refresh()
        if self._sizes_followed is not None and self._followed != sizes:
            values = iter(self._sizes_followed(sizes))
            for name, (make, own) in self.stage.follows.items():
                self._scope.var(name).bind(make(*islice(values, len(own))), own=True)
            self._followed = sizes
        fed = self._engine.loops.fed_by(self)
        for value, variable in self._inputs:
            given = env[value]
            if fed.get(variable.name) is not given:
                fed[variable.name] = given
                self._feed(variable, given)
        if self._net.operators:
            self._net.run(self._scope, self._context)
        if self._results is None:
            fetches = self.stage.fetches.items()
            self._results = [(value, self._scope.get(name)) for value, name in fetches]
        for value, variable in self._results:
            env[value] = variable.numpy()

    def _feed(self, variable: Variable, value: Any) -> None:
        """Set an input; arrays of ever new shapes lie in memory that only grows, whose pages the
        system need not bring each time."""
        held = variable.inner
        if isinstance(value, np.ndarray) and (held is None or held.shape != value.shape):
            room = self._rooms.get(variable.name)
            if room is None or len(room) < value.nbytes:
                room = self._rooms[variable.name] = np.empty(value.nbytes, np.uint8)
            variable.bind(np.ndarray(value.shape, value.dtype, room), own=True)
        variable.set(value)


class _Part:
    """Nodes that are lowered together, and the stages made of them.

    Attributes:
        ready: the stages, by number.
        by_value: inputs whose values are part of the signature.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = list(nodes)
        names = dict.fromkeys(name for node in nodes for name in node.reads())
        self.reads = {name: place for place, name in enumerate(names)}
        self.by_value: set[str] = set()
        self.ready: BoundedCache[int, _Ready] = BoundedCache(
            _MOST_STAGES, _Ready.nbytes, _Ready.release
        )
        self._made = 0
        self._latest: _Ready | None = None  # the stage that ran last
        self._first: dict[_Kind, _Sizes] = {}  # sizes that a kind of inputs came with first
        self._varying: dict[_Kind, set[int]] = {}  # places of those that then were others
        self._pinned: dict[_Kind, set[int]] = {}  # places of those that each need a stage

    def found(self, kind: _Kind, sizes: _Sizes) -> _Ready | None:
        """The stage for inputs of a signature; None where there is none yet."""
        latest = self._latest  # the cache lets go of others alone
        if latest is not None and latest.serves(kind, sizes):
            return latest
        for number, ready in reversed(self.ready.items()):
            if ready.serves(kind, sizes):
                self._latest = self.ready.get(number)
                return self._latest
        return None

    def add(self, kind: _Kind, ready: _Ready) -> _Ready:
        """Keep a stage."""
        if ready.stage.dims is not None:
            self.pin(kind, ready.stage.dims.pinned)
        self._made += 1
        self._latest = self.ready.add(self._made, ready)
        return ready

    def pin(self, kind: _Kind, places: set[int]) -> None:
        """Note the places of sizes that no net can leave open."""
        self._pinned.setdefault(kind, set()).update(places)

    def varying(self, kind: _Kind, sizes: _Sizes) -> set[int]:
        """The places of sizes that inputs of a kind had several of, and a net may leave open."""
        if kind not in self._first and len(self._first) >= _MOST_KINDS:
            self._first.clear()
            self._varying.clear()
            self._pinned.clear()
        first = self._first.setdefault(kind, sizes)
        varying = self._varying.setdefault(kind, set())
        varying.update(at for at, size in enumerate(sizes) if size != first[at])
        return varying - self._pinned.get(kind, set())


class Body:
    """Runs nodes for inputs of any shapes.

    Args:
        engine: of the model. nodes: in order. outputs: values that are wanted.
        may_promote: whether small inputs' values may become part of a signature.
    """

    def __init__(
        self,
        engine: Engine,
        nodes: Sequence[Node],
        outputs: Sequence[str],
        *,
        may_promote: bool,
    ) -> None:
        self._engine = engine
        self._first = _Part(nodes)
        self._outputs = outputs
        self._may_promote = may_promote

    @property
    def nodes(self) -> list[Node]:
        """Its nodes."""
        return self._first.nodes

    def run(self, env: dict[str, Any], watch: Callable[[Stage], None] | None = None) -> list[Any]:
        """The outputs, for values of what the nodes read; all that is computed goes into `env`."""
        engine = self._engine
        part = self._first
        first = True
        while part is not None:
            ready, sizes = self._ready(part, env, first and self._may_promote)
            if watch is not None:
                watch(ready.stage)
            makes = ready.makes(sizes)
            if makes > engine.loops.room:
                engine.loops.refuse(makes)
            ready.run(env, sizes)
            for node in ready.stage.host:
                for name, value in zip(node.outputs, engine.evaluate(node, env), strict=False):
                    if name:
                        env[name] = value
            if ready.next is part:
                raise RunError(f"{engine.where}: no progress")
            part = ready.next
            first = False
        return [engine.value(name, env) if name else None for name in self._outputs]

    def _ready(
        self, part: _Part, env: Mapping[str, Any], may_promote: bool
    ) -> tuple[_Ready, _Sizes]:
        while True:
            kind, sizes = _signature(part, env)
            ready = part.found(kind, sizes)
            if ready is None:
                varying = part.varying(kind, sizes)
                try:
                    stage = self._lower(part, env, may_promote, varying)
                    ready = part.add(kind, _Ready(self._engine, stage, kind, sizes))
                except OpscopeError:
                    if not varying:
                        raise
                    part.pin(kind, varying)  # a rule, or one of a plug-in, that takes numbers alone
                    continue
                except Promote as error:
                    new = error.names - part.by_value
                    if not new:
                        raise RunError(f"{self._engine.where}: no value of {error}") from None
                    for name in new:
                        if env[name].size > _MOST_VALUES:
                            raise RunError(
                                f"{self._engine.where}: a shape depends on {name!r}, which has"
                                f" {env[name].size} elements"
                            ) from None
                    part.by_value |= new
                    continue
            return ready, sizes

    def _lower(
        self, part: _Part, env: Mapping[str, Any], may_promote: bool, varying: set[int]
    ) -> Stage:
        return lower_part(
            self._engine,
            part.nodes,
            part.reads,
            part.by_value,
            env,
            self._outputs,
            may_promote,
            varying=varying,
        )


def lower_part(
    store: Store,
    nodes: Sequence[Node],
    reads: Mapping[str, int],
    by_value: set[str],
    env: Mapping[str, Any],
    outputs: Sequence[str],
    may_promote: bool,
    unroll: bool = False,
    varying: Collection[int] = (),
) -> Stage:
    """The stage of nodes for the values in `env`, of which `by_value` alone are looked at.

    Args:
        varying: the places of sizes that it leaves open, as far as it can; see `_signature`.
    """
    dims = Dims() if varying else None
    place = 0
    specs = {}
    known = {}
    foreign = set()
    for name in _given(reads, env):
        value = env[name]
        if not isinstance(value, np.ndarray):
            foreign.add(name)
            continue
        shape: Any = value.shape
        if dims is not None:
            is_open = () if name in by_value else varying
            shape = tuple(
                dims.size(at, size) if at in is_open else dims.fixed(at, size)
                for at, size in enumerate(shape, place)
            )
        place += value.ndim
        if name in by_value:
            known[name] = value
        elif value.dtype in DTYPES:
            specs[name] = shape, value.dtype
        else:
            foreign.add(name)
    lowering = Lowering(
        store,
        specs,
        known,
        foreign,
        may_promote=may_promote,
        unroll=unroll,
        dims=dims,
    )
    return lowering.lower(nodes, outputs)


def _given(reads: Mapping[str, int], env: Mapping[str, Any]) -> list[str]:
    """The names of values that are read, in order; most of what is read are constants, or made."""
    return sorted(reads.keys() & env.keys(), key=reads.__getitem__)


def _signature(part: _Part, env: Mapping[str, Any]) -> tuple[_Kind, _Sizes]:
    """What a part is lowered for: all about its inputs but sizes, and the sizes in a row."""
    kind: list[Any] = []
    sizes: list[int] = []
    for name in _given(part.reads, env):
        value = env[name]
        if not isinstance(value, np.ndarray):
            kind.append((name, type(value)))
            continue
        by_value = name in part.by_value
        kind.append((name, value.dtype, value.ndim, value.tobytes() if by_value else b""))
        sizes += value.shape
    return tuple(kind), tuple(sizes)
