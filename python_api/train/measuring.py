"""What a training measures in one pass over data: the loss, and every metric."""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, OpscopeError, VariableError, nearest
from ...framework.base.scope import Scope
from ...framework.ir.op_list import OpList
from ...framework.passes.costs import differentiable_ends, possible_costs
from ...framework.training.history import EVAL_PREFIX
from ...framework.training.metric import Metric
from .metrics import Mean, single

_OF_THE_NET = (
    "; a metric is a variable of the net, such as b.accuracy(scores, label, name='accuracy') makes,"
    " a function of some, or one of opscope.metrics"
)


def check_loss(net: OpList, loss: str) -> None:
    """Check that a net has the variable that is to be minimized.

    Raises:
        VariableError: it has not; the message names what may be meant.
    """
    names = [var.name for var in net.vars]
    if loss in names:
        return
    perhaps = possible_costs(net) or list(differentiable_ends(net))
    raise VariableError(
        f"the net has no variable {loss!r}{nearest(loss, names)}; loss= says what is minimized"
        + (f": perhaps {' or '.join(map(repr, perhaps[-3:]))}" if perhaps else "")
    )


class Measurements:
    """The loss and metrics over the minibatches of one pass.

    Args:
        loss: the variable that is minimized.
        metrics: further ones; a mean of the loss itself is left out.
        known: names of the net's variables.

    Raises:
        VariableError: a metric reads a variable that the net does not have.
        AttributeTypeError: two columns of one name.
    """

    def __init__(self, loss: str, metrics: Sequence[Metric], known: Iterable[str]) -> None:
        first = Mean(loss)
        others = [
            metric
            for metric in metrics
            if not (isinstance(metric, Mean) and metric.name == loss and metric.fetch == (loss,))
        ]
        self.loss = loss
        self.metrics = [first, *others]
        self.fetch = list(dict.fromkeys(name for m in self.metrics for name in m.fetch))
        self.columns = [column for metric in self.metrics for column in metric.columns]
        self._check(set(known))

    def _check(self, known: set[str]) -> None:
        for metric in self.metrics:
            for name in metric.fetch:
                if name not in known:
                    reads = "" if metric.name == name else f", which metric {metric.name!r} reads"
                    hint = nearest(name, known)
                    raise VariableError(
                        f"the net has no variable {name!r}{hint}{reads or _OF_THE_NET}"
                    )
        taken = ["epoch", "seconds", *(EVAL_PREFIX + column for column in self.columns)]
        for n, column in enumerate(self.columns):
            if column in self.columns[:n] or column in taken:
                raise AttributeTypeError(
                    f"metrics: the history has a column {column!r} already; give the metric another"
                    " name"
                )

    def fresh(self) -> Measurements:
        """The same measurements of another pass, which has not begun."""
        other = copy.copy(self)
        other.metrics = [metric.fresh() for metric in self.metrics]
        return other

    def reset(self) -> None:
        """Begin a pass."""
        for metric in self.metrics:
            metric.reset()

    def values(self, scope: Scope) -> dict[str, np.ndarray]:
        """The fetched variables' values in the last run, on the host.

        Raises:
            VariableError: one holds no value.
        """
        return {name: _value(scope, name) for name in self.fetch}

    def loss_of(self, values: Mapping[str, np.ndarray]) -> float:
        """The loss of a minibatch.

        Raises:
            VariableError: it holds several numbers.
        """
        return single(values[self.loss], f"{self.loss!r} holds", "a loss or metric")

    def update(self, values: Mapping[str, np.ndarray], rows: int) -> None:
        """Take up a minibatch of so many rows.

        Raises:
            VariableError: several numbers where a single one is wanted.
        """
        for metric in self.metrics:
            metric.update({name: values[name] for name in metric.fetch}, rows)

    def means(self) -> dict[str, float]:
        """Means of single variables so far, which cost nothing to know."""
        return {m.name: m.result() for m in self.metrics if isinstance(m, Mean)}

    def row(self) -> dict[str, float]:
        """The numbers of the whole pass, by column.

        Raises:
            OpscopeError: a metric's result lacks one of its keys, or has another.
        """
        row: dict[str, float] = {}
        for metric in self.metrics:
            result = metric.result()
            if not isinstance(result, Mapping):
                result = {"": result}
            if set(result) != set(metric.keys or ("",)):
                raise OpscopeError(
                    f"metric {metric.name!r} gives {', '.join(map(repr, result))}, and its keys are"
                    f" {', '.join(map(repr, metric.keys)) or 'none'}"
                )
            values = [float(result[key]) for key in metric.keys or ("",)]
            row |= dict(zip(metric.columns, values, strict=True))
        return row

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as JSON can hold it."""
        return {metric.name: _plain(metric.state()) for metric in self.metrics}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave.

        Raises:
            KeyError, TypeError, ValueError: it was of other metrics.
        """
        if set(state) != {metric.name for metric in self.metrics}:
            raise ValueError(f"metrics there: {', '.join(state)}")
        for metric in self.metrics:
            metric.restore(_restored(state[metric.name]))

    def restore_sums(self, state: Mapping[str, Any]) -> None:
        """`restore` from a checkpoint of the time when every metric was a mean."""
        rows = state["rows"]
        self.restore({name: {"sum": value, "rows": rows} for name, value in state["sums"].items()})


def _value(scope: Scope, name: str) -> np.ndarray:
    variable = scope.find(name)
    if variable is None or variable.array is None:
        raise VariableError(f"{name!r} holds no value; a loss or metric needs one")
    return variable.numpy()


_ARRAY = "array of"


def _plain(value: Any) -> Any:
    """A metric's state as JSON can hold it: arrays become their bytes."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {_ARRAY: value.dtype.str, "shape": list(value.shape), "data": data}
    return value.item() if isinstance(value, np.generic) else value


def _restored(value: Any) -> Any:
    """The inverse of `_plain`."""
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY not in value:
        return {key: _restored(item) for key, item in value.items()}
    array = np.frombuffer(base64.b64decode(value["data"]), np.dtype(value[_ARRAY]))
    return array.reshape(value["shape"]).copy()
