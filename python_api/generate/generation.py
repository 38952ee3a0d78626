"""Generation of token sequences by a net that scores the next token: sampling and beam search.

    net, scope = opscope.load("char_rnn.pb")
    generator = opscope.Generator(net, scope, ids="ids", scores="scores")
    (tokens,) = generator.sample([prompt], 500, temperature=0.7)
    best = generator.beam([prompt], 50, width=5, end=END)[0][0]

The net is one that reads whole sequences of tokens, as it was trained: it is cut down to one step
(one_step.py), and its states, memories of recurrent layers or keys and values of causal attention,
live in a scope of the generator's own (stepping.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...bridges.onnx.importing.imported import ImportedModel
from ...framework.base.dtypes import is_whole
from ...framework.base.errors import AttributeTypeError, OpscopeError, ShapeError
from ...framework.base.files.atomic import PathLike
from ...framework.base.scope import Scope
from .cached_onnx import SCORES, cached_net, random_inputs
from .imported import ImportedStepper, StaticStepper
from .stepping import Read, Stepper

if TYPE_CHECKING:
    from ...bridges.onnx.export.checking import Check
    from ...bridges.torch.importing.program import TorchProgram

Prompts = Sequence[Sequence[int] | np.ndarray]
Chooser = Callable[[np.ndarray], np.ndarray]
"""Scores [rows, tokens] -> the token chosen in each row."""


@dataclass(frozen=True, order=True)
class Hypothesis:
    """A result of a beam search.

    Attributes:
        score: `log_prob` over the length penalty; results are ordered by it.
        log_prob: natural logarithm of the probability of all generated tokens, the end among them.
        tokens: without prompt and end.
        ended: whether the end token was generated.
    """

    score: float
    log_prob: float
    tokens: tuple[int, ...]
    ended: bool


class Generator:
    """Generates with a net; see `Stepper` for the arguments and the nets that it accepts.

    A decoder from elsewhere, `opscope.from_onnx(path)`, has its caches as inputs and outputs; its
    tokens and scores are named `input_ids` and `logits` as a rule.

    A net may read other inputs, such as the source of a translation: the methods take them as
    `feed`, with one row or one sequence for each prompt.
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
        self.stepper: Stepper | ImportedStepper
        if isinstance(net, ImportedModel) and getattr(net, "changed", None):
            self.stepper = StaticStepper(cast("TorchProgram", net), ids=ids, scores=scores)
        elif isinstance(net, ImportedModel):
            self.stepper = ImportedStepper(net, ids=ids, scores=scores)
        else:
            self.stepper = Stepper(net, scope, ids=ids, scores=scores, device=device)

    def greedy(
        self,
        prompts: Prompts,
        steps: int,
        *,
        end: int | None = None,
        feed: Mapping[str, Any] | None = None,
        after: Read | None = None,
    ) -> list[np.ndarray]:
        """The most probable token at each step.

        Args:
            prompts: the first tokens of each sequence, at least one; of any lengths.
            steps: most tokens to generate for each.
            end: token that ends a sequence.
            feed: other inputs of the net.
            after: what was read before each prompt (see `read`), with the feed of that call.

        Returns:
            The generated tokens of each sequence, without prompt and end.

        Raises:
            ShapeError: no prompts, an empty one, or more tokens than the net has positions.
            AttributeTypeError: an argument out of bounds.
            NotFiniteError: NaN among the scores, or nothing but -inf for a sequence.
        """
        tokens = self._tokens(
            prompts, steps, end, feed, after, lambda scores: scores.argmax(axis=1)
        )
        return _listed(tokens, len(prompts))

    def sample(
        self,
        prompts: Prompts,
        steps: int,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        end: int | None = None,
        feed: Mapping[str, Any] | None = None,
        after: Read | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> list[np.ndarray]:
        """Tokens drawn by their probabilities; see `greedy` for the other arguments.

        Tokens with a score of +inf are equally probable, and all others have the probability 0.

        Args:
            temperature: scores are divided by it; below 1 makes probable tokens more probable.
            top_k: only the so many most probable ones are drawn; 0 = all.
            top_p: only the most probable ones are drawn, as few as have this probability together.
            seed: a number, or a random generator to continue with.
        """
        choose = _drawing(temperature, top_k, top_p, seed)
        return _listed(self._tokens(prompts, steps, end, feed, after, choose), len(prompts))

    def stream(
        self,
        prompt: Sequence[int] | np.ndarray,
        steps: int,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        end: int | None = None,
        feed: Mapping[str, Any] | None = None,
        after: Read | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> Iterator[int]:
        """The tokens of `sample` for one prompt, each as soon as it is drawn.

        Raises:
            OpscopeError: the generator was given other prompts before all tokens were taken.
        """
        choose = _drawing(temperature, top_k, top_p, seed)
        tokens = self._tokens([prompt], steps, end, feed, after, choose)
        return (int(token) for (token,) in tokens)

    def read(self, prompts: Prompts, *, feed: Mapping[str, Any] | None = None) -> Read:
        """Read tokens that several texts begin with, once for all of them.

            context = generator.read([article])
            for question in questions:
                answer = generator.greedy([question], 50, after=context)

        Args:
            prompts: as of `greedy`; one serves any number of sequences.

        Returns:
            What methods take as `after`; it holds the caches, and is of this generator alone.
        """
        checked = _check_prompts(prompts, 1)
        self.stepper.start(len(checked), feed)
        self.stepper.read(checked)
        return self.stepper.so_far()

    def _begun(
        self, sequences: int, feed: Mapping[str, Any] | None, after: Read | None
    ) -> Stepper | ImportedStepper:
        if after is None:
            self.stepper.start(sequences, feed)
        elif feed:
            raise OpscopeError("generation after `read` continues with the feed of `read`")
        else:
            self.stepper.resume(after, sequences)
        return self.stepper

    def to_onnx(
        self, path: PathLike, *, feed: Mapping[str, Any] | None = None, **options: Any
    ) -> Check:
        """Write the step of the net, with its caches as inputs and outputs, as an ONNX file.

        Names are the same as in Hugging Face's exports, see cached_onnx.py. What the steps read of
        an encoder, and other inputs, are inputs of the graph under their own names.

        Args:
            feed: other inputs of the net, to check the graph with; see `greedy`.
            options: of `opscope.to_onnx`: `opset`, `external`, `bound`, `name`, `int8`.

        Raises:
            OpscopeError: the net does not read tokens [N, T] by causal attention; see `to_onnx`.
        """
        from ...bridges.onnx.export.exporting import (
            to_onnx,
        )  # who only writes text needs none of it

        stepper = self.stepper
        if isinstance(stepper, ImportedStepper):
            raise OpscopeError(f"{stepper.model.path} has its caches outside already")
        made = cached_net(stepper.step, stepper.ids, stepper.scores)
        outputs = [SCORES, *made.caches.values()]
        inputs = random_inputs(made, *stepper.context(feed or {}))
        return to_onnx(made.net, path, stepper.scope, outputs=outputs, inputs=inputs, **options)

    def _tokens(
        self,
        prompts: Prompts,
        steps: int,
        end: int | None,
        feed: Mapping[str, Any] | None,
        after: Read | None,
        choose: Chooser,
    ) -> Iterator[np.ndarray]:
        """The next token of each prompt, step by step; -1 where it has ended."""
        checked = _check_prompts(prompts, steps)
        stepper = self._begun(len(checked), feed, after)
        return self._go_on(stepper.read(checked, steps - 1), steps, end, choose, stepper.turn)

    def _go_on(
        self, scores: np.ndarray, steps: int, end: int | None, choose: Chooser, turn: int
    ) -> Iterator[np.ndarray]:
        running = np.ones(len(scores), bool)
        for step in range(steps):
            chosen = choose(scores)
            if end is not None:
                running &= chosen != end
            if not running.any():
                return
            yield np.where(running, chosen, -1)
            if self.stepper.turn != turn:
                raise OpscopeError("the generator was given other prompts before this one ended")
            if step + 1 < steps:
                scores = self.stepper.run(chosen)

    def beam(
        self,
        prompts: Prompts,
        steps: int,
        *,
        width: int = 4,
        end: int | None = None,
        length_penalty: float = 0.0,
        feed: Mapping[str, Any] | None = None,
        after: Read | None = None,
    ) -> list[list[Hypothesis]]:
        """Beam search with `width` hypotheses at a time.

        A sequence is searched until nothing better than its `width` best ended hypotheses can
        come, or for `steps` tokens; hypotheses that have not ended then count as well.

        Args:
            prompts: the first tokens of each sequence, at least one; of any lengths.
            steps: most tokens to generate, the end among them.
            width: hypotheses of each sequence.
            end: token that ends a hypothesis.
            length_penalty: alpha >= 0; scores are log P / ((5 + length) / 6)^alpha, so that larger
                ones favor long results. Lengths count the end.

        Returns:
            For each prompt up to `width` hypotheses, best first.

        Source: Y. Wu et al., Google's neural machine translation system (the length penalty).
        """
        if width < 1 or length_penalty < 0:
            raise AttributeTypeError(
                f"beam: wants width >= 1 and length_penalty >= 0, not {width} and {length_penalty}"
            )
        checked = _check_prompts(prompts, steps)
        stepper = self._begun(len(checked), feed, after)
        scores = np.repeat(stepper.read(checked, steps - 1), width, 0)
        stepper.spread(width)
        beams = [_Beam(width, steps, end, length_penalty) for _ in checked]
        while True:
            log_probs = log_softmax(scores).reshape(len(beams), width, -1)
            parents = [
                n * width + beam.extend(own)
                for n, (beam, own) in enumerate(zip(beams, log_probs, strict=True))
            ]
            if all(beam.done for beam in beams):
                return [beam.results() for beam in beams]
            stepper.reorder(np.concatenate(parents))
            scores = stepper.run(np.concatenate([beam.tokens for beam in beams]))


class _Beam:
    """The hypotheses of one sequence; rows that hold none have the probability 0.

    Attributes:
        tokens: [width], what each row reads next. done: whether the search is over.
    """

    def __init__(self, width: int, steps: int, end: int | None, alpha: float) -> None:
        self._width = width
        self._steps = steps
        self._end = end
        self._alpha = alpha
        self.tokens = np.zeros(width, np.int64)
        self.done = False
        self._live: list[tuple[int, ...]] = [()] * width
        self._log_probs = np.full(width, -np.inf)
        self._log_probs[0] = 0.0  # all rows are alike in the beginning
        self._length = 0
        self._ended: list[Hypothesis] = []

    def extend(self, log_probs: np.ndarray) -> np.ndarray:
        """Take the next token everywhere.

        Args:
            log_probs: [width, tokens].

        Returns:
            For each new row the row that it continues.
        """
        if self.done:
            return np.arange(self._width)
        self._length += 1
        total = self._log_probs[:, None] + log_probs
        parents, tokens = self._best(total)
        rows: list[tuple[int, int]] = []
        for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True):
            if not np.isfinite(total[parent, token]):
                break
            if token == self._end:
                self._end_one(float(total[parent, token]), self._live[parent])
            elif len(rows) < self._width:
                rows.append((parent, token))
        log_probs = np.full(self._width, -np.inf)
        log_probs[: len(rows)] = [total[row] for row in rows]
        live = [(*self._live[parent], token) for parent, token in rows]
        missing = self._width - len(rows)
        self._live = live + [()] * missing
        self._log_probs = log_probs
        sources = np.array([parent for parent, _ in rows] + [0] * missing, np.int64)
        self.tokens = np.array([token for _, token in rows] + [int(self.tokens[0])] * missing)
        self._finish()
        return sources

    def _best(self, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Parents and tokens of the best extensions: enough, whichever of them end."""
        wanted = min(2 * self._width, total.size)
        flat = total.ravel()
        best = np.argpartition(-flat, wanted - 1)[:wanted]
        best = best[np.lexsort((best, -flat[best]))]
        parents, tokens = np.divmod(best, total.shape[1])
        return parents, tokens

    def _penalty(self, length: int) -> float:
        return ((5 + length) / 6) ** self._alpha

    def _end_one(self, log_prob: float, tokens: tuple[int, ...], ended: bool = True) -> None:
        score = log_prob / self._penalty(self._length)
        self._ended.append(Hypothesis(score, log_prob, tokens, ended))
        self._ended.sort(key=lambda one: -one.score)
        del self._ended[self._width :]

    def _finish(self) -> None:
        """Be done where no live hypothesis can become better: probabilities only fall."""
        if self._length == self._steps:
            for log_prob, tokens in zip(self._log_probs.tolist(), self._live, strict=True):
                if np.isfinite(log_prob):
                    self._end_one(log_prob, tokens, ended=False)
            self.done = True
            return
        best = self._log_probs.max() / self._penalty(self._steps)
        full = len(self._ended) == self._width
        self.done = not np.isfinite(best) or (full and best <= self._ended[-1].score)

    def results(self) -> list[Hypothesis]:
        return self._ended


def _drawing(
    temperature: float, top_k: int, top_p: float, seed: int | np.random.Generator | None
) -> Chooser:
    """Draws tokens; see `Generator.sample`."""
    fits = is_whole(top_k) and top_k >= 0
    if not fits or not 0 < temperature < np.inf or not 0 < top_p <= 1:
        raise AttributeTypeError(
            "sample: wants temperature > 0, a whole number top_k >= 0 and 0 < top_p <= 1, not"
            f" {temperature}, {top_k} and {top_p}"
        )
    rng = np.random.default_rng(seed)

    def choose(scores: np.ndarray) -> np.ndarray:
        kept: Any = None  # all
        if 0 < top_k < scores.shape[1]:
            if top_k == 1:  # as streams without chance want it, in a fifth of the time
                bound = scores.max(axis=1, keepdims=True)
            else:
                bound = np.partition(scores, -top_k, axis=1)[:, -top_k, None]
            kept = np.flatnonzero(np.any(scores >= bound, axis=0))
            scores = scores[:, kept]
            scores = np.where(scores < bound, -np.inf, scores)
        with np.errstate(over="ignore"):  # far below the largest is -inf
            powers = np.exp(_below_largest(scores) / temperature)
        powers /= powers.sum(axis=1, keepdims=True)
        if top_p < 1:
            order = np.argsort(-powers, axis=1, kind="stable")
            falling = np.take_along_axis(powers, order, 1)
            # One is left out where those before it have the probability already.
            spare = falling.cumsum(axis=1) - falling >= top_p
            np.put_along_axis(powers, order, np.where(spare, 0, falling), 1)
        summed = powers.cumsum(axis=1)
        drawn = rng.random((len(scores), 1)) * summed[:, -1:]
        place = np.minimum((summed <= drawn).sum(axis=1), scores.shape[1] - 1)
        return place if kept is None else kept[place]

    return choose


def _listed(tokens: Iterator[np.ndarray], count: int) -> list[np.ndarray]:
    """The tokens of each sequence, from the tokens of each step."""
    steps = np.array(list(tokens), np.int64).reshape(-1, count)
    return [row[row >= 0] for row in steps.T]


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Natural logarithms of probabilities, along the last axis."""
    shifted = _below_largest(scores)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _below_largest(scores: np.ndarray) -> np.ndarray:
    """Scores minus the largest one, along the last axis, in float64; 0 where both are +inf."""
    scores = scores.astype(np.float64)
    largest = scores.max(axis=-1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        shifted = scores - largest
    if np.isposinf(largest).any():
        shifted[scores == np.inf] = 0
    return shifted


def _check_prompts(prompts: Prompts, steps: int) -> list[np.ndarray]:
    if steps < 1:
        raise AttributeTypeError(f"generation of {steps} tokens: want at least 1")
    checked = [np.asarray(prompt) for prompt in prompts]
    if not checked:
        raise ShapeError("generation wants prompts, one for each sequence")
    for number, prompt in enumerate(checked):
        if prompt.ndim != 1 or not len(prompt) or prompt.dtype.kind not in "iu":
            raise ShapeError(
                f"prompt {number} must be a list of at least one token number, not"
                f" {prompt.dtype}{list(prompt.shape)}"
            )
    return [prompt.astype(np.int64) for prompt in checked]
