"""The computation graph: all rows of all nodes that a request needs, as arrays.

Source: Kaldi's nnet-computation-graph.cc. Two things make it fast here. Rows of different n never
depend on each other, so all n for which the request asks the same are one group, worked out once.
And one pass over the nodes from the outputs back gathers all candidates, one pass forward finds
what is computable, and one pass back keeps what is needed, where loops take several such passes. It
is done on sets of times where these will do (time_graph.py), else on arrays of (t, x), or, where
there are loops, row by row (computable.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError
from ...framework.base.python.cached import cached_property
from ..index.indexes import distinct, format_indexes, is_among, pack_tx, unpack_tx
from .computable import COMPUTABLE, Explorer, Row
from .request import ComputationRequest
from .time_graph import Keys, Level, TimeRows
from .topology import Topology

Asked = list[tuple[int, np.ndarray]]  # nodes with their keys, see pack_tx, as a request lists them

_EMPTY = np.zeros(0, np.int64)
_LONGEST = 300  # characters of the rows that one error names


class NotComputableError(OpscopeError):
    """Outputs that cannot be computed from the inputs of the request.

    Attributes:
        explanation: why, row by row, as Kaldi logs it; it may have many lines.
    """

    def __init__(self, message: str, explanation: str = "") -> None:
        super().__init__(message)
        self.explanation = explanation


@dataclass
class Segment:
    """The rows of one request for a group of sequences.

    Attributes:
        inputs, outputs: the given rows and the output rows, in the order of the request.
        known: for every node the keys that earlier segments computed or were given.
        input_keys, wanted: for every node the keys that this request gives and asks for, sorted.
        rows: for every node the keys that are computed.
        loops: for every epoch that is a loop its rows by level and node; the rows of a descriptor
            whose component is one unit with it (units.py) stand one level before the component's.
        times: the same as sets of times, where `TimeRows` computed it.
    """

    inputs: Asked
    outputs: Asked
    known: Keys = field(default_factory=dict)
    input_keys: Keys = field(init=False)
    wanted: Keys = field(init=False)
    rows: Keys = field(default_factory=dict)
    loops: dict[int, list[Level]] = field(default_factory=dict)
    times: TimeRows | None = None
    explorer: Explorer | None = None
    num_candidates: int | None = None

    def __post_init__(self) -> None:
        self.input_keys = _sorted(self.inputs)
        self.wanted = _sorted(self.outputs)

    def explore(self, topology: Topology) -> Explorer:
        """The row-by-row exploration, done once."""
        if self.explorer is None:
            available = _listed([*self.known.items(), *self.inputs])
            self.explorer = Explorer(topology, available, _listed(self.outputs))
        return self.explorer

    def count_candidates(self, topology: Topology) -> int:
        """How many rows Kaldi's builder looks at, without the rows of earlier segments."""
        times = self.times
        if times is not None and times.all_computable and not topology.is_recurrent:
            return times.num_reached + sum(map(len, self.input_keys.values()))
        if self.num_candidates is None:
            known = sum(map(len, self.known.values()))
            self.num_candidates = len(self.explore(topology).rows) - known
        return self.num_candidates

    def there(self, node: int) -> np.ndarray:
        """The keys of `node` that can be read in this segment, sorted."""
        return _union(
            [keys[node] for keys in (self.known, self.input_keys, self.rows) if node in keys]
        )


@dataclass
class Group:
    """Sequences of which the requests want the same rows: their n, sorted, and their rows."""

    ns: np.ndarray
    segments: list[Segment]


class Graph:
    """The rows that requests need of a network.

    Several requests are segments of one computation: each may read what those before it computed,
    and computes nothing again.

    Raises:
        FormatError: a request names a node that is not there.
        ShapeError: an index is listed twice, or the request wants no output rows.
        NotComputableError: an output needs rows that are not given; the text says which.
    """

    def __init__(self, topology: Topology, *requests: ComputationRequest):
        self.topology = topology
        self.requests = requests
        self.groups = group_sequences(topology, requests)
        for number in range(len(requests)):
            filled = [self._fill(group, number) for group in self.groups]
            if not all(filled):
                reason, _, rows = self.explain_why_not_computable(number).partition("\n")
                cut = reason if len(reason) <= _LONGEST else reason[:_LONGEST] + " ..."
                raise NotComputableError(cut, f"{reason}\n{rows}")

    def _fill(self, group: Group, number: int) -> bool:
        """Finds the rows of one segment of a group; False where an output is missing."""
        segment = group.segments[number]
        if number:
            before = group.segments[number - 1]
            nodes = {*before.known, *before.input_keys, *before.rows}
            segment.known = {node: before.there(node) for node in sorted(nodes)}
            for node, keys in (*segment.inputs, *segment.outputs):
                if node in segment.known and is_among(keys, segment.known[node]).any():
                    name = self.topology.nodes[node].name
                    raise ShapeError(f"request {number} lists rows of '{name}' a second time")
        if not segment.outputs:
            return True
        filled = _fill_by_times(self.topology, segment)
        if filled is not None:
            return filled
        if self.topology.is_recurrent:
            return _fill_by_exploring(self.topology, segment)
        return _fill_by_nodes(self.topology, segment)

    @property
    def num_cindexes(self) -> int:
        """How many rows there are, the given ones included."""
        return sum(
            len(group.ns) * sum(map(len, (*segment.input_keys.values(), *segment.rows.values())))
            for group in self.groups
            for segment in group.segments
        )

    @cached_property
    def num_candidates(self) -> int:
        """How many rows Kaldi's builder looks at before it drops the rows that are not needed."""
        return sum(
            len(group.ns) * segment.count_candidates(self.topology)
            for group in self.groups
            for segment in group.segments
        )

    def explain_why_not_computable(self, number: int = 0, limit: int = 10) -> str:
        """Which outputs cannot be computed, which input rows are missing, and why, row by row.

        Args:
            number: of the request.
            limit: how many rows are explained, at most.
        """
        topology = self.topology
        lines: list[str] = []
        missing: list[np.ndarray] = []
        failed = wanted = 0
        for group in self.groups:
            explorer = group.segments[number].explore(topology)
            wanted += len(explorer.outputs) * len(group.ns)
            bad = [row for row in explorer.outputs if explorer.state[row] != COMPUTABLE]
            if not bad:
                continue
            failed += len(bad) * len(group.ns)
            for row in bad[: limit - len(lines)]:
                lines.append(explorer.explain(row, int(group.ns[0])))
            rows = np.array(explorer.missing(), np.int64).reshape(-1, 3)
            for n in group.ns[:limit].tolist():
                missing.append(np.insert(rows, 1, n, axis=1))
        text = f"{failed} of {wanted} output rows are not computable"
        if len(self.requests) > 1:
            text = f"request {number}: {text}"
        rows = np.concatenate(missing) if missing else np.zeros((0, 4), np.int64)
        for node in distinct(rows[:, 0]).tolist():
            shown = format_indexes(rows[rows[:, 0] == node][:, 1:])
            text += f"; rows of '{topology.nodes[node].name}' that are not given: {shown}"
        return "\n".join([text, *lines])


def group_sequences(topology: Topology, requests: Sequence[ComputationRequest]) -> list[Group]:
    """The requests by values of n; n with the same rows in the same order come together.

    The rows that are computed are not looked for yet.

    Raises:
        FormatError, ShapeError: as `Graph`.
    """
    patterns: dict[int, list[list[tuple[int, bytes]]]] = {}  # n -> inputs, outputs, inputs, ...
    empty = range(2 * len(requests))
    for number, request in enumerate(requests):
        for output, listed in enumerate((request.inputs, request.outputs)):
            seen: set[int] = set()
            for io in listed:
                node = _check_io(topology, io.name, bool(output), seen)
                if not len(io.indexes):
                    kind = "output" if output else "input"
                    raise ShapeError(
                        f"the request lists no rows of the {kind} '{io.name}' (0 indexes); give it"
                        " indexes (n, t, x), or leave it out"
                    )
                for value, keys in _by_sequence(io.indexes):
                    pattern = patterns.setdefault(value, [[] for _ in empty])
                    pattern[2 * number + output].append((node, keys))
        if not any(len(io.indexes) for io in request.outputs):
            raise ShapeError("the request asks for no output rows")
    grouped: dict[tuple[tuple[tuple[int, bytes], ...], ...], list[int]] = {}
    for value, pattern in patterns.items():
        grouped.setdefault(tuple(map(tuple, pattern)), []).append(value)
    groups = []
    for parts, ns in grouped.items():
        rows = [[(node, np.frombuffer(data, np.int64)) for node, data in part] for part in parts]
        segments = [Segment(rows[i], rows[i + 1]) for i in range(0, len(rows), 2)]
        for segment in segments:
            _check_different(topology, segment)
        groups.append(Group(np.array(sorted(ns), np.int64), segments))
    return groups


def _by_sequence(indexes: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """The values of n in order, with the keys of their rows."""
    n = indexes[:, 0]
    keys = pack_tx(indexes[:, 1], indexes[:, 2])
    for _ in range(2):
        starts = [0, *((n[1:] != n[:-1]).nonzero()[0] + 1).tolist()][: len(n)]
        values = [int(n[start]) for start in starts]
        if sorted(set(values)) == values:
            break
        order = np.argsort(n, kind="stable")
        n, keys = n[order], keys[order]
    for value, begin, end in zip(values, starts, [*starts[1:], len(n)], strict=True):
        yield value, keys[begin:end].tobytes()


def _check_io(topology: Topology, name: str, output: bool, seen: set[int]) -> int:
    node = topology.number(name)
    info = topology.nodes[node]
    if output and not info.is_output:
        raise ShapeError(f"the request asks for '{name}', which is no output node")
    if not output and info.kind not in ("input", "component"):
        raise ShapeError(f"the request gives '{name}', which is neither an input nor a component")
    if node in seen:
        raise ShapeError(f"the request lists '{name}' twice")
    seen.add(node)
    return node


def _check_different(topology: Topology, segment: Segment) -> None:
    listed = dict(segment.inputs + segment.outputs)
    for node, keys in (*segment.input_keys.items(), *segment.wanted.items()):
        if keys is not listed[node] and (keys[1:] == keys[:-1]).any():
            name = topology.nodes[node].name
            raise ShapeError(f"the request lists an index of '{name}' more than once")


def _sorted(asked: Asked) -> Keys:
    """The keys sorted; the same arrays where they rise as they are listed."""
    keys = dict(asked)
    for node, listed in asked:
        if not (listed[1:] > listed[:-1]).all():
            keys[node] = np.sort(listed)
    return keys


def _listed(asked: Asked) -> list[Row]:
    rows: list[Row] = []
    for node, keys in asked:
        t, x = unpack_tx(keys)
        rows += zip([node] * len(t), t.tolist(), x.tolist(), strict=True)
    return rows


def _union(parts: list[np.ndarray]) -> np.ndarray:
    """Keys that stand in one of `parts`, of which no two share a key; sorted."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else _EMPTY
    return np.sort(np.concatenate(parts))


def _available(segment: Segment) -> Keys:
    """The keys that are there before anything is computed."""
    if not segment.known:
        return segment.input_keys
    return {node: segment.there(node) for node in {*segment.known, *segment.input_keys}}


def _fill_by_times(topology: Topology, segment: Segment) -> bool | None:
    """Fills `rows` and `loops`; False where an output is missing, None where this way fails."""
    times = TimeRows(topology, _available(segment), segment.wanted)
    if times.state:
        segment.times = times
        segment.rows = times.rows
        segment.loops = times.loops
    return times.state


def _fill_by_exploring(topology: Topology, segment: Segment) -> bool:
    """Fills `rows` and `loops`, row by row; False where an output is missing."""
    explorer = segment.explore(topology)
    if any(explorer.state[row] != COMPUTABLE for row in explorer.outputs):
        return False
    required = explorer.required()
    level = explorer.levels(required)
    listed: dict[int, list[tuple[int, int, int]]] = {}
    joined = set(topology.units.joined)
    for row in required[explorer.num_available :]:
        node, t, x = explorer.rows[row]
        listed.setdefault(node, []).append((t, x, level[row]))
    for node, places in listed.items():
        t, x, levels = np.array(places, np.int64).T
        keys = pack_tx(t, x)
        segment.rows[node] = np.sort(keys)
        epoch = topology.epochs[node]
        if topology.stages[epoch][1] and node + 1 not in joined:
            loop = segment.loops.setdefault(epoch, [])
            for value in distinct(levels).tolist():
                loop.append((value, node, np.sort(keys[levels == value])))
    for loop in segment.loops.values():
        loop.sort(key=itemgetter(0, 1))
    return True


def _fill_by_nodes(topology: Topology, segment: Segment) -> bool:
    """Fills `rows`, for a network without loops; False where an output is missing."""
    order = np.argsort(topology.epochs, kind="stable").tolist()
    available = _available(segment)
    outputs = segment.wanted
    reached = _closure(topology, order, outputs, available)
    all_keys = {node: _union([keys, available.get(node, _EMPTY)]) for node, keys in reached.items()}
    computable: dict[int, np.ndarray | bool] = {}
    used: dict[int, list[np.ndarray]] = {}
    simple = True  # everything is computable, and everything is used
    for node in order:
        if node not in reached:
            continue
        keys = reached[node]
        if not len(keys):
            computable[node] = True
            continue
        if topology.needs_all[node] and all(
            computable.get(source, True) is True for source in topology.inputs_of[node]
        ):
            computable[node] = True
            continue
        t, x = unpack_tx(keys)
        present = []
        for source, pt, px in topology.dependencies(node, t, x):
            present.append(_present(all_keys, computable, source, pt, px))
        ok, masks = topology.combine(node, present, topology.allowed(node, t))
        ok = np.broadcast_to(np.asarray(ok, bool), t.shape)
        used[node] = [mask & ok for mask in masks]
        simple = simple and bool(ok.all()) and all(mask.all() for mask in used[node])
        if ok.all():
            computable[node] = True
        elif node in available:
            state = np.ones(len(all_keys[node]), bool)
            state[np.searchsorted(all_keys[node], keys)] = ok
            computable[node] = state
        else:
            computable[node] = ok
    if any(computable[node] is not True for node in outputs):
        return False
    if simple:
        segment.rows = {node: keys for node, keys in reached.items() if len(keys)}
        segment.num_candidates = sum(
            map(len, (*segment.rows.values(), *segment.input_keys.values()))
        )
    else:
        segment.rows = _closure(topology, order, outputs, available, used, reached)
        if all(state is True for state in computable.values()):
            count = sum(map(len, (*reached.values(), *segment.input_keys.values())))
            segment.num_candidates = count
    return True


def _present(
    all_keys: Keys,
    computable: dict[int, np.ndarray | bool],
    source: int | np.ndarray,
    t: np.ndarray,
    x: np.ndarray,
) -> np.ndarray:
    if isinstance(source, np.ndarray):
        result = np.zeros(t.shape, bool)
        for node in distinct(source).tolist():
            mask = source == node
            result[mask] = _present(all_keys, computable, node, t[mask], x[mask])
        return result
    state = computable[source]
    if isinstance(state, bool):
        return np.full(t.shape, state)
    return state[np.searchsorted(all_keys[source], pack_tx(t, x))]


def _closure(
    topology: Topology,
    order: list[int],
    outputs: Keys,
    available: Keys,
    used: dict[int, list[np.ndarray]] | None = None,
    candidates: Keys | None = None,
) -> Keys:
    """For every node the keys that the outputs reach, given rows left out and not followed.

    With `used` only candidates that are used are followed: for every node a mask for each
    candidate, over the keys in `candidates`; a node that is not in `used` uses all.
    """
    pending: dict[int, list[np.ndarray]] = {node: [keys] for node, keys in outputs.items()}
    reached: Keys = {}
    for node in reversed(order):
        if node not in pending:
            continue
        parts = pending[node]
        keys = parts[0]
        if len(parts) > 1:
            keys = distinct(np.concatenate(parts))
        elif len(keys) > 1 and not (keys[1:] > keys[:-1]).all():
            keys = distinct(keys)
        if node in available:
            keys = keys[~is_among(keys, available[node])]
        reached[node] = keys
        if topology.nodes[node].kind == "input":
            continue
        t, x = unpack_tx(keys)
        masks = used.get(node) if used is not None else None
        where = None
        if masks is not None and candidates is not None:
            where = np.searchsorted(candidates[node], keys)
        for i, (source, pt, px) in enumerate(topology.dependencies(node, t, x)):
            follow = keys if pt is t and px is x else pack_tx(pt, px)
            sources = source
            if masks is not None:
                mask = masks[i][where]
                follow = follow[mask]
                sources = source[mask] if isinstance(source, np.ndarray) else source
            if isinstance(sources, np.ndarray):
                for one in distinct(sources).tolist():
                    pending.setdefault(one, []).append(follow[sources == one])
            else:
                pending.setdefault(sources, []).append(follow)
    return reached
