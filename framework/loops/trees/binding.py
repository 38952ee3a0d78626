"""A recursive operator bound to the arrays of a frame: what forward and gradient runs share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...base.context import OpContext
from ...base.errors import OpscopeError, TreeError
from ...base.python.bounded_cache import BoundedCache
from ...base.sizes.shape import ArraySpec, Levels
from ...ir.kernel_args import KernelArgs
from ...runtime.binding import BoundSteps, frame_of
from ...runtime.plans.memory import as_view
from .bank import BoundBatch
from .description import TreeMemory, TreeNet, TreeSpecs, tree_net
from .forest import ForestSchedule, make_forest_schedule

_SCHEDULES: BoundedCache[tuple, ForestSchedule] = BoundedCache(16)


class TreeBinding:
    """The tree net of an operator, its links and its shapes.

    Attributes:
        k: the operator's arrays and attributes. frame: the frame of the net around.
        tree, memories: the tree net and its memories.
        nodes, trees: how many there are. offsets: of the trees in the rows of nodes.
        specs: shapes and dtypes inside. links: shapes and dtypes of the in-links, with -1 rows.
    """

    def __init__(self, k: KernelArgs) -> None:
        self.k = k
        self.tree: TreeNet = tree_net(k.attrs["net"])
        self.memories: list[TreeMemory] = self.tree.memories
        self.frame: BoundSteps = frame_of(k)
        self.xp: Any = k.xp
        shared = (k.op.type, "scratch", str(self.frame.place))
        self._blocks: list[Any] = self.frame.scope.bound.setdefault(shared, [])
        self._used = 0
        names = k.op.inputs
        self.nodes: int = k.shape("parent")[0]
        self.offsets: Levels = self.frame.offsets(names["parent"][0])
        self.trees = len(self.offsets[0]) - 1 if self.offsets else 0
        specs = [
            [self.frame.plan.specs[name] for name in names.get(slot, ())]
            for slot in ("x", "static", "boot")
        ]
        self.specs: TreeSpecs = self.tree.infer(*specs)
        self.links: dict[str, ArraySpec] = {
            name: ((-1, *shape[1:]), dtype)
            for name, (shape, dtype) in zip(self.tree.inputs, specs[0], strict=True)
        }

    def scratch(self, rows: int, spec: ArraySpec) -> Any:
        """Memory for `rows` rows as `spec` describes them.

        Its contents last for one call. All operators of this type in the scope share it, from frame
        to frame: trees are new in every minibatch, and fresh memory costs more than filling it.
        """
        shape = (rows, *spec[0][1:])
        dtype = spec[1]
        size = math.prod(shape) * dtype.itemsize
        if self._used == len(self._blocks):
            self._blocks.append(self.xp.empty(0, np.uint8))
        if self._blocks[self._used].nbytes < size:
            # A quarter more: the next minibatch of trees is rarely smaller in everything.
            self._blocks[self._used] = self.xp.empty(size + size // 4, np.uint8)
        block = self._blocks[self._used]
        self._used += 1
        return as_view(block, (shape, dtype))

    def context(self, live_out: frozenset[str]) -> OpContext:
        """The context that inner nets are bound in; `live_out`: variables read after their runs."""
        return OpContext(self.frame.place, train=self.k.train, live_out=live_out)

    def initial_rows(self, number: int) -> int:
        """Rows that the initial state of memory `number` takes."""
        return 1 if self.specs.shared_boot[number] else self.trees

    def run(self, batch: BoundBatch, title: str) -> None:
        """Run a bound inner net; `title` names it in errors."""
        try:
            batch.frame.run(self.frame.state.context)
        except OpscopeError as error:
            raise self.tree.inside(error, title) from error


def schedule_of(b: TreeBinding) -> ForestSchedule:
    """The schedule of the trees that the operator's inputs hold now.

    Raises:
        TreeError: the inputs describe no trees.
    """
    parents = b.k.host("parent")
    position = None if b.k.get("position") is None else b.k.host("position")
    offsets = b.offsets[0] if b.offsets else None
    key = (
        b.tree.arity,
        # By contents: equal trees share one schedule, wherever their arrays are.
        parents.astype(np.int64).tobytes(),
        None if offsets is None else offsets.tobytes(),
        None if position is None else position.astype(np.int64).tobytes(),
    )
    forest = _SCHEDULES.get(key)
    if forest is None:
        try:
            forest = make_forest_schedule(parents, offsets, arity=b.tree.arity, positions=position)
        except TreeError as error:
            raise TreeError(b.k.describe(f"{b.tree.title}: {error}")) from None
        _SCHEDULES.add(key, forest)
    return forest
