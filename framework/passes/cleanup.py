"""Clean-up passes: smaller nets that compute the same numbers.

Each pass is switchable by name: `clean_up(net, skip=["remove-dead"])`. None of them touches
variables that somebody may look at: declared kinds other than TEMPORARY, views and their bases,
variables without gradient flow, names inside nested nets and links, and the names in `live_out`. A
temporary that no operator reads also counts as a result, unless the net declares OUTPUT variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...proto import net_pb2 as pb
from ..ir.desc import OUTPUT, TEMPORARY
from ..ir.messages import as_op_list, encode_attr
from ..ir.names import EMPTY
from ..ir.op_list import OpList, OpNode
from ..ir.operation import Operator, results_of
from .pipeline import run_passes
from .rewriter import Rewriter, outside_names, rewrite, with_ops

Same = Callable[[Mapping[str, Any], bool | None], bool]

IDENTITIES: dict[str, Same] = {
    "assign": lambda attrs, train: True,
    "scale": lambda attrs, train: attrs.get("scale", 1.0) == 1.0 and attrs.get("bias", 0.0) == 0.0,
    # dropout is scaled while training, so that testing changes nothing
    "dropout": lambda attrs, train: train is False or attrs["p"] == 0.0,
}
"""Operator types that, with these attributes and this phase, hand `x` to `out` as it is."""


@dataclass(frozen=True)
class RemoveIdentities:
    """Drops operators that copy `x` to `out`; readers of `out` read `x`.

    Attributes:
        train: the phase the net is for; None = both, so dropout stays.
        live_out: results, which must keep their names.
    """

    train: bool | None = None
    live_out: tuple[str, ...] = ()
    name: str = "remove-identities"

    def apply(self, net: OpList) -> OpList:
        facts = _Facts(net, self.live_out)

        def identity(op: Operator, walk: Rewriter) -> list[OpNode] | None:
            same = IDENTITIES.get(op.type)
            if same is None or not same(op.attrs, self.train) or not self._replaceable(op, facts):
                return None
            walk.rename(op.outputs["out"][0], op.inputs["x"][0])
            return []

        return rewrite(net, identity)

    @staticmethod
    def _replaceable(op: Operator, facts: _Facts) -> bool:
        x, out = op.inputs["x"][0], op.outputs["out"][0]
        spare = [name for name in op.output_vars() if name != out]
        return (
            facts.replaceable(out)
            and x not in facts.aliased
            # Readers of the copy would read the later value of `x`.
            and not facts.written_after(x, op.index)
            and not any(name in facts.readers or name in facts.fixed for name in spare)
        )


@dataclass(frozen=True)
class MergeCommon:
    """Computes equal things once: same type, attributes, and inputs at the same version.

    Operators that are random or touch the world outside, and variables that are written several
    times, are left alone.
    """

    live_out: tuple[str, ...] = ()
    name: str = "merge-common"

    def apply(self, net: OpList) -> OpList:
        facts = _Facts(net, self.live_out)
        first: dict[Any, OpNode] = {}

        def merged(op: Operator, walk: Rewriter) -> list[OpNode] | None:
            if not self._mergeable(op, facts):
                return None
            earlier = first.setdefault(self._key(op.node, walk), op.node)
            if earlier is op.node or not self._replaceable(op, facts):
                return None
            for name, same in zip(op.node.output_names(), earlier.output_names(), strict=True):
                walk.rename(name, same)
            return []

        return rewrite(net, merged)

    @staticmethod
    def _key(desc: OpNode, walk: Rewriter) -> Any:
        """Equal for operators that compute the same; outputs count by slot, not by name."""
        # The version of an input, so that two reads with a write between them are not the same.
        reads = tuple(
            (slot, tuple((name, walk.version(name)) for name in desc.inputs[slot]))
            for slot in sorted(desc.inputs)
        )
        makes = tuple(
            (slot, tuple(n == EMPTY for n in names)) for slot, names in desc.outputs.items()
        )
        attrs = tuple(
            (name, encode_attr(desc.attrs[name]).SerializeToString(deterministic=True))
            for name in sorted(desc.attrs)
        )
        return desc.type, desc.device, reads, makes, attrs

    @staticmethod
    def _mergeable(op: Operator, facts: _Facts) -> bool:
        outputs, inputs = op.output_vars(), op.input_vars()
        return (
            bool(outputs)
            and not (op.entry.random or op.entry.world)
            # Comparing nets costs more than they are likely to save.
            and not any(isinstance(value, OpList) for value in op.attrs.values())
            and not any(name in facts.aliased for name in inputs)
            and all(
                facts.writes.get(name) == 1
                and name not in facts.aliased
                and name not in facts.stopped
                and name not in facts.given
                for name in outputs
            )
        )

    @staticmethod
    def _replaceable(op: Operator, facts: _Facts) -> bool:
        slots = op.entry.output_slots
        return all(
            facts.replaceable(name) or (slots[slot].intermediate and name not in facts.fixed)
            for slot, names in op.outputs.items()
            for name in names
            if name != EMPTY
        )


@dataclass(frozen=True)
class RemoveDead:
    """Drops operators whose outputs nothing needs, and temporaries that nothing mentions.

    Needed are `live_out`, OUTPUT variables, the operators that update a PARAMETER or STATE or touch
    the world outside, and all variables that these read. Where a net has neither `live_out` nor
    OUTPUT variables, every temporary that nothing reads is a result, and needed.
    """

    live_out: tuple[str, ...] = ()
    name: str = "remove-dead"

    def apply(self, net: OpList) -> OpList:
        facts = _Facts(net, self.live_out)
        live = {facts.base(name) for name in facts.roots()}
        remaining: list[OpNode] = []
        random_later = False
        for index in range(len(net.ops) - 1, -1, -1):
            op = Operator(net.ops[index], index)
            outputs = op.output_vars()
            # a dead random operator still moves the random state that a later one sees
            needed = not outputs or op.entry.world or (op.entry.random and random_later)
            if not needed and not any(facts.base(name) in live for name in outputs):
                continue
            remaining.append(net.ops[index])
            random_later = random_later or op.entry.random
            live.update(facts.base(name) for name in op.input_vars())
        return with_ops(net, remaining[::-1])


def cleanup_passes(
    live_out: tuple[str, ...] = (), train: bool | None = None
) -> tuple[RemoveIdentities, MergeCommon, RemoveDead]:
    """The clean-up pipeline, in order; see `clean_up` for the arguments."""
    return (
        RemoveIdentities(train, live_out),  # first: copies hide that two operators read the same
        MergeCommon(live_out),  # leaves nothing dead, but makes gradient parts equal
        RemoveDead(live_out),  # last: removes operators that the others have made useless
    )


def clean_up(
    net: OpList | pb.NetDesc,
    *,
    live_out: Iterable[str] = (),
    train: bool | None = None,
    skip: Iterable[str] = (),
) -> OpList:
    """The net after all clean-up passes.

    Args:
        live_out: temporaries that are results.
        train: the phase that the net is for; None = both.
        skip: names of passes to leave out.

    Raises:
        OpscopeError: an operator of the net is wrongly used.
    """
    passes = cleanup_passes(tuple(live_out), train)
    return run_passes(as_op_list(net), passes, skip=skip)


class _Facts:
    """Facts about the variables of a net that all clean-up passes need."""

    def __init__(self, net: OpList, live_out: Iterable[str]) -> None:
        self.net = net
        self.live_out = set(live_out)
        self.bases = {var.name: var.view.base for var in net.vars if var.view is not None}
        self.aliased = set(self.bases) | set(self.bases.values())
        self.stopped = {var.name for var in net.vars if var.stop_gradient}
        self.given = {var.name for var in net.vars if var.kind not in (TEMPORARY, OUTPUT)}
        self.fixed = self.live_out | self.aliased | self.stopped
        self.fixed |= {var.name for var in net.vars if var.kind != TEMPORARY}
        self.fixed |= {var.name for var in net.vars if var.sequence_levels}
        self.fixed |= set(outside_names(net))
        self.readers = {name for op in net.ops for name in op.input_names()}
        self.writes: dict[str, int] = {}
        self._last_write: dict[str, int] = {}
        for index, op in enumerate(net.ops):
            for name in op.output_names():
                self.writes[name] = self.writes.get(name, 0) + 1
                self._last_write[name] = index

    def base(self, name: str) -> str:
        return self.bases.get(name, name)

    def replaceable(self, name: str) -> bool:
        """A temporary that is written once, and read: nothing misses it under its name."""
        return self.writes.get(name) == 1 and name in self.readers and name not in self.fixed

    def written_after(self, name: str, index: int) -> bool:
        return self._last_write.get(name, -1) > index

    def roots(self) -> set[str]:
        """Variables that are needed for their own sake."""
        declared = self.net.vars
        roots = self.live_out | set(outside_names(self.net))
        roots |= self.given
        outputs = {var.name for var in declared if var.kind == OUTPUT}
        if not outputs and not self.live_out:
            operators = [Operator(desc, index) for index, desc in enumerate(self.net.ops)]
            outputs = results_of(operators, self.bases, by_value=True)
        return roots | outputs
