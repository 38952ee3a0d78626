"""Steps of a decoder that was read from elsewhere, with its caches as inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...bridges.onnx.importing.imported import ImportedModel
from ...framework.base.context import OpContext
from ...framework.base.errors import OpscopeError, ShapeError, VariableError
from ...framework.base.scope import Scope
from ...framework.ir.desc import INPUT, STATE, make_op, make_var
from ...framework.ir.op_list import OpList, OpNode
from ...framework.passes.prune import prune
from ...framework.runtime.plain_net import PlainNet
from .cached_onnx import BRANCH, IDS, MASK, PLACES, POSITIONS, SCORES
from .stepping import Read, checked_scores

if TYPE_CHECKING:
    from ...bridges.onnx.importing.graph import InputInfo
    from ...bridges.torch.importing.program import TorchProgram

_BLOCK = 64
"""Caches grow, and are given, by so many rows: few shapes serve all lengths."""
_PROBE = ([0, 1, 0], 1)
"""Tokens that every model knows: read with a cache and without, they must give the same."""
_ENCODER = ".encoder."
"""In the names of keys and values of an encoder's memory, which the first tokens compute once."""
_NEAR = 1e-3
_LENGTH = "past.length"


class ImportedStepper:
    """Runs a decoder that takes keys and values of earlier tokens, and gives them with its own.

    The names are the same as in Hugging Face's exports, see cached_onnx.py; `ids` and `scores` may
    have others. There are three ways, of which the first is taken that gives for a few tokens what
    the model computes of them at once:

    - a single token is computed by the model's net, changed so that it appends to the caches in
      place; the mask says which of their rows hold something;
    - the model runs as it is, with caches that end in rows which the mask leaves out;
    - it is given just the rows that there are: shapes are new in each step, and all sequences are
      equally long.

    A merged decoder, as Hugging Face's Optimum writes it, has a branch for the first tokens and one
    that reads caches; the stepper says which. Keys and values of an encoder's memory are what the
    first of these gives.

    Args:
        model: with inputs `past...` and outputs `present...`, in the same order.

    Raises:
        OpscopeError: it has none.
    """

    def __init__(self, model: ImportedModel, *, ids: str = IDS, scores: str = SCORES) -> None:
        self.model = model
        self.ids = ids
        self.scores = scores
        inputs = {info.name: info for info in model.inputs}
        outputs = [info.name for info in model.outputs]
        past = [name for name in inputs if name.startswith("past")]
        present = [name for name in outputs if name.startswith("present")]
        for name, there in ((ids, inputs), (scores, outputs)):
            if name not in there:
                raise VariableError(f"{model.path}: wants {name!r}, and has {', '.join(there)}")
        if not past or len(past) != len(present):
            raise OpscopeError(
                f"{model.path}: {len(past)} inputs past... and {len(present)} outputs present...:"
                " want caches as inputs and outputs"
            )
        self._shapes: dict[str, tuple[int, int]] = {}
        self._dtypes = {name: inputs[name].dtype for name in past}
        for name in past:
            shape = inputs[name].shape or ()
            if len(shape) != 4 or not (isinstance(shape[1], int) and isinstance(shape[3], int)):
                raise ShapeError(
                    f"{model.path}: {name!r} wants [N, heads, rows, width], heads and width known"
                )
            self._shapes[name] = shape[1], shape[3]
        self._says = [name for name in (MASK, POSITIONS, PLACES) if name in inputs]
        self._merged = {n: (1,) * len(inputs[n].shape or ()) for n in (BRANCH,) if n in inputs}
        self._caches = dict(zip(past, present, strict=True))
        self._of_encoder = {
            name: self._caches.pop(name) for name in past if self._merged and _ENCODER in name
        }
        own = {ids, BRANCH, *past, *self._says}
        self._others = {
            name: info
            for name, info in inputs.items()
            if name not in own and info.kind != "optional"
        }
        self._held: dict[str, np.ndarray] = {}
        self._memory: dict[str, np.ndarray] = {}
        self._feed: dict[str, Any] = {}
        self._past = np.zeros(0, np.int64)
        self._ways: list[str] = ["exact"]
        if MASK in self._says and PLACES not in self._says:
            self._ways = ["in place", "masked", "exact"]
        self._proven = False
        self._reads_on = not self._merged  # whether several tokens may follow what caches hold
        self._step: tuple[Any, Callable[[np.ndarray], np.ndarray]] | None = None
        self.turn = 0

    def start(self, sequences: int, feed: Mapping[str, Any] | None = None) -> None:
        """See `Stepper.start`; `feed` goes to every run."""
        self.turn += 1
        given = self._checked_feed(feed or {}, sequences)
        if not self._proven:
            first = {n: a[:1] if self._has_rows(n, a, sequences) else a for n, a in given.items()}
            self._prove(first)
        self._begin(sequences, given)

    def _has_rows(self, name: str, array: np.ndarray, sequences: int) -> bool:
        """Whether an input that is fed has a row for each sequence.

        Where the model leaves the rank open, the array says it.
        """
        shape = self._others[name].shape
        if shape is None:
            return array.ndim > 0 and len(array) == sequences
        return bool(shape) and not isinstance(shape[0], int)

    def _checked_feed(self, feed: Mapping[str, Any], sequences: int) -> dict[str, np.ndarray]:
        path = self.model.path
        for name in feed:
            if name not in self._others:
                known = ", ".join(self._others) or "none"
                raise VariableError(f"{path}: has no other input {name!r} to feed; it has {known}")
        arrays = {}
        for name, info in self._others.items():
            dims = ", ".join("?" if dim is None else str(dim) for dim in info.shape or ())
            if name not in feed:
                raise VariableError(
                    f"{path}: generation gives tokens, caches, mask and positions; the model wants"
                    f" {name!r} [{dims}] as well: feed it"
                )
            value = feed[name]
            array = value if isinstance(value, np.ndarray) else np.asarray(value, info.dtype)
            has_rows = self._has_rows(name, array, sequences)
            if has_rows and (not array.ndim or len(array) != sequences):
                raise ShapeError(
                    f"{path}: {name!r} is [{dims}]; fed was {list(array.shape)} for {sequences}"
                    " sequences"
                )
            arrays[name] = array
        return arrays

    def _begin(self, sequences: int, feed: dict[str, Any]) -> None:
        self._feed = feed
        self._past = np.zeros(sequences, np.int64)
        empty = {
            name: np.zeros((sequences, heads, 0, width), self._dtypes[name])
            for name, (heads, width) in self._shapes.items()
        }
        self._memory = {name: empty.pop(name) for name in self._of_encoder}
        self._held = empty

    def _prove(self, feed: dict[str, Any]) -> None:
        """Find the way that gives what the model computes at once."""
        tokens, last = _PROBE
        self._begin(1, feed)
        wanted = self._run(np.array([[*tokens, last]]), np.array([len(tokens) + 1]), exact=True)
        while self._ways:
            self._begin(1, feed)
            try:
                self.read([np.array(tokens)])
                if _are_near(self.run([last]), wanted):
                    self._reads_on = not self._merged or self._can_read_on(feed, wanted)
                    self._proven = True
                    return
            except OpscopeError:
                if len(self._ways) == 1:
                    raise
            del self._ways[0]
        raise OpscopeError(f"{self.model.path}: with caches it computes other scores than at once")

    def _can_read_on(self, feed: dict[str, Any], wanted: np.ndarray) -> bool:
        """Whether the branch with caches reads several tokens; it may be traced for one alone."""
        tokens = [*_PROBE[0], _PROBE[1]]
        self._reads_on = True
        self._begin(1, feed)
        try:
            self.read([np.array(tokens[:2])])
            return _are_near(self.read([np.array(tokens[2:])]), wanted)
        except OpscopeError:
            return False

    def read(self, prompts: Sequence[np.ndarray], more: int = 0) -> np.ndarray:
        """See `Stepper.read`."""
        lengths = np.array([len(prompt) for prompt in prompts])
        if self._past.any() and not self._reads_on:
            if len({*lengths}) > 1:
                raise ShapeError(
                    f"{self.model.path}: reads a token at a time after the first ones; prompts of"
                    f" {min(lengths)} to {max(lengths)} tokens want a common length"
                )
            self._make_room(int(self._past.max() + lengths.max() + more))
            return [self.run(tokens) for tokens in zip(*prompts, strict=True)][-1]
        exact = self._ways[0] == "exact"
        if exact and len({*(self._past + lengths)}) > 1:
            raise ShapeError(
                f"{self.model.path}: prompts of {min(lengths)} to {max(lengths)} tokens: of several"
                f" lengths only where the model has {MASK!r}, and goes by it and {POSITIONS!r}"
            )
        width = lengths.max() if exact else -(-lengths.max() // 16) * 16
        self._make_room(int(self._past.max() + lengths.max() + more))
        tokens = np.zeros((len(lengths), width), np.int64)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = prompt
        return self._run(tokens, lengths, exact=exact)

    def run(self, tokens: Any) -> np.ndarray:
        """See `Stepper.run`."""
        tokens = np.asarray(tokens, np.int64)[:, None]
        self._make_room(int(self._past.max()) + 1)
        if self._ways[0] != "in place":
            exact = self._ways[0] == "exact"
            return self._run(tokens, np.ones(len(tokens), np.int64), exact=exact)
        given = {**self._held, **self._memory, **self._feed}
        shapes = [(name, array.shape) for name, array in given.items()]
        if self._step is None or self._step[0] != shapes:
            self._step = shapes, self._step_in_place()
        scores = self._step[1](tokens)
        self._past = self._past + 1
        return self._checked(scores)

    def _given(self, tokens: np.ndarray, seen: np.ndarray) -> dict[str, Any]:
        """What the model is fed besides caches."""
        positions = self._past[:, None] + np.arange(tokens.shape[1])
        said = {MASK: seen.astype(np.int64), POSITIONS: positions, PLACES: positions[0]}
        return {**self._feed, self.ids: tokens, **{name: said[name] for name in self._says}}

    def _run(self, tokens: np.ndarray, lengths: np.ndarray, *, exact: bool) -> np.ndarray:
        """Scores of what follows the first so many tokens of each row."""
        rows, steps = tokens.shape
        given = int(self._past.max())
        given = given if exact else -(-given // _BLOCK) * _BLOCK
        columns = np.arange(given + steps)
        feed = self._given(tokens, (columns < self._past[:, None]) | (columns >= given))
        feed |= {name: held[:, :, :given] for name, held in self._held.items()}
        feed |= self._memory | self._branch(given > 0)
        results = self.model.run(feed)
        if not given:
            self._memory = {name: results[made] for name, made in self._of_encoder.items()}
        number = np.arange(rows)
        if any(len(held[0, 0]) for held in self._held.values()):
            for row, begin, count in zip(number, self._past, lengths, strict=True):
                for name, present in self._caches.items():
                    new = results[present][row, :, given : given + count]
                    self._held[name][row, :, begin : begin + count] = new
        self._past = self._past + lengths
        scores = results[self.scores]
        if exact and scores.shape[1] == 1:  # of the last token alone
            return self._checked(scores[:, 0])
        if scores.shape[1] != steps:
            raise ShapeError(
                f"{self.model.path}: {self.scores!r} is {list(scores.shape)} for {steps} tokens of"
                f" {rows} sequences"
            )
        return self._checked(scores[number, lengths - 1])

    def _branch(self, reads_caches: bool) -> dict[str, np.ndarray]:
        return {name: np.full(shape, reads_caches) for name, shape in self._merged.items()}

    def _checked(self, scores: np.ndarray) -> np.ndarray:
        return checked_scores(scores, f"{self.model.path}: {self.scores!r}")

    def _make_room(self, tokens: int) -> None:
        for name, held in self._held.items():
            if held.shape[2] < tokens:
                rows = -(-max(tokens, held.shape[2] * 3 // 2) // _BLOCK) * _BLOCK
                larger = np.zeros((*held.shape[:2], rows, held.shape[3]), held.dtype)
                larger[:, :, : held.shape[2]] = held
                self._held[name] = larger

    def so_far(self) -> Read:
        """See `Stepper.so_far`."""
        held = [held[:, :, : self._past.max()].copy() for held in self._held.values()]
        title, count = self.model.path, len(self._past)
        states = [*held, *self._memory.values()]
        return Read(self, title, count, self._feed, self._past.copy(), states)

    def resume(self, read: Read, sequences: int) -> None:
        """See `Stepper.resume`."""
        copies = read.copies(self, self.model.path, sequences)
        self.turn += 1
        self._begin(read.sequences, dict(read.context))
        self._past = read.past.copy()
        self._make_room(int(self._past.max()))
        for held, value in zip(self._held.values(), read.states, strict=False):
            held[:, :, : value.shape[2]] = value
        self._memory = dict(zip(self._memory, read.states[len(self._held) :], strict=True))
        self.spread(copies)

    def spread(self, copies: int) -> None:
        """See `Stepper.spread`."""
        sequences = len(self._past)
        self._past = np.repeat(self._past, copies)
        self._held = {name: np.repeat(held, copies, 0) for name, held in self._held.items()}
        self._memory = {name: np.repeat(kept, copies, 0) for name, kept in self._memory.items()}
        self._feed = {
            name: np.repeat(given, copies, 0) if self._has_rows(name, given, sequences) else given
            for name, given in self._feed.items()
        }

    def reorder(self, parents: np.ndarray) -> None:
        """See `Stepper.reorder`."""
        moved = np.flatnonzero(parents != np.arange(len(parents)))
        for held in self._held.values():
            used = held[:, :, : self._past.max()]
            used[moved] = used[parents[moved]]
        self._past = self._past[parents]

    # -- a step that appends in place --------------------------------------------------------------

    def _step_in_place(self) -> Callable[[np.ndarray], np.ndarray]:
        """What gives the scores that follow single tokens, and appends to the caches.

        Raises:
            OpscopeError: the model is no single net, or does not append its keys and values.
        """
        sequences = len(self._past)
        rows = {held.shape[2] for held in self._held.values()}.pop()
        seen = np.ones((sequences, rows), bool)
        fed = self._given(np.zeros((sequences, 1), np.int64), seen)
        shapes: dict[str, Any] = {name: np.shape(given) for name, given in fed.items()}
        shapes |= {n: (*h.shape[:2], rows - 1, h.shape[3]) for n, h in self._held.items()}
        shapes |= {name: kept.shape for name, kept in self._memory.items()} | self._branch(True)
        net = _appending(self.model.path, self.model.op_list(shapes), self._caches)
        net = PlainNet(prune(net, [self.scores]), check=False)
        scope = Scope(parent=self.model.scope)
        context = OpContext(train=False, live_out=[self.scores])
        columns = np.arange(rows)

        def step(tokens: np.ndarray) -> np.ndarray:
            for name, held in (*self._held.items(), *self._memory.items()):
                scope.var(name).bind(held)
            for name, value in self._given(tokens, columns <= self._past[:, None]).items():
                scope.var(name).set(value)
            scope.var(_LENGTH).set(self._past)
            net.run(scope, context)
            return scope.get(self.scores).numpy()[:, -1]

        return step


def _are_near(found: np.ndarray, wanted: np.ndarray) -> bool:
    return bool(np.abs(found - wanted).max() <= _NEAR * max(1.0, np.abs(wanted).max()))


class StaticStepper(ImportedStepper):
    """Runs a program of `torch.export` that writes a token's keys and values to buffers of its own.

    It takes the token of each sequence [N, 1], of as many sequences as it was exported for, and the
    position of the token [1], the only other input. The buffers stay as they are: a copy of them is
    written to, in place.

    Raises:
        OpscopeError: it has other inputs, or changes its buffers in another way.
    """

    def __init__(self, model: TorchProgram, *, ids: str = IDS, scores: str = "output") -> None:
        self.model = model
        self.ids, self.scores = ids, scores
        shapes = {info.name: info.shape for info in model.inputs}
        places = [name for name in shapes if name != ids]
        if ids not in shapes or len(places) != 1 or scores not in {i.name for i in model.outputs}:
            raise OpscopeError(
                f"{model.path}: wants {ids!r}, a position and {scores!r}, and has inputs"
                f" {', '.join(shapes)} and outputs {', '.join(i.name for i in model.outputs)}"
            )
        self._place, tokens = places[0], shapes[ids] or ()
        if len(tokens) != 2 or not isinstance(tokens[0], int) or tokens[1] != 1:
            raise ShapeError(f"{model.path}: {ids!r} {list(tokens)} wants a token of each sequence")
        self._sequences = tokens[0]
        self._caches = model.changed
        self._others: dict[str, InputInfo] = {}
        self._first = {name: model.scope.get(name).numpy() for name in model.changed}
        self._net = PlainNet(
            prune(_appending(model.path, model.op_list(), model.changed), [scores]), check=False
        )
        self._scope = Scope(parent=model.scope)
        self._context = OpContext(train=False, live_out=[scores])
        self._proven = True
        self.turn = 0

    def _begin(self, sequences: int, feed: dict[str, Any]) -> None:
        del feed  # it has no other inputs
        self._past = np.zeros(sequences, np.int64)
        self._feed, self._memory = {}, {}
        self._held = {name: array.copy() for name, array in self._first.items()}

    def read(self, prompts: Sequence[np.ndarray], more: int = 0) -> np.ndarray:
        """See `Stepper.read`."""
        lengths = {len(prompt) for prompt in prompts}
        if len(lengths) > 1:
            raise ShapeError(
                f"{self.model.path}: prompts of several lengths have no common position"
            )
        most = min(array.shape[2] for array in self._held.values())
        wanted = int(self._past.max()) + max(lengths) + more
        if wanted > most:
            raise ShapeError(
                f"{self.model.path}: prompt 0 of {max(lengths)} tokens, and {more + 1} to be"
                f" written, want {wanted} positions; its caches have {most}"
            )
        for tokens in zip(*prompts, strict=True):
            scores = self.run(tokens)
        return scores

    def run(self, tokens: Any) -> np.ndarray:
        """See `Stepper.run`."""
        tokens = np.asarray(tokens, np.int64)[:, None]
        if len(tokens) != self._sequences:
            raise ShapeError(
                f"{self.model.path}: exported for {self._sequences} sequences, not {len(tokens)}"
            )
        for name, held in self._held.items():
            self._scope.var(name).bind(held)
        self._scope.var(self.ids).set(tokens)
        self._scope.var(self._place).set(self._past[:1])
        self._scope.var(_LENGTH).set(self._past)
        self._net.run(self._scope, self._context)
        self._past = self._past + 1
        return self._checked(self._scope.get(self.scores).numpy()[:, -1])

    def _make_room(self, tokens: int) -> None:
        """The caches are as long as they were exported."""


def _appending(path: str, net: OpList, caches: Mapping[str, str]) -> OpList:
    """A net with caches that it writes to, in place of copies with a row more, or another one.

    Raises:
        OpscopeError: a cache is changed in another way.
    """
    writers = {name: op for op in net.ops for name in op.output_names()}
    renamed: dict[str, str] = {}
    appends: dict[int, OpNode] = {}
    for past, present in caches.items():
        op = writers[present]
        if op.type == "assign":
            op = writers[op.input_names()[0]]
        given = op.input_names()
        grows = op.type == "concat" and len(given) == 2 and given[0] == past
        if not grows and not (op.type == "put_along_axis" and op.inputs["x"] == (past,)):
            raise OpscopeError(f"{path}: {present!r} is not {past!r} with new rows")
        rows = given[1] if grows else op.inputs["updates"][0]
        renamed[op.output_names()[0]] = past
        inputs = {"cache": past, "x": rows, "past": _LENGTH}
        attrs = {"axis": op.attrs["axis"]}
        appends[id(op)] = make_op("cache_append", inputs, {"out": past}, attrs)
    made = net.copy()
    made.ops = [appends.get(id(op)) or op.renamed(renamed) for op in net.ops]
    made.vars = [
        var.changed(kind=STATE, shape=None) if var.name in caches else var for var in net.vars
    ]
    made.vars.append(make_var(_LENGTH, [-1], np.int64, INPUT))
    return made
