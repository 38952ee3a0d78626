"""A simulated link between ranks, and what an exchange over it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..base.errors import OpscopeError
from .cost import exchange_cost


@dataclass(frozen=True)
class Link:
    """What it takes to send n bytes from one rank to another: latency + n / bandwidth seconds.

    Attributes:
        latency: seconds a message. bandwidth: bytes a second.

    Source: the alpha-beta model, as in Thakur, Rabenseifner and Gropp 2005.
    """

    latency: float = 0.0
    bandwidth: float = math.inf

    def __post_init__(self) -> None:
        if not (self.latency >= 0 and self.bandwidth > 0):
            raise OpscopeError(
                "a link wants a latency of at least 0 s and a bandwidth above 0 bytes/s, not"
                f" {self.latency} and {self.bandwidth}"
            )

    def seconds(self, kind: str, nbytes: int, ranks: int) -> float:
        """The time of one exchange of `ranks` ranks; `kind` as in `Message`.

        A sum goes round a ring twice, in `ranks` pieces; `cost.py` knows other ways.
        """
        cost = exchange_cost(kind, ranks)
        return cost.messages * self.latency + cost.volume * nbytes / self.bandwidth
