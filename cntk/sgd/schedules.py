"""Settings that change from epoch to epoch: dropout, seeds, time constants of batch normalization.

Source: CNTK's `ComputationNetworkLib/ComputationNetwork.cpp` (SetDropoutRate, SetIRngUserSeed,
SetBatchNormalizationTimeConstants).
"""

from __future__ import annotations

import numpy as np

from ..network.nodes.analysis import evaluation_order
from ..network.nodes.node import Node
from ..run.runtime import CntkNet
from .options import SgdOptions
from .report import Say, general

_STATES = {  # attributes that operators read from a variable
    "dropoutRate": "RATE",
    "normalizationTimeConstant": "TIME",
    "blendTimeConstant": "BLEND",
    "samplesSeen": "SEEN",
}


def set_attribute(net: CntkNet, node: Node, name: str, value: float) -> None:
    """Set an attribute of a node, also for the nets that are bound already."""
    node.attributes[name] = value
    net.scope.var(f"{node.name}@{_STATES[name]}").set(np.full(1, float(value)))


class Schedules:
    """Sets dropout rates and time constants of the nodes below a criterion."""

    def __init__(self, net: CntkNet, criterion: Node, options: SgdOptions, say: Say) -> None:
        self.net = net
        self.options = options
        self.say = say
        below = net.network.below([criterion])
        self._dropout = [node for node in below if node.operation == "Dropout"]
        self._norm = [node for node in below if node.operation == "BatchNormalization"]
        loops = [loop for loop in net.network.loops if loop.source in set(below)]
        order = evaluation_order([criterion], loops)
        self._random = [node for node in order if "rngSeed" in node.kind.attributes]
        self._rate = self._time = self._blend = 0.0
        self._sequence = []
        if criterion.operation == "SequenceWithSoftmax":
            self._sequence = [node for node in below if node.operation == criterion.operation]
            for node in self._sequence:
                node.attributes.update(options.sequence)
            net.forget()  # operators hold these numbers

    def set(self, epoch: int, seed: int | None = None) -> None:
        """Set the values of an epoch, counted from 0. Unscheduled values stay as in the network.

        Args:
            seed: number that the seeds of nodes which draw follow from; None: the epoch's.
        """
        options = self.options
        if self._sequence:
            self._log_sequence()
        self._seed(epoch if seed is None else seed)
        rate = options.dropout[epoch]
        time, blend = options.norm_time[epoch], options.norm_blend[epoch]
        if rate != self._rate:
            self.say(f"Setting dropout rate to {general(rate)}.\n")
            if rate > 0 and not self._dropout:
                self.say(
                    "WARNING: Attempting to set dropout rate, but there is no dropout node in the "
                    "network.\n"
                )
            self._set(self._dropout, "dropoutRate", rate)
        if time != self._time:
            self.say(f"Setting batch normalization time constant to {general(time)}.\n")
            self._set_norm("normalizationTimeConstant", time)
        if blend != self._blend:
            self.say(f"Setting batch normalization blend time constant to {general(blend)}.\n")
            self._set_norm("blendTimeConstant", blend)
        self._rate = rate
        self._time = time
        self._blend = blend

    def _seed(self, base: int) -> None:
        """Give each node that draws a seed of its own."""
        for number, node in enumerate(self._random, base * len(self._random)):
            node.attributes.update(rngSeed=number, rngOffset=0)
            for part, value in (("SEED", number), ("DRAWN", 0)):
                self.net.scope.var(f"{node.name}@{part}").set(np.full(1, value, np.int64))

    def _log_sequence(self) -> None:
        of = self._sequence[0].attributes
        self.say(
            f"Setting Hsmoothing weight to {general(of['hSmoothingWeight'])} and frame-dropping"
            f" threshhold to {general(of['frameDropThresh'])}\n"
            "Setting SeqGammar-related parameters:"
            f" amf={of['seqGammarAMF']:.2f}, lmf={of['seqGammarLMF']:.2f},"
            f" wp={of['seqGammarWordPen']:.2f}, bMMIFactor={of['seqGammarBMMIFactor']:.2f},"
            f" usesMBR={str(of['seqGammarUsesMBR']).lower()}\n"
        )
        self._sequence = []  # once

    def _set_norm(self, name: str, value: float) -> None:
        if not self._norm:
            self.say("WARNING: there is no batch normalization node.\n")
        self._set(self._norm, name, value)

    def _set(self, nodes: list[Node], name: str, value: float) -> None:
        for node in nodes:
            set_attribute(self.net, node, name, value)
