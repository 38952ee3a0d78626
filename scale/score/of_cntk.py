"""CNTK's models as scorers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ...cntk.network.network import Network
from ...cntk.network.nodes.analysis import depth_first
from ...cntk.run.runtime import CntkNet
from ...framework.base.errors import OpscopeError, ShapeError
from .options import ScoreOptions
from .scorer import Keyed, only_one


class CntkScorer:
    """See `Scorer`; each utterance is a sequence of the minibatch, as of the action write."""

    def __init__(self, network: Network, path: str, options: ScoreOptions) -> None:
        self._net = CntkNet(network)
        known = [node.name for node in network.groups["output"]]
        chosen = options.output
        self._output = chosen if chosen in network else only_one(known, chosen, "output", path)
        below = depth_first([network.find(self._output)])
        inputs = {node.name: node for node in below if node.is_input}
        self._input = only_one(list(inputs), options.input, "input", path)
        if len(inputs) > 1:
            others = ", ".join(sorted(inputs.keys() - {self._input}))
            raise OpscopeError(f"{path}: {self._output!r} needs also {others}")
        self.input_dim = int(np.prod(inputs[self._input].shape, dtype=np.int64))
        self.rows_together = options.rows_per_batch
        self.skipped: list[tuple[str, str]] = []

    def score(self, group: Sequence[Keyed]) -> Iterable[Keyed]:
        """See `Scorer`."""
        keys, matrices = zip(*group, strict=True)
        values = self._net.eval({self._input: list(matrices)}, self._output)[self._output]
        if not isinstance(values, list) or len(values) != len(keys):
            raise ShapeError(f"{self._output!r} has no samples for each utterance")
        for key, value in zip(keys, values, strict=True):
            yield key, value.reshape(len(value), -1)
