"""Gradients of nets that run an inner net: what they find of the forward run; dense gradients."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.errors import GradientError
from ..base.sizes.shape import OperatorView
from ..ir.desc import BACKWARD, make_op
from ..ir.gradient_args import GradientArgs
from ..ir.names import DENSE_OP, EMPTY, rows_name
from ..ir.op_list import OpNode
from ..ir.operation import Operator
from ..runtime.plans.plan import Plan


@dataclass(frozen=True)
class Saving:
    """Who needs what a forward run saves.

    Attributes:
        steps: the variable in the operator's slot `steps`.
        readers: gradient operators of the same plan that read it.
        everything: whether it outlives the plan: what reads it then is not known here.
    """

    steps: str
    readers: tuple[Operator, ...]
    everything: bool

    @property
    def wanted(self) -> bool:
        """Whether anything is to be saved."""
        return bool(self.readers) or self.everything


def saving_of(op: OperatorView, plan: Plan) -> Saving:
    """Who needs what a forward operator saves, in the plan that it runs in."""
    (steps,) = op.outputs.get("steps", (EMPTY,))
    if steps == EMPTY:
        return Saving(steps, (), False)
    readers = tuple(reader for reader in plan.operators if steps in reader.input_vars())
    return Saving(steps, readers, steps in plan.live_out)


def require_steps(g: GradientArgs, title: str, finds: str) -> None:
    """Refuse to differentiate a forward operator that saves nothing.

    Args:
        title: of its net. finds: what the gradient would find in the slot, for the message.

    Raises:
        GradientError: the operator has no variable in the slot `steps`.
    """
    if not g.outputs("steps"):
        raise GradientError(
            f"{title}: its operator has no variable in the slot 'steps', where the gradient finds"
            f" {finds}"
        )


def dense_gradient(name: str, gradient: str, out: str) -> OpNode:
    """The operator that makes a dense gradient `out` of one that holds some rows of `name`."""
    inputs = {"x": gradient, "rows": rows_name(gradient), "like": name}
    return make_op(DENSE_OP, inputs, {"out": out}, role=BACKWARD)
