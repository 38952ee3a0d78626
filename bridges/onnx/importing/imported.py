"""A model that was read from elsewhere: nets for the signatures of its inputs, or one for all."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ....framework.base.errors import OpscopeError, ShapeError, VariableError, nearest
from ....framework.base.python.cached import new_lock
from ....framework.base.scope import Scope
from ....framework.base.untrusted.values import stem_of
from ....framework.files.saved import save
from ....framework.ir.op_list import OpList
from .engine import Body, Engine
from .graph import InputInfo, Model
from .loop_budget import LoopBudget
from .stage import Stage
from .whole import Given, Variants, two_shapes, whole_net


class ImportedModel:
    """A model that runs here.

    Attributes:
        path: of the file, or what errors call the model.
        inputs, outputs: names, dtypes and shapes, as declared.

    Args:
        model: its graph. trained, states: see `Store`.
    """

    def __init__(
        self,
        model: Model,
        trained: Collection[str] | None = None,
        states: Collection[str] = (),
    ) -> None:
        self._model = model
        self.path = model.path
        self.inputs = model.inputs
        self.outputs = model.outputs
        self._engine = Engine(model.path, model.arrays, trained, states)
        graph = model.graph
        self._body = Body(self._engine, graph.nodes, graph.outputs, may_promote=True)
        values = zip(graph.inputs, model.inputs, strict=True)
        self._inputs = {info.name: (value, info) for value, info in values}
        self._outputs = [info.name for info in model.outputs]
        self._lock = new_lock()

    @property
    def scope(self) -> Scope:
        """What holds the parameters."""
        return self._engine.scope

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """Copies of the parameters by name."""
        engine = self._engine
        names = [name for name in engine.parameters if name not in engine.states]
        return {name: engine.current(name).copy() for name in names}

    def run(self, feed: Mapping[str, Any], fetch: Sequence[str] | None = None) -> dict[str, Any]:
        """Run the model.

        Args:
            feed: input name -> array (a list of arrays for a sequence). Floats of another width
                are converted.
            fetch: names of outputs; None: all.

        Returns:
            Output name -> array; a list for a sequence, None for an optional that is empty.

        Raises:
            VariableError: unknown or missing names.
            ShapeError: an array of another dtype or shape than declared.
            RunError: a node failed, or does not support a dtype.
        """
        if fetch is not None:
            for name in fetch:
                if name not in self._outputs:
                    hint = nearest(name, self._outputs)
                    raise VariableError(f"{self.path}: the model has no output {name!r}{hint}")
        outputs = dict(zip(self._outputs, self._ran(self._body, feed), strict=True))
        return outputs if fetch is None else {name: outputs[name] for name in fetch}

    def values(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all nodes of the outer graph by name, outputs among them.

        Raises:
            OpscopeError: as `run`.
        """
        nodes = self._model.graph.nodes
        written = [name for node in nodes for name in node.outputs if name]
        names = list(dict.fromkeys([*written, *self._model.graph.outputs]))
        body = Body(self._engine, nodes, names, may_promote=True)
        values = dict(zip(names, self._ran(body, feed), strict=True))
        outputs = zip(self.outputs, self._model.graph.outputs, strict=True)
        return values | {info.name: values[name] for info, name in outputs}

    def op_list(self, inputs: Given | None = None) -> OpList:
        """The model as one net, to be trained, edited and saved.

        Its parameters and constants lie in `scope`, so that
        `NetBuilder.from_desc(model.op_list())` continues from it with `model.scope`.

        Args:
            inputs: input -> shape, where -1 or a name is a size that may vary from run to run:
                ("N", 3, "H", "W"), "N" being any size; or an array, which the input then always is
                (a rate, a number of steps). None, and inputs that are left out: the shape that the
                model declares.

        Raises:
            ShapeError: a shape is missing; nodes depend on data (all of them are named); a size
                cannot vary.
        """
        given = dict(inputs or {})
        known = [info.name for info in self.inputs]
        for name in given:
            if name not in known:
                raise VariableError(
                    f"{self.path}: the model has no input {name!r}{nearest(name, known)}"
                )
        name = stem_of(self.path)
        failed: OpscopeError | None = None
        with self._lock:
            for variants in self._variants(given):
                try:
                    return whole_net(self._model, self._engine, given, name, variants)
                except OpscopeError as error:
                    failed = failed or error
        assert failed is not None
        raise failed

    def _variants(self, given: Given) -> Sequence[Variants]:
        """Shapes of the inputs for sizes that may vary, to be tried in turn."""
        return two_shapes(self._model, given)

    def save(self, path: str | os.PathLike[str], inputs: Given | None = None) -> None:
        """Save the model as a net of opscope, for `opscope.load`; see `op_list` for `inputs`.

        Raises:
            ShapeError: as `op_list`. SaveError: it cannot be written.
        """
        save(self.op_list(inputs), self.scope, path)

    def is_one_net(self, feed: Mapping[str, Any]) -> bool:
        """Whether these inputs are computed by one net, with nothing on the host."""
        stages: list[Stage] = []
        self._ran(self._body, feed, stages.append)
        return len(stages) == 1 and not stages[0].host

    def _ran(
        self,
        body: Body,
        feed: Mapping[str, Any],
        watch: Callable[[Stage], None] | None = None,
    ) -> list[Any]:
        """The outputs of a body of the outer graph."""
        env = self._fed(feed)
        with self._lock:
            self._engine.loops = LoopBudget(tuple(env.values()))
            try:
                return body.run(env, watch)
            finally:
                self._engine.loops = LoopBudget()  # lets go of what loops were fed

    def _fed(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        if feed.keys() != self._inputs.keys():
            self._check_names(feed)
        return {
            value: _checked(feed.get(name), info, self.path)
            for name, (value, info) in self._inputs.items()
        }

    def _check_names(self, feed: Mapping[str, Any]) -> None:
        known = self._inputs
        for name in feed:
            if name not in known:
                raise VariableError(
                    f"{self.path}: the model has no input {name!r}{nearest(name, known)};"
                    f" it has {', '.join(known)}"
                )
        missing = [
            name
            for name, (_, info) in known.items()
            if name not in feed and info.kind != "optional"
        ]
        if missing:
            raise VariableError(f"{self.path}: no value of the inputs {', '.join(missing)}")


def _checked(value: Any, info: InputInfo, path: str) -> Any:
    """An input as an array of the declared dtype and shape."""
    if info.kind != "tensor":
        return value
    if type(value) is np.ndarray and value.shape == info.shape and value.dtype is info.dtype:
        return value
    array = np.asarray(value)
    if array.dtype.kind in "US":
        array = array.astype(object)
    what = f"{path}: input {info.name!r}"
    if info.dtype is not None and array.dtype != info.dtype:
        if array.dtype.kind in "fiub" and info.dtype.kind == array.dtype.kind == "f":
            array = array.astype(info.dtype)
        elif isinstance(value, np.ndarray) or array.dtype.kind not in "fiub":
            raise ShapeError(f"{what} wants {info.dtype}, not {array.dtype}")
        else:
            array = array.astype(info.dtype)
    if info.shape is not None:
        bad = len(info.shape) != array.ndim or any(
            isinstance(dim, int) and dim > 0 and dim != size
            for dim, size in zip(info.shape, array.shape, strict=True)
        )
        if bad:
            shown = ", ".join("?" if dim is None else str(dim) for dim in info.shape)
            raise ShapeError(f"{what} is [{shown}]; fed was {list(array.shape)}")
    return array
