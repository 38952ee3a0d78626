"""The computation graph: all rows of all nodes that a request needs, as arrays.

Source: Kaldi's nnet-computation-graph.cc. Two things make it fast here. Rows of different n never
depend on each other, so all n for which the request asks the same are one group, worked out once.
And where nodes form no loop, one pass over the nodes from the outputs back gathers all candidates,
one pass forward finds what is computable, and one pass back keeps what is needed: a few array
operations for each node. Loops are explored row by row, see computable.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..framework.errors import OpscopeError, ShapeError
from .computable import COMPUTABLE, Explorer, Row
from .indexes import format_indexes, pack_tx, unpack_tx
from .request import ComputationRequest
from .topology import Topology

Keys = dict[int, np.ndarray]  # node -> sorted keys of (t, x), see pack_tx

_EMPTY = np.zeros(0, np.int64)


class NotComputableError(OpscopeError):
    """Outputs that cannot be computed from the inputs of the request."""


@dataclass
class Group:
    """The rows of all n for which the request asks the same.

    Attributes:
        ns: the values of n, sorted.
        asked: (given rows, output rows), in the order of the request.
        given: for every input node its given keys.
        rows: for every node the keys that are computed.
        levels: for every node of a loop, the level of each of its rows within the epoch.
    """

    ns: np.ndarray
    asked: tuple[list[Row], list[Row]]
    given: Keys = field(default_factory=dict)
    rows: Keys = field(default_factory=dict)
    levels: Keys = field(default_factory=dict)
    explorer: Explorer | None = None
    num_candidates: int | None = None

    def explore(self, topology: Topology) -> Explorer:
        """The row-by-row exploration, done once."""
        if self.explorer is None:
            self.explorer = Explorer(topology, *self.asked)
        return self.explorer


class Graph:
    """What a request needs of a network.

    Raises:
        FormatError: the request names a node that is not there.
        ShapeError: an index is listed twice, or nothing is asked for.
        NotComputableError: an output needs rows that are not given; the text says which.
    """

    def __init__(self, topology: Topology, request: ComputationRequest):
        self.topology = topology
        self.request = request
        self.groups = _groups(topology, request)
        for group in self.groups:
            if topology.is_recurrent:
                _fill_by_exploring(topology, group)
            elif not _fill_by_nodes(topology, group):
                group.rows = {}
        if any(not group.rows and group.asked[1] for group in self.groups):
            raise NotComputableError(self.explain_why_not_computable())

    @property
    def num_cindexes(self) -> int:
        """How many rows there are, the given ones included."""
        return sum(
            len(group.ns) * sum(map(len, (*group.given.values(), *group.rows.values())))
            for group in self.groups
        )

    @cached_property
    def num_candidates(self) -> int:
        """How many rows Kaldi's builder looks at before it drops those that are not needed."""
        total = 0
        for group in self.groups:
            count = group.num_candidates
            if count is None:
                count = len(group.explore(self.topology).rows)
            total += len(group.ns) * count
        return total

    def explain_why_not_computable(self, limit: int = 10) -> str:
        """Which outputs cannot be computed, which input rows are missing, and why, row by row."""
        topology = self.topology
        lines: list[str] = []
        missing: list[np.ndarray] = []
        failed = wanted = 0
        for group in self.groups:
            explorer = group.explore(topology)
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
        rows = np.concatenate(missing) if missing else np.zeros((0, 4), np.int64)
        for node in np.unique(rows[:, 0]).tolist():
            shown = format_indexes(rows[rows[:, 0] == node][:, 1:])
            text += f"; rows of '{topology.nodes[node].name}' that are not given: {shown}"
        return "\n".join([text, *lines])


def _groups(topology: Topology, request: ComputationRequest) -> list[Group]:
    """The request by values of n; n with the same rows in the same order come together."""
    patterns: dict[int, list[list[tuple[int, bytes]]]] = {}
    for output, listed in enumerate((request.inputs, request.outputs)):
        seen: set[int] = set()
        for io in listed:
            node = _check_io(topology, io.name, bool(output), seen)
            n, t, x = io.indexes.T
            order = np.argsort(n, kind="stable")
            keys = pack_tx(t, x)[order]
            values, starts = np.unique(n[order], return_index=True)
            for i, chunk in enumerate(np.split(keys, starts[1:]) if len(values) else []):
                patterns.setdefault(int(values[i]), [[], []])[output].append(
                    (node, chunk.tobytes())
                )
    if not request.outputs or not any(len(io.indexes) for io in request.outputs):
        raise ShapeError("the request asks for no output rows")
    grouped: dict[tuple[object, ...], list[int]] = {}
    for value, (given, outputs) in patterns.items():
        grouped.setdefault((tuple(given), tuple(outputs)), []).append(value)
    groups = []
    for (given, outputs), ns in grouped.items():  # type: ignore[misc]
        rows = tuple(_rows(topology, part) for part in (given, outputs))
        groups.append(Group(np.array(sorted(ns), np.int64), rows))  # type: ignore[arg-type]
    return groups


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


def _rows(topology: Topology, part: tuple[tuple[int, bytes], ...]) -> list[Row]:
    rows: list[Row] = []
    for node, data in part:
        keys = np.frombuffer(data, np.int64)
        t, x = unpack_tx(keys)
        if len(np.unique(keys)) < len(keys):
            name = topology.nodes[node].name
            raise ShapeError(f"the request lists an index of '{name}' more than once")
        rows += zip([node] * len(keys), t.tolist(), x.tolist(), strict=True)
    return rows


def _by_node(rows: list[Row]) -> Keys:
    listed: dict[int, list[tuple[int, int]]] = {}
    for node, t, x in rows:
        listed.setdefault(node, []).append((t, x))
    return {node: np.sort(pack_tx(*np.array(tx, np.int64).T)) for node, tx in listed.items()}


def _fill_by_exploring(topology: Topology, group: Group) -> None:
    explorer = group.explore(topology)
    if any(explorer.state[row] != COMPUTABLE for row in explorer.outputs):
        return
    required = explorer.required()
    level = explorer.levels(required)
    listed: dict[int, list[tuple[int, int, int]]] = {}
    for row in required[explorer.num_given :]:
        node, t, x = explorer.rows[row]
        listed.setdefault(node, []).append((t, x, level[row]))
    group.given = _by_node(group.asked[0])
    for node, found in listed.items():
        t, x, levels = np.array(found, np.int64).T
        keys = pack_tx(t, x)
        order = np.argsort(keys)
        group.rows[node] = keys[order]
        if levels.any() or len(topology.epoch_members[topology.epochs[node]]) > 1:
            group.levels[node] = levels[order]
    group.num_candidates = len(explorer.rows)


def _fill_by_nodes(topology: Topology, group: Group) -> bool:
    """Fills `rows` of a group of a network without loops; False where an output is missing."""
    order = np.argsort(topology.epochs, kind="stable").tolist()
    group.given = _by_node(group.asked[0])
    outputs = _by_node(group.asked[1])
    found = _closure(topology, order, outputs, group.given)
    all_keys = {
        node: np.union1d(keys, group.given.get(node, _EMPTY)) for node, keys in found.items()
    }
    computable: dict[int, np.ndarray | bool] = {}
    used: dict[int, list[np.ndarray]] = {}
    simple = True  # everything is computable, and everything is used
    for node in order:
        if node not in found:
            continue
        keys = found[node]
        if not len(keys):
            computable[node] = True
            continue
        if topology.needs_all(node) and all(
            computable.get(source, True) is True for source in topology.inputs_of[node]
        ):
            computable[node] = True
            continue
        t, x = unpack_tx(keys)
        present = []
        for source, pt, px in topology.dependencies(node, t, x):
            present.append(_present(all_keys, computable, source, pt, px))
        ok, masks = topology.combine(node, present, t)
        ok = np.broadcast_to(np.asarray(ok, bool), t.shape)
        used[node] = [mask & ok for mask in masks]
        simple = simple and bool(ok.all()) and all(mask.all() for mask in used[node])
        if ok.all():
            computable[node] = True
        elif node in group.given:
            state = np.ones(len(all_keys[node]), bool)
            state[np.searchsorted(all_keys[node], keys)] = ok
            computable[node] = state
        else:
            computable[node] = ok
    if any(computable[node] is not True for node in outputs):
        return False
    if simple:
        group.rows = {node: keys for node, keys in found.items() if len(keys)}
        group.num_candidates = sum(map(len, (*group.rows.values(), *group.given.values())))
    else:
        group.rows = _closure(topology, order, outputs, group.given, used, found)
        if all(state is True for state in computable.values()):
            count = sum(map(len, (*found.values(), *group.given.values())))
            group.num_candidates = count
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
        for node in np.unique(source).tolist():
            mask = source == node
            result[mask] = _present(all_keys, computable, node, t[mask], x[mask])
        return result
    state = computable[source]
    if state is True:
        return np.ones(t.shape, bool)
    return state[np.searchsorted(all_keys[source], pack_tx(t, x))]  # type: ignore[index]


def _closure(
    topology: Topology,
    order: list[int],
    outputs: Keys,
    given: Keys,
    used: dict[int, list[np.ndarray]] | None = None,
    found: Keys | None = None,
) -> Keys:
    """For every node the keys that the outputs reach, given rows left out and not followed.

    With `used` only candidates that are used are followed: for every node a mask for each
    candidate, over the keys in `found`; a node that is not in `used` uses all.
    """
    pending: dict[int, list[np.ndarray]] = {node: [keys] for node, keys in outputs.items()}
    reached: Keys = {}
    for node in reversed(order):
        if node not in pending:
            continue
        parts = pending[node]
        keys = parts[0]
        if len(parts) > 1:
            keys = np.unique(np.concatenate(parts))
        elif len(keys) > 1 and not (keys[1:] > keys[:-1]).all():
            keys = np.unique(keys)
        if node in given:
            keys = keys[~np.isin(keys, given[node], assume_unique=True)]
        reached[node] = keys
        if topology.nodes[node].kind == "input":
            continue
        t, x = unpack_tx(keys)
        masks = used.get(node) if used is not None else None
        where = np.searchsorted(found[node], keys) if masks is not None else None  # type: ignore[index]
        for i, (source, pt, px) in enumerate(topology.dependencies(node, t, x)):
            follow = keys if pt is t and px is x else pack_tx(pt, px)
            sources = source
            if masks is not None:
                mask = masks[i][where]
                follow = follow[mask]
                sources = source[mask] if isinstance(source, np.ndarray) else source
            if isinstance(sources, np.ndarray):
                for one in np.unique(sources).tolist():
                    pending.setdefault(one, []).append(follow[sources == one])
            else:
                pending.setdefault(sources, []).append(follow)
    return reached
