"""Ranks that train apart and bring their parameters together after each block of samples.

Source: CNTK's `SGDLib/MASGD.h`; momentum of blocks: Chen and Huo 2016.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.scope import Scope
from ...framework.ir.desc import INPUT, OPTIMIZE, PARAMETER, STATE, make_op, make_var
from ...framework.ir.op_list import OpList
from ...framework.runtime.plain_net import PlainNet
from .options import BLOCKS
from .ranks import Ranks

_WEIGHT = "ranks@SAMPLES"
_FIRST_SHOWN = 5  # averages of an epoch that are reported in any case


class Blocks:
    """The blocks of an epoch.

    A rank that comes to the end of its data says so where the others have the end of a block; from
    then on they train to the end of theirs, where all parameters come together a last time.

    Args:
        ranks: that train.
        scope: of the network.
        shapes: of the parameters that learn, by name.
        dtype: of the network.
        reset: called after each block, where the learner's momentum is to begin again.
        say: takes the lines of the log.
    """

    def __init__(
        self,
        ranks: Ranks,
        scope: Scope,
        shapes: Mapping[str, tuple[int, ...]],
        dtype: np.dtype,
        reset: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._ranks = ranks
        self._scope = scope
        self._say = say
        self._with_momentum = ranks.options.method == BLOCKS
        self._reset = reset if self._with_momentum and ranks.options.reset_momentum else None
        self._own = max(ranks.options.block_of(ranks.count) // ranks.count, 1)
        self._net = PlainNet(self._op_list(shapes, dtype), check=False)
        self._since = self._done = 0
        self._apart = False
        self._began = time.perf_counter()
        scope.var(_WEIGHT).set(np.zeros(()))
        if self._with_momentum:
            self._begin(shapes, dtype)

    def _begin(self, shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype) -> None:
        """The model that the first block begins with, and no change before it; later epochs go on
        from the last one's change."""
        for name, shape in shapes.items():
            model, change = block_states(name)
            self._scope.var(model).set(self._scope.numpy(name).copy())
            if self._scope.find(change) is None:
                self._scope.var(change).set(np.zeros(shape, dtype))

    def _op_list(self, shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype) -> OpList:
        net = OpList()
        options = self._ranks.options
        names = list(shapes)
        for name, shape in shapes.items():
            net.vars.append(make_var(name, shape, dtype, PARAMETER))
        if not self._with_momentum:
            net.vars.append(make_var(_WEIGHT, (), np.float64, INPUT))
            reads = {"param": names, "weight": _WEIGHT}
            net.ops.append(
                make_op("average_parameters", reads, {"param_out": names}, role=OPTIMIZE)
            )
            return net
        models, changes = zip(*map(block_states, names), strict=True)
        for name, shape in shapes.items():
            for state in block_states(name):
                net.vars.append(make_var(state, shape, dtype, STATE))
        momentum = options.momentum_of(self._ranks.count)
        # CNTK's learning rate of blocks is for the sum of the ranks' changes.
        rate = (1 - momentum) * options.block_rate * self._ranks.count
        net.ops.append(
            make_op(
                "block_momentum",
                {"param": names, "model": models, "delta": changes},
                {"param_out": names, "model_out": models, "delta_out": changes},
                {"momentum": momentum, "rate": rate, "nesterov": options.nesterov},
                role=OPTIMIZE,
            )
        )
        return net

    def step(self, samples: int) -> None:
        """Called after each minibatch with its samples."""
        self._since += samples
        if self._since < self._own or self._apart:
            return
        if self._ranks.any_ended(False):
            self._apart = True
        else:
            self._come_together()

    def finish(self) -> None:
        """Called at the end of this rank's data."""
        if not self._apart:
            self._ranks.any_ended(True)
        self._come_together()

    def _come_together(self) -> None:
        began = time.perf_counter()
        self._scope.var(_WEIGHT).set(np.array(float(self._since)))
        context = OpContext(train=True, communicator=self._ranks.communicator)
        self._net.run(self._scope, context)
        if self._reset is not None:
            self._reset()
        self._done += 1
        self._tell(time.perf_counter() - began)
        self._since = 0

    def _tell(self, seconds: float) -> None:
        every = self._ranks.options.stats_every
        if every <= 0 or (self._done % every and self._done > _FIRST_SHOWN):
            return
        now = time.perf_counter()
        self._say(
            f"\t\t(model aggregation stats) {self._done}-th sync: {now - self._began:8.2f} seconds "
            f"since last report ({seconds:.2f} seconds on comm.); {self._since} samples processed "
            "by me;\n"
        )
        self._began = now


def block_states(name: str) -> tuple[str, str]:
    """The variables of a parameter's last model and of its last change."""
    return f"{name}@BLOCK_MODEL", f"{name}@BLOCK_CHANGE"
