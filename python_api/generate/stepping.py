"""Runs one step of a net after the other, for generation; one_step.py cuts it out of the net."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.backend import on_device, to_host
from ...framework.base.context import OpContext
from ...framework.base.errors import NotFiniteError, OpscopeError, ShapeError, VariableError
from ...framework.base.machine import huge_pages
from ...framework.base.scope import Scope
from ...framework.base.sequence import offsets_of, repeated
from ...framework.files.saved import op_list_of
from ...framework.ir.desc import INPUT
from ...framework.passes.prune import prune
from ...framework.runtime.feeding import Feeder
from ...framework.runtime.initialize import PERSISTENT
from ...framework.runtime.net import Net
from .last_tokens import free_name, of_last_tokens
from .one_step import Cache, one_step

_MANY_BYTES = 1 << 23
"""Of weights that caches do not hold."""
_ROOM = 64
"""Caches grow by so many tokens, and prompts are read in blocks of a quarter, for few plans."""


@dataclass(frozen=True)
class Read:
    """What a stepper has read: all that its next run depends on.

    Attributes:
        owner: the stepper. title: its net, in messages. sequences: how many.
        context: inputs of the steps besides tokens and states.
        past: tokens of each sequence. states: arrays.
    """

    owner: object
    title: str
    sequences: int
    context: Mapping[str, Any]
    past: np.ndarray
    states: Sequence[Any]

    def copies(self, stepper: object, title: str, sequences: int) -> int:
        """How many hypotheses of each sequence a stepper begins with.

        Raises:
            OpscopeError: it is of another net. ShapeError: it is of another number of sequences.
        """
        if self.owner is not stepper:
            raise OpscopeError(
                f"{title}: what was read before is in the caches of another generator, {self.title}"
            )
        if self.sequences not in (1, sequences):
            raise ShapeError(
                f"{title}: {self.sequences} sequences were read before, and these are {sequences}"
            )
        return sequences // self.sequences


class Stepper:
    """Runs a net step by step over rows of hypotheses, with their states in a scope of its own.

    Args:
        net: a NetBuilder, a Net, its description, or what `opscope.load` returns.
        scope: holds the parameters; by default the scope of a loaded net. It stays as it is.
        ids: the input that holds tokens: sequences of integers [rows], or padded ones [N, T].
        scores: the variable with the scores of the next token, [rows, tokens] or [N, T, tokens]:
            before or after the logarithm of a softmax.
        device: where it runs, by default the place of the scope.

    Attributes:
        turn: rises with each start, so a caller that continues an earlier one sees it.

    Raises:
        OpscopeError: the net cannot run step by step; the message says why.
    """

    def __init__(
        self,
        net: Any,
        scope: Scope | None = None,
        *,
        ids: str = "ids",
        scores: str = "scores",
        device: Any = None,
    ) -> None:
        scope = scope if scope is not None else getattr(net, "scope", None)
        if not isinstance(scope, Scope):
            raise VariableError("want the scope that holds the net's parameters")
        self.op_list = op_list_of(net)
        self.ids = str(ids)
        self.scores = str(scores)
        self.step = one_step(self.op_list, self.ids, self.scores)
        self.scope = scope
        self.turn = 0
        kept = [self.scores, *(memory.state for memory in self.step.memories)]
        self._context = OpContext(device, train=False, live_out=kept)
        self._device = device
        self._place = device or scope.place
        self._net = Net.create(self.step.net)
        self._last = free_name("last.tokens", [var.name for var in self.step.net.vars])
        # Reads prompts; of all other runs `_net` scores the only token.
        self._reading = self._net
        if self.step.blocks:
            short = of_last_tokens(self.step, self.ids, self.scores, self._last)
            self._reading = self._net if short is None else Net.create(short)
        self._work = Scope(parent=scope)
        self._first: Mapping[str, tuple[Any, Any]] = {}
        self._copies = 1
        self._past = np.zeros(0, np.int64)
        # Rows of all caches, and tokens that each of them holds; see `_make_room`.
        self._room = 0, 0
        self._is_gathered = False
        (tokens,) = (var for var in self.step.net.vars if var.name == self.ids)
        self._dtype = tokens.dtype

    def start(self, sequences: int, feed: Mapping[str, Any] | None = None) -> None:
        """Begin with a hypothesis of each sequence, in its first states.

        Args:
            feed: inputs of the net that the first states or the steps depend on, other than the
                tokens; sequences as `Sequences` or lists of arrays.

        Raises:
            VariableError: an input is missing. ShapeError: rows for another number of sequences.
        """
        self.turn += 1
        self.sequences = sequences
        self._first = self._run_context(feed or {})
        self._past = np.zeros(sequences, np.int64)
        with on_device(self._place):
            self._copies = 1
            self._set_context()
            xp = self._place.xp
            for memory in self.step.memories:
                value = xp.full((sequences, *memory.row), memory.value, memory.dtype)
                if memory.boot:
                    boot = self._first[memory.boot][0]
                    if len(boot) != sequences:
                        raise ShapeError(
                            f"{self.step.net.name}: {memory.boot!r} has {len(boot)} rows for"
                            f" {sequences} sequences"
                        )
                    value[...] = boot
                self._work.var(memory.previous).bind(value)

    def context(self, feed: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """What the steps read besides tokens and states, on the host; and of how many sequences."""
        first = {name: to_host(rows) for name, (rows, _) in self._run_context(feed).items()}
        counts = [len(first[name]) for name in self.step.of_sequences if name in first]
        return first, max(counts, default=2)

    def so_far(self) -> Read:
        """What it has read since it was started, to continue from there more than once."""
        with on_device(self._place):
            states = [self._work.get(m.previous).inner for m in self.step.memories]
            states = [one.copy() for one in (*states, *map(self._used, self.step.caches))]
        title = repr(self.op_list.name)
        return Read(self, title, self.sequences, self._first, self._past.copy(), states)

    def resume(self, read: Read, sequences: int) -> None:
        """Begin with a hypothesis of each sequence, after what was read of it, or of one for all.

        Raises:
            OpscopeError: it was read by another stepper, or of another number of sequences.
        """
        copies = read.copies(self, repr(self.op_list.name), sequences)
        self.turn += 1
        self.sequences, self._first, self._past = read.sequences, read.context, read.past.copy()
        count = len(self.step.memories)
        with on_device(self._place):
            for memory, value in zip(self.step.memories, read.states[:count], strict=True):
                self._work.var(memory.previous).bind(value.copy())
            self._copies = 1
            self._make_room(0)
            for cache, value in zip(self.step.caches, read.states[count:], strict=True):
                self._used(cache)[...] = value
        self.spread(copies)

    def spread(self, copies: int) -> None:
        """Continue with `copies` hypotheses in place of each, side by side."""
        with on_device(self._place):
            xp = self._place.xp
            self._copies *= copies
            self._set_context()
            if copies == 1:
                return
            for memory in self.step.memories:
                variable = self._work.var(memory.previous)
                variable.bind(xp.repeat(variable.inner, copies, 0))
            self._past = np.repeat(self._past, copies)
            for cache in self.step.caches:
                used = self._used(cache)
                room = self._work.get(cache.name).inner.shape[cache.axis]
                self._allocate(cache, copies * len(used), room)
                self._used(cache)[...] = xp.repeat(used, copies, 0)

    def _set_context(self) -> None:
        """Set the inputs of the steps, for all hypotheses of each sequence."""
        xp = self._place.xp
        copies = self._copies
        for name, (rows, levels) in self._first.items():
            if levels and len(levels[-1]) - 1 == self.sequences:
                self._work.var(name).set(*_repeat_sequences(rows, levels[-1], copies, xp))
            elif name in self.step.of_sequences:
                if len(rows) != self.sequences:
                    raise ShapeError(
                        f"{self.step.net.name}: {name!r} has {len(rows)} rows for"
                        f" {self.sequences} sequences"
                    )
                self._work.var(name).set(xp.repeat(rows, copies, 0))
            else:
                self._work.var(name).set(rows, levels)

    def _run_context(self, feed: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Values and offsets of the inputs of the steps, parameters aside."""
        persistent = {var.name for var in self.op_list.vars if var.kind in PERSISTENT}
        names = [name for name in self.step.context if name not in persistent]
        scope = Scope(parent=self.scope)
        declared = {var.name: var for var in self.op_list.vars}
        for key in feed:
            if str(key) in declared:
                scope.var(str(key))  # the scope of the parameters stays as it is
        if feed:
            Feeder(self.op_list, scope)(feed, lambda: self.step.net.name)
        if names:
            wanted = [name for name in names if declared[name].kind != INPUT]
            if wanted:
                context = OpContext(self._device, train=False, live_out=wanted)
                Net.create(prune(self.op_list, wanted)).run(scope, context)
        first = {}
        for name in names:
            variable = scope.find(name)
            if variable is None or variable.array is None:
                raise VariableError(f"{self.step.net.name}: input {name!r} is missing; feed it")
            first[name] = variable.array, variable.offsets
        return first

    # -- running -----------------------------------------------------------------------------------

    def read(self, prompts: Sequence[np.ndarray], more: int = 0) -> np.ndarray:
        """Give each hypothesis its next tokens, of any lengths.

        Args:
            more: tokens that are to follow, which caches get room for.

        Returns:
            Scores of what follows each of them, [hypotheses, tokens], on the host.

        Raises:
            ShapeError: more tokens than the net has positions.
            NotFiniteError: NaN among the scores, or nothing but -inf for a hypothesis.
        """
        lengths = np.array([len(prompt) for prompt in prompts])
        most = self._check_positions(lengths, more)
        rows = np.arange(len(lengths))
        if self.step.blocks:
            unit = _ROOM // 4
            width = min(-(-lengths.max() // unit) * unit, most - self._past.max())
            tokens = np.zeros((len(lengths), width), np.int64)
            for row, prompt in enumerate(prompts):
                tokens[row, : len(prompt)] = prompt
            self._make_room(max(width, lengths.max() + more))
            whole = self._reading is self._net
            if not whole:
                ends = lengths - 1 + (rows * width if self.step.packed else 0)
                self._work.var(self._last).set(ends.reshape(-1, 1, *[1] * (not self.step.packed)))
            # What lies behind a short prompt is not seen, and its next tokens write over it.
            scores = self._run(tokens, self._reading)
            self._past += lengths
            return self._checked(scores[rows, lengths - 1] if whole else scores[:, 0])
        self._make_room(lengths.max() + more)
        result: Any = None
        for time in range(lengths.max()):
            reading = lengths > time
            tokens = [prompt[min(time, len(prompt) - 1)] for prompt in prompts]
            scores = self._run(np.array(tokens)[:, None], self._net)[:, 0]
            result = scores.copy() if result is None else result
            result[reading] = scores[reading]
            self._take_over(reading)
        return self._checked(result)

    def run(self, tokens: Any) -> np.ndarray:
        """Give each hypothesis its next token; see `read`. Scores are valid until the next run."""
        tokens = np.asarray(tokens, np.int64)
        self._make_room(1)
        scores = self._run(tokens[:, None], self._net)[:, 0]
        if not self._is_gathered and self._place.kind == "cpu":
            self._gather_weights()
        self._take_over(np.ones(len(tokens), bool))
        return self._checked(scores)

    def _gather_weights(self) -> None:
        """Have all that each token reads in huge pages, once: it is more than caches hold."""
        self._is_gathered = True
        spans = []
        for name in dict.fromkeys(name for op in self.step.net.ops for name in op.input_names()):
            variable = self.scope.find(name)
            if variable is None or type(variable.inner) is not np.ndarray:
                continue
            packed = [] if variable.packs is None else variable.packs.memory
            # The bytes of any other array, such as a reversed or broadcast one, are no span.
            arrays = (one for one in packed or [variable.inner] if one.flags.forc)
            spans += [(one.ctypes.data, one.nbytes) for one in arrays]
        if sum(size for _, size in spans) >= _MANY_BYTES:
            huge_pages.gather(spans)

    def _run(self, tokens: np.ndarray, net: Net) -> np.ndarray:
        """Scores [hypotheses, steps or 1, kinds] of tokens [hypotheses, steps]."""
        rows, steps = tokens.shape
        variable = self._work.var(self.ids)
        if not self.step.packed:
            variable.set(tokens, dtype=self._dtype)
        elif self.step.caches:
            variable.set(tokens.reshape(-1), (np.arange(rows + 1) * steps,), dtype=self._dtype)
        else:
            variable.set(tokens.reshape(-1), dtype=self._dtype)
        if self.step.past:
            self._work.var(self.step.past).set(self._past)
        net.run(self._work, self._context)
        scores = to_host(self._work.get(self.scores).array)
        return scores.reshape(rows, steps if net is self._net else 1, -1)

    def _checked(self, scores: np.ndarray) -> np.ndarray:
        return checked_scores(scores, f"{self.step.net.name}: {self.scores!r}")

    def _take_over(self, rows: np.ndarray) -> None:
        """Some hypotheses take over the states that the last run left."""
        self._past += rows
        if not self.step.memories:
            return
        with on_device(self._place):
            for memory in self.step.memories:
                source = self._work.get(memory.state).array
                target = self._work.get(memory.previous).array
                if rows.all():
                    target[...] = source
                else:
                    index = self._place.xp.asarray(np.flatnonzero(rows))
                    target[index] = source[index]

    def reorder(self, parents: np.ndarray) -> None:
        """Let each hypothesis continue another one; `parents` are their numbers."""
        moved = np.flatnonzero(parents != np.arange(len(parents)))
        if not len(moved):
            return
        with on_device(self._place):
            to, source = (self._place.xp.asarray(one) for one in (moved, parents[moved]))
            for memory in self.step.memories:
                states = self._work.get(memory.previous).array
                states[to] = states[source]
            for cache in self.step.caches:
                used = self._used(cache)
                used[to] = used[source]
        self._past = self._past[parents]

    # -- caches ------------------------------------------------------------------------------------

    def _check_positions(self, lengths: np.ndarray, more: int) -> int:
        """The most tokens that a hypothesis may have."""
        most = 1 << 62
        for table, count in self.step.positions.items():
            wanted = self._past + lengths + more
            if wanted.max() > count:
                row = int(wanted.argmax())
                raise ShapeError(
                    f"{self.step.net.name}: prompt {row} of {lengths[row]} tokens, and {more + 1}"
                    f" to be written, want {wanted[row]} positions; {table!r} has {count}"
                )
            most = min(most, count)
        return most

    def _used(self, cache: Cache) -> Any:
        """A view [hypotheses, tokens, ...] of what a cache holds."""
        array = self._work.get(cache.name).inner
        return array.swapaxes(1, cache.axis)[:, : self._past.max()]

    def _allocate(self, cache: Cache, rows: int, tokens: int) -> None:
        shape = list(cache.shape)
        shape[0], shape[cache.axis] = rows, tokens
        self._room = 0, 0
        self._work.var(cache.name).bind(self._place.xp.zeros(shape, cache.dtype))

    def _make_room(self, more: int) -> None:
        """Caches hold so many more tokens; those that they have stay."""
        rows = len(self._past)
        wanted = int(self._past.max()) + int(more)
        if self._room[0] == rows and self._room[1] >= wanted:
            return  # as of most tokens
        with on_device(self._place):
            for cache in self.step.caches:
                held = self._work.var(cache.name).inner
                if held is not None and len(held) == rows and held.shape[cache.axis] >= wanted:
                    continue
                used = self._used(cache) if held is not None and len(held) == rows else None
                # By half as many again at least: few steps copy what is there.
                room = wanted if used is None else max(wanted, used.shape[1] * 3 // 2)
                self._allocate(cache, rows, -(-room // _ROOM) * _ROOM)
                if used is not None:
                    self._used(cache)[...] = used
        caches = [
            (cache.axis, self._work.get(cache.name).inner.shape) for cache in self.step.caches
        ]
        self._room = rows, min([shape[axis] for axis, shape in caches], default=wanted)


def checked_scores(scores: np.ndarray, title: str) -> np.ndarray:
    """Scores [hypotheses, tokens], once they are known to say something about each next token.

    Raises:
        NotFiniteError: NaN among them, or a row of nothing but -inf.
    """
    largest = scores.max(axis=1)  # NaN where there is one
    if not (largest > -np.inf).all():
        row = int((largest > -np.inf).argmin())
        found = "NaN" if np.isnan(largest).any() else f"nothing but -inf in row {row}"
        raise NotFiniteError(f"{title} holds {found}")
    return scores


def _repeat_sequences(rows: Any, offsets: Any, copies: int, xp: Any) -> tuple[Any, Any]:
    """Each sequence `copies` times, side by side."""
    lengths = repeated(np.diff(offsets), copies)
    begins = repeated(offsets[:-1], copies)
    made = offsets_of(lengths)
    index = repeated(begins - made[:-1], lengths) + np.arange(made[-1])
    return rows[xp.asarray(index)], (made,)
