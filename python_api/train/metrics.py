"""What `train` reports beside the loss: variables, functions, metrics with states of their own.

    metrics=["accuracy", top5, Measure(f1_score, [label, guess], whole=True), Precision(...)]

A `Metric` reads the values of some variables after each minibatch and gives its number, or several,
at the end of the epoch. What is measured on held-out data is measured by a copy of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, OpscopeError, VariableError
from ...framework.training.metric import Metric
from ..builder.var import Var


class Mean(Metric):
    """The mean of a variable that holds a single number, over minibatches by their rows."""

    def __init__(self, variable: Var | str, name: str = "") -> None:
        super().__init__(name or str(variable), [variable])
        self.reset()

    def reset(self) -> None:
        self._sum = 0.0
        self._rows = 0

    def update(self, values: Mapping[str, np.ndarray], rows: int) -> None:
        (variable,) = self.fetch
        self._sum += single(values[variable], f"{variable!r} holds", "a loss or metric") * rows
        self._rows += rows

    def result(self) -> float:
        return self._sum / max(self._rows, 1)

    def state(self) -> dict[str, Any]:
        return {"sum": self._sum, "rows": self._rows}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._sum = float(state["sum"])
        self._rows = int(state["rows"])


class Measure(Metric):
    """A function of arrays as a metric.

    Args:
        function: gets the values of `fetch` as NumPy arrays, in this order; returns a number.
        fetch: variables; None: those that the function's parameters are named after.
        name: column of the history; "": the function's name.
        whole: False: the function is called with each minibatch, and its results are averaged by
            rows. True: it is called once, with the arrays of all minibatches joined along their
            first axis. What is no mean over rows (F1, AUC, a median) wants True.

    Raises:
        AttributeTypeError: the function's parameters do not say what it reads.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        fetch: Sequence[Var | str] | None = None,
        name: str = "",
        *,
        whole: bool = False,
    ) -> None:
        if not callable(function):
            raise AttributeTypeError(f"Measure: want a function, not {function!r}")
        name = name or getattr(function, "__name__", type(function).__name__)
        if isinstance(fetch, (str, Var)):
            fetch = [fetch]
        super().__init__(name, parameter_names(function, name) if fetch is None else fetch)
        self.function = function
        self.whole = whole
        self.reset()

    def fresh(self) -> Measure:
        return Measure(self.function, self.fetch, self.name, whole=self.whole)

    def reset(self) -> None:
        self._sum = 0.0
        self._rows = 0
        self._arrays: list[list[np.ndarray]] = [[] for _ in self.fetch]

    def update(self, values: Mapping[str, np.ndarray], rows: int) -> None:
        arrays = [values[variable] for variable in self.fetch]
        if self.whole:
            for kept, array in zip(self._arrays, arrays, strict=True):
                kept.append(np.array(array))
        else:
            self._sum += self._call(arrays) * rows
        self._rows += rows

    def result(self) -> float:
        if self.whole:
            return self._call([np.concatenate(kept) for kept in self._arrays])
        return self._sum / max(self._rows, 1)

    def _call(self, arrays: Sequence[np.ndarray]) -> float:
        try:
            value = self.function(*arrays)
        except Exception as error:
            raise OpscopeError(
                f"metric {self.name!r}: {type(error).__name__} in its function: {error}"
            ) from error
        return single(value, f"metric {self.name!r}: its function returned", "a metric")

    def state(self) -> dict[str, Any]:
        joined = {str(n): np.concatenate(kept) for n, kept in enumerate(self._arrays) if kept}
        return {"sum": self._sum, "rows": self._rows, "arrays": joined}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._sum = float(state["sum"])
        self._rows = int(state["rows"])
        held = state["arrays"]
        self._arrays = [[held[str(n)]] if str(n) in held else [] for n in range(len(self.fetch))]


def parameter_names(function: Callable[..., Any], name: str) -> list[str]:
    """The names of a function's parameters that have no default.

    Raises:
        AttributeTypeError: it has none, or takes any number.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in positional and p.default is p.empty]
    if not names:
        raise AttributeTypeError(
            f"metric {name!r}: its parameters do not name the variables that it reads; write"
            " Measure(function, [variable, ...])"
        )
    return names


def as_metrics(metrics: Any) -> list[Metric]:
    """What `train` takes as `metrics`, as a list of Metrics.

    Args:
        metrics: variables, functions and Metrics: a sequence, a single one, or a mapping from
            columns of the history to variables and functions.

    Raises:
        AttributeTypeError: something else, or the same column twice.
    """
    if isinstance(metrics, Mapping):
        checked = [_as_metric(metric, str(name)) for name, metric in metrics.items()]
    else:
        if isinstance(metrics, (str, Var, Metric)) or callable(metrics):
            metrics = [metrics]
        if not isinstance(metrics, Iterable):
            raise AttributeTypeError(f"metrics: want a sequence or a mapping, not {metrics!r}")
        checked = [_as_metric(metric) for metric in metrics]
    names = [metric.name for metric in checked]
    twice = next((name for n, name in enumerate(names) if name in names[:n]), None)
    if twice is not None:
        raise AttributeTypeError(
            f"metrics: two of them are called {twice!r}; give one another name, as in"
            ' metrics={"name": function}'
        )
    return checked


def _as_metric(given: Any, name: str = "") -> Metric:
    if isinstance(given, Metric):
        if name not in ("", given.name):
            raise AttributeTypeError(
                f"metrics: {name!r} is a Metric that names itself {given.name!r}"
            )
        return given
    if isinstance(given, (str, Var)):
        return Mean(given, name)
    if callable(given) and not isinstance(given, type):
        return Measure(given, name=name)
    raise AttributeTypeError(
        f"metrics: want variables, functions and Metrics, not {given!r}"
        + (" (a class: make an object of it)" if isinstance(given, type) else "")
    )


def single(value: Any, what: str, wanted: str) -> float:
    """The only number in an array.

    Raises:
        VariableError: it holds none or several; the message begins with `what`.
    """
    array = np.asarray(value)
    if array.size == 1:
        try:
            return float(array.item())
        except (TypeError, ValueError):
            raise VariableError(f"{what} {value!r}; {wanted} is a number") from None
    raise VariableError(f"{what} an array of shape {array.shape}; {wanted} is a single number")


__all__ = ["Mean", "Measure", "as_metrics"]
