"""Gradients compared with differences of the criterion, as `gradientcheck` asks.

Source: CNTK's `SGDLib/SGD.cpp` (GradientCheck).
"""

from __future__ import annotations

import math

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.errors import GradientError
from ...framework.ir.names import rows_name
from ..network.nodes import rules
from ..network.nodes.node import Node
from ..readers.base.pack import Minibatch
from ..run.runtime import CntkNet
from .report import Say

_STEP = 1e-5
_TRIES = 50


class GradientCheck:
    """Checks up to 50 elements of every parameter.

    Args:
        digits: how many digits have to agree.
    """

    def __init__(
        self, net: CntkNet, criterion: Node, parameters: list[Node], digits: float, say: Say
    ) -> None:
        self.net = net
        self.criterion = criterion
        self.parameters = parameters
        self.digits = int(digits)
        self.say = say
        self._random = np.random.default_rng(0)

    def __call__(self, minibatch: Minibatch) -> None:
        """Check the gradients of a minibatch; parameters stay as they are.

        Raises:
            GradientError: gradients and differences do not agree.
        """
        bound = self.net.bound_net([self.criterion], self.criterion)
        drawn = self._drawn()
        bound.run(minibatch, OpContext(train=True))
        wrong = []
        for node in self.parameters:
            name = bound.gradients.get(node.name)
            if name is None or self.net.scope.find(rows_name(name)) is not None:
                continue  # gradients of sparse inputs are not checked
            gradient = self.net.scope.numpy(name).reshape(-1).copy()
            rows, columns = rules.matrix(node)
            for _ in range(min(_TRIES, rows * columns)):
                row, column = (int(self._random.integers(n)) for n in (rows, columns))
                place = row + column * rows
                self.say(f"\n###### d{node.name}######\n")
                slope = self._slope(minibatch, node, place, drawn)
                if not _agree(gradient[place], slope, self.digits):
                    wrong.append(
                        f"d{node.name} Numeric gradient = {slope:e}, Error BP gradient = "
                        f"{gradient[place]:e}"
                    )
                    self.say(f"\n{wrong[-1]}\n")
        if wrong:
            raise GradientError(f"cannot pass gradient checker: {'; '.join(wrong[:5])}")

    def _drawn(self) -> dict[str, np.ndarray]:
        """How far the generators of nodes are: each run has to draw the same numbers."""
        names = (f"{name}@DRAWN" for name in self.net.network.nodes)
        return {
            name: self.net.scope.numpy(name).copy() for name in names if self.net.scope.find(name)
        }

    def _slope(
        self, minibatch: Minibatch, node: Node, place: int, drawn: dict[str, np.ndarray]
    ) -> float:
        """The difference quotient for one element of a parameter, in CNTK's order of elements."""
        saved = self.net.scope.numpy(node.name).copy()
        bound = self.net.bound_net([self.criterion])
        losses = []
        for step in (_STEP, -_STEP):
            moved = saved.copy()
            moved.reshape(-1)[place] += step
            self.net.scope.var(node.name).set(moved)
            for name, position in drawn.items():
                self.net.scope.var(name).set(position)
            bound.run(minibatch, OpContext(train=True))
            losses.append(float(bound.value(self.criterion).data.sum()))
        self.net.scope.var(node.name).set(saved)
        return (losses[0] - losses[1]) / (2 * _STEP)


def _agree(first: float, second: float, digits: int) -> bool:
    smaller = min(abs(first), abs(second))
    exponent = math.ceil(math.log10(smaller)) if smaller > 0 else 0
    return abs(first - second) <= 10.0 ** (max(exponent, 0) - digits)
