"""L-BFGS over all parameters together, one step a run, without a line search.

An operator sees one gradient a run and cannot ask for the cost at another point. So this is
PyTorch's `LBFGS(max_iter=1, line_search_fn=None)`, update for update: steps of a fixed rate along
the quasi-Newton direction, the first one shortened to a length of at most `lr` in the 1-norm. It
wants the gradient of the same cost in every run: the whole data, no dropout. `max_step` keeps steps
short where the cost is not yet like a parabola.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.backend import to_host
from ...framework.base.sizes.shape import ArraySpec, Shape, ShapeArgs, count
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.calls import copying

_STATES = {
    "steps": "the latest steps s, one a row, [history, N] for N elements of all parameters",
    "changes": "the changes y of the gradient that belong to them, [history, N]",
    "products": "s y of each, [history]",
    "last_gradient": "gradient of the update before, [N]",
    "last_step": "the update before, [N]",
    "counts": "number of updates, and of the steps that were remembered, int64 [2]",
}


def lbfgs_states(
    shapes: Sequence[Shape], dtype: np.dtype, attrs: Mapping[str, Any]
) -> dict[str, ArraySpec]:
    """The states' shapes and dtypes."""
    rows = attrs["history"]
    size = sum(map(count, shapes))
    return {
        "steps": ((rows, size), dtype),
        "changes": ((rows, size), dtype),
        "products": ((rows,), dtype),
        "last_gradient": ((size,), dtype),
        "last_step": ((size,), dtype),
        "counts": ((2,), np.dtype(np.int64)),
    }


lbfgs = operator(
    "lbfgs",
    doc=(
        "L-BFGS without line search, for full-batch gradients: param_out = param + s, with"
        " s = -lr H g, where H is the inverse Hessian that follows from the latest `history` steps"
        " and changes of the gradient, g = grad_scale grad + weight_decay param, and all parameters"
        " are one vector. The first step is s = -lr min(1, 1 / |g|_1) g. A step whose product with"
        " the change of the gradient is not above `curvature` is not remembered. One rate near 1"
        " serves well-scaled problems; set `max_step` where the first steps overshoot."
    ),
    inputs=[
        Slot("param", "parameters, any shapes, float32 or float64", duplicable=True),
        Slot("grad", "their gradients, of the same shapes", duplicable=True),
        Slot("lr", "learning rate, []"),
        Slot("grad_scale", "factor of the gradients, []; absent = 1", optional=True),
        *(Slot(name, doc) for name, doc in _STATES.items()),
    ],
    outputs=[
        Slot("param_out", "the parameters after the update", duplicable=True),
        *(Slot(f"{name}_out", f"new {name}", inplace=name) for name in _STATES),
    ],
    attrs=[
        AttrSpec("history", "int", "how many steps are remembered", 10, minimum=1),
        AttrSpec(
            "max_step", "float", "longest step, by its Euclidean norm; 0 = any", 0.0, minimum=0
        ),
        AttrSpec("curvature", "float", "least product s y to remember", 1e-10, minimum=0),
        AttrSpec("weight_decay", "float", "weight decay (L2, in the gradient)", 0.0, minimum=0),
        AttrSpec(
            "lr_factors", "floats", "factors of the learning rate by parameter; none = 1 each", ()
        ),
    ],
    source="Nocedal 1980; Nocedal and Wright, algorithm 7.4; PyTorch: torch.optim.LBFGS",
    no_gradient="an update of parameters",
    state_rule=lbfgs_states,
)


@lbfgs.shape_rule
def lbfgs_shape(s: ShapeArgs) -> None:
    shapes = s.shapes("param")
    grads = s.shapes("grad")
    factors = s.attrs["lr_factors"]
    dtype = s.floats("param", "grad", *(name for name in _STATES if name != "counts"))
    if dtype.itemsize < 4:
        s.fail(f"{dtype} is too coarse for products of gradients; want float32 or float64")
    if len(shapes) != len(grads):
        s.fail(f"{len(shapes)} parameters want as many gradients, not {len(grads)}")
    if factors and len(factors) != len(shapes):
        s.fail(f"lr_factors wants one for each of {len(shapes)} parameters, not {len(factors)}")
    for one, other in zip(shapes, grads, strict=True):
        s.same_shape("param and grad", one, other)
    for scalar in ("lr", "grad_scale"):
        if s.has(scalar):
            s.rank(scalar, 0)
            s.floats(scalar)
    s.integers("counts")
    for name, (shape, _) in lbfgs_states(shapes, dtype, s.attrs).items():
        s.same_shape(name, s[name], shape)
        s.set(f"{name}_out", (shape, s.dtype(name)))
    s.set("param_out", *((shape, dtype) for shape in shapes))


@lbfgs.kernel
def lbfgs_kernel(k: KernelArgs) -> Call:
    # States are read and written in their outputs, mostly the same memory; then nothing is copied.
    copies = [copying(k.xp, k[name], k[f"{name}_out"]) for name in _STATES]
    return in_order(*copies, _Update(k).run)


class _Update:
    """The update of one run.

    Attributes:
        gradient, step: [N], of this run.
        parts: (parameter, gradient, new parameter, its part of `gradient`, its part of `step`).
    """

    def __init__(self, k: KernelArgs) -> None:
        self.k = k
        self.xp = k.xp
        self.state = {name: k[f"{name}_out"] for name in _STATES}
        gradient = self.state["last_gradient"]
        size = gradient.size
        self.dtype = gradient.dtype
        self.gradient, self.step, self.work = (k.scratch((size,), self.dtype) for _ in range(3))
        rows = self.state["products"].size
        # Numbers stay in arrays, so that the recursion waits for no product on a GPU.
        self.shares = [k.scratch((), self.dtype) for _ in range(rows)]
        self.rate, self.scale, self.number = (k.scratch((), self.dtype) for _ in range(3))
        self.parts = []
        begin = 0
        for param, grad, out in zip(
            k.list("param"), k.list("grad"), k.list("param_out"), strict=True
        ):
            views = (
                # Views: what is written to a part is in the vector.
                whole[begin : begin + param.size].reshape(param.shape)
                for whole in (self.gradient, self.step)
            )
            self.parts.append((param, grad, out, *views))
            begin += param.size
        self.factors = k.attrs["lr_factors"] or (1.0,) * len(self.parts)

    def run(self) -> None:
        xp, state = self.xp, self.state
        # Which steps are remembered is decided on the host, which on a GPU waits for two numbers.
        updates, remembered = (int(number) for number in to_host(state["counts"]))
        self.gather()
        if updates:
            remembered += self.remember(remembered)
        # The recursion works on the negative gradient, in place, and gives the direction.
        xp.negative(self.gradient, self.step)
        self.turn(remembered)
        xp.copyto(self.rate, self.k["lr"], casting="same_kind")
        if not updates:
            # Without curvature the scale of the problem is unknown: PyTorch's first step.
            xp.absolute(self.gradient, self.work)
            self.work.sum(0, None, self.number)
            xp.maximum(self.number, 1, out=self.number)
            xp.divide(self.rate, self.number, self.rate)
        xp.multiply(self.step, self.rate, self.step)
        # Before the step is stored: it must be the one that the parameters took, shortened and with
        # their factors, or it would not belong to the change of the gradient.
        self.move()
        xp.copyto(state["last_gradient"], self.gradient)
        xp.copyto(state["last_step"], self.step)
        state["counts"][0] = updates + 1
        state["counts"][1] = remembered

    def gather(self) -> None:
        """The gradients of all parameters, scaled and with weight decay, as one vector."""
        xp = self.xp
        decay = self.k.attrs["weight_decay"]
        scale = self.k.get("grad_scale")
        # The step of this run is not known yet, so its part serves as working memory.
        for param, grad, _, own, work in self.parts:
            xp.copyto(own, grad)
            if scale is not None:
                xp.copyto(self.scale, scale, casting="same_kind")
                xp.multiply(own, self.scale, own)
            if decay:
                xp.multiply(param, self.dtype.type(decay), work)
                xp.add(own, work, own)

    def remember(self, remembered: int) -> int:
        """Keep the last step and the change of the gradient; 1, or 0 where they are no use."""
        xp, state = self.xp, self.state
        xp.subtract(self.gradient, state["last_gradient"], self.work)
        xp.dot(self.work, state["last_step"], self.number)
        # Not <=: a NaN is refused, too. Steps without positive curvature would make H indefinite.
        if not float(to_host(self.number)) > self.k.attrs["curvature"]:
            return 0
        # A ring: the oldest step is written over, and nothing moves.
        row = remembered % state["products"].size
        state["steps"][row] = state["last_step"]
        state["changes"][row] = self.work
        state["products"][row] = self.number
        return 1

    def turn(self, remembered: int) -> None:
        """Multiply `step` by the inverse Hessian: the recursion of two loops."""
        xp, state, q = self.xp, self.state, self.step
        steps, changes, products = state["steps"], state["changes"], state["products"]
        # Rows of the ring from the oldest to the latest.
        rows = [row % products.size for row in range(remembered)[-products.size :]]
        for row, share in zip(reversed(rows), self.shares, strict=False):
            xp.dot(steps[row], q, share)
            xp.divide(share, products[row : row + 1].reshape(()), share)
            xp.multiply(changes[row], share, self.work)
            xp.subtract(q, self.work, q)
        if rows:
            # H begins as s y / y y of the latest step times the identity, which gives steps the
            # right length.
            newest = rows[-1]
            xp.dot(changes[newest], changes[newest], self.number)
            xp.divide(products[newest : newest + 1].reshape(()), self.number, self.number)
            xp.multiply(q, self.number, q)
        for row, share in zip(rows, reversed(self.shares[: len(rows)]), strict=True):
            xp.dot(changes[row], q, self.number)
            xp.divide(self.number, products[row : row + 1].reshape(()), self.number)
            xp.subtract(share, self.number, self.number)
            xp.multiply(steps[row], self.number, self.work)
            xp.add(q, self.work, q)

    def move(self) -> None:
        """Add the step, shortened where it is too long, to the parameters."""
        xp = self.xp
        longest = self.k.attrs["max_step"]
        for (*_, own), factor in zip(self.parts, self.factors, strict=True):
            # A factor of 0 freezes a parameter, and its part of the step is remembered as 0.
            if factor != 1:
                xp.multiply(own, self.dtype.type(factor), own)
        if longest:
            xp.dot(self.step, self.step, self.number)
            xp.sqrt(self.number, self.number)
            # The factor is longest / max(norm, longest): 1 for shorter steps, without a question to
            # the GPU.
            xp.maximum(self.number, self.dtype.type(longest), out=self.number)
            xp.divide(self.dtype.type(longest), self.number, self.number)
            xp.multiply(self.step, self.number, self.step)
        for param, _, out, _, own in self.parts:
            xp.add(param, own, out)
