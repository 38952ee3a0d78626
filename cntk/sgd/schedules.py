"""What changes from epoch to epoch besides learning rates: dropout, time constants of batch
normalisation.

Source: CNTK's `ComputationNetworkLib/ComputationNetwork.cpp` (SetDropoutRate,
SetBatchNormalizationTimeConstants).
"""

from __future__ import annotations

import numpy as np

from ..network.node import Node
from ..runtime import CntkNet
from .options import SgdOptions
from .report import Say, general


class Schedules:
    """Sets dropout rates and time constants of the nodes below a criterion."""

    def __init__(self, net: CntkNet, criterion: Node, options: SgdOptions, say: Say) -> None:
        self.net, self.options, self.say = net, options, say
        below = net.network.below([criterion])
        self._dropout = [node for node in below if node.operation == "Dropout"]
        self._norm = [node for node in below if node.operation == "BatchNormalization"]
        self._last = (0.0, 0.0, 0.0)

    def set(self, epoch: int) -> None:
        """Set what holds in an epoch, counted from 0."""
        options = self.options
        values = (options.dropout[epoch], options.norm_time[epoch], options.norm_blend[epoch])
        before, self._last = self._last, values
        if values == before:
            return
        rate, constant, blend = values
        if rate != before[0]:
            self.say(f"Setting dropout rate to {general(rate)}.\n")
            if rate > 0 and not self._dropout:
                self.say(
                    "WARNING: Attempting to set dropout rate, but there is no dropout node in the "
                    "network.\n"
                )
            for node in self._dropout:
                node.attributes["dropoutRate"] = rate
                self.net.scope.var(f"{node.name}@RATE").set(np.full(1, rate))
        if (constant, blend) != before[1:]:
            if constant != before[1]:
                self.say(f"Setting batch normalization time constant to {general(constant)}.\n")
            if blend != before[2]:
                self.say(f"Setting batch normalization blend time constant to {general(blend)}.\n")
            if not self._norm:
                self.say("WARNING: there is no batch normalization node.\n")
            for node in self._norm:  # what does not change stays as the network has it
                if constant != before[1]:
                    node.attributes["normalizationTimeConstant"] = constant
                if blend != before[2]:
                    node.attributes["blendTimeConstant"] = blend
            self.net.forget()  # operators hold these numbers
