"""Criteria of a network over data: what `test`, `eval` and `cv` tell, and validation in training.

Source: CNTK's `SGDLib/SimpleEvaluator.h`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...framework.base.errors import RunError, ShapeError, VariableError
from ..network.network import Network
from ..network.nodes.node import Node
from ..parallel.ranks import Ranks
from ..readers.base.minibatches import minibatches
from ..readers.base.reader import DataReader
from ..run.runtime import CntkNet, goes_on
from .measure import (
    accumulating,
    measured,
    reset_accumulators,
    samples_of,
    sub_minibatch,
    sub_minibatch_count,
    sub_minibatches,
    with_accumulated,
)
from .report import Say, Total, to_stderr

PERPLEXITY = frozenset(
    {
        "CrossEntropyWithSoftmax",
        "CrossEntropy",
        "ClassBasedCrossEntropyWithSoftmax",
        "NCEBasedCrossEntropyWithSoftmax",
    }
)
"""Operations whose average is the logarithm of a perplexity."""


@dataclass
class Evaluator:
    """Evaluates criteria of a network.

    Attributes:
        show_every, show_first: minibatches between two lines; how many at the start are shown one
            by one.
        trace_level: 0 = the final line only.
        sub_minibatches, samples_in_memory: see `SgdOptions`.
        say: takes the lines of the log.
        ranks: that evaluate a part of the data each; None: this one alone.
    """

    net: CntkNet
    show_every: int = 100
    show_first: int = 0
    trace_level: int = 0
    sub_minibatches: int = 1
    samples_in_memory: int | None = None
    say: Say = to_stderr
    ranks: Ranks | None = None

    def evaluate(
        self, reader: DataReader, nodes: Sequence[Node], size: int, epoch_size: int | None = None
    ) -> list[Total]:
        """Sums and samples of the nodes over an epoch.

        Raises:
            OpscopeError: the data are wrong, or do not fit.
        """
        network = self.net.network
        count = sub_minibatch_count(
            size, self.sub_minibatches, self.samples_in_memory, reader.parallel
        )
        accumulate = [accumulating(node) for node in nodes]
        totals = [Total() for _ in nodes]
        shown = list(totals)
        shown_at = 0
        run = 0
        carried = False
        reset_accumulators(self.net)
        ranks = self.ranks
        divided = ranks is not None and ranks.divide(reader, True)
        for minibatch in minibatches(reader, size, 0, epoch_size):
            if ranks is not None and minibatch and not divided:
                minibatch = sub_minibatch(minibatch, ranks.rank, ranks.count)
            if not minibatch:
                continue
            carried = carried or goes_on(minibatch)
            bound = self.net.bound_net(nodes, carried=carried)
            for part in sub_minibatches(minibatch, count):
                bound.run(part)
                values = measured(bound, nodes, samples_of(network, part))
                totals = [
                    Total(value, 1)
                    if accumulates
                    else Total(old.value + value, old.samples + samples)
                    for old, (value, samples), accumulates in zip(
                        totals, values, accumulate, strict=True
                    )
                ]
            run += 1
            if run <= self.show_first or (self.show_every and run % self.show_every == 0):
                self._show(nodes, totals, shown, shown_at + 1, run)
                shown, shown_at = totals, run
        if shown_at < run:
            self._show(nodes, totals, shown, shown_at + 1, run)
        if ranks is not None:
            sums = ranks.add_up(bool(run), 0, 0, totals)
            totals = [Total(*pair) for pair in sums.values]
            ranks.divide(reader, False)
            run = max(run, int(sums.reading > 0))
            if run and any(accumulate):
                totals = with_accumulated(ranks.communicator, self.net, nodes, totals)
        if not run:
            raise RunError("evaluation: the reader gave no data")
        if not any(total.samples for total in totals):
            raise RunError(f"evaluation: the reader gave no samples in {run} minibatches")
        self.say(f"Final Results: Minibatch[1-{run}]: {_line(nodes, totals, perplexity=True)}\n")
        return totals

    def _show(
        self, nodes: Sequence[Node], totals: list[Total], shown: list[Total], first: int, last: int
    ) -> None:
        if self.trace_level > 0:
            new = [total.since(old) for total, old in zip(totals, shown, strict=True)]
            self.say(f"Minibatch[{first}-{last}]: {_line(nodes, new)}\n")


def _line(nodes: Sequence[Node], totals: Sequence[Total], *, perplexity: bool = False) -> str:
    parts = []
    for node, total in zip(nodes, totals, strict=True):
        parts.append(total.text(node.name))
        if perplexity and node.operation in PERPLEXITY:
            value = math.exp(total.average) if total.average < 700 else math.inf
            parts.append(f"perplexity = {value:.8f}")
    return "; ".join(parts)


def evaluation_nodes(network: Network, names: Sequence[str] = ()) -> list[Node]:
    """The nodes of these names, or else the network's evaluation nodes and training criteria.

    Raises:
        VariableError: a node is missing, or there are none. ShapeError: it has several elements.
    """
    if names:
        nodes = list(dict.fromkeys(network.find(name) for name in names))
        for node in nodes:
            if math.prod(node.shape or (1,)) != 1:
                raise node.error("Criterion nodes to evaluate must have dimension 1x1.", ShapeError)
        return nodes
    groups = network.groups
    nodes = list(dict.fromkeys([*groups["evaluation"], *groups["criterion"]]))
    if not nodes:
        raise VariableError("There is no default evaluation node or training criterion specified")
    return nodes
