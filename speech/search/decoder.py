"""The decoder: log-likelihoods come in blocks; the best path is there at any time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import NotFiniteError, OpscopeError, RunError, ShapeError
from ...native.constants import MANY_STATES, MANY_TOKENS, NEGATIVE_LOOP, NO_MEMORY, NO_PATH
from ..fst.grammar_graph import GrammarGraph, SearchGraph
from . import compiled
from .array_tokens import ArrayTokens
from .frames import NO_ARCS, Frame, FrameBlock, Tokens
from .options import SearchOptions

_WRONG = {
    MANY_STATES: "the composed graph has too many states",
    NEGATIVE_LOOP: "the graph has a loop of epsilons whose costs are below zero",
    MANY_TOKENS: "more tokens in a frame than frame_tokens={limit}",
    NO_PATH: "no path is left, all log-likelihoods forbid it",
}
_PIECE = 64
"""Tokens of a path that are traced at first; then twice as many, and so on."""


@dataclass(frozen=True)
class BestPath:
    """The best path so far.

    Attributes:
        transition_ids: one of each frame, int32, [frames].
        words: output labels that are not epsilon, int32, [words].
        word_frames: the frame in which each word's label stands, int32, [words].
        graph_cost, acoustic_cost: sums along the path; the first with the cost of ending, where the
            path ends in a final state.
        final: whether it does.
    """

    transition_ids: np.ndarray
    words: np.ndarray
    word_frames: np.ndarray
    graph_cost: float
    acoustic_cost: float
    final: bool


class Traced:
    """A best path, which later ones continue.

    Args:
        arcs: of it, `TRACED`, from the first frame on.

    Attributes:
        ids: the transition-id of each frame, int32, [frames].
        tokens: for each frame, the token that its arc leaves: a number that no other token of that
            time has, and that stays the same during the utterance; int32, [frames].
        words: output labels that are not epsilon, int32, [words].
    """

    def __init__(self, arcs: np.ndarray = NO_ARCS) -> None:
        self._arcs = arcs
        self._heard = np.flatnonzero(arcs["ilabel"])
        self.ids = arcs["ilabel"][self._heard]
        self.tokens = arcs["name"][self._heard]
        self.words = arcs["olabel"][arcs["olabel"] != 0]

    def continued(self, pieces: Iterable[np.ndarray]) -> Traced:
        """The path that pieces of `TRACED`, from its end back, and the beginning of this one make:
        up to a token that both leave in a frame, both are the same."""
        new: list[np.ndarray] = []
        begin = 0
        for piece in pieces:
            heard = np.flatnonzero(piece["ilabel"])
            frames = piece["frame"][heard] - 1
            known = np.flatnonzero(frames < len(self.tokens))
            same = known[self.tokens[frames[known]] == piece["name"][heard[known]]]
            if len(same):
                begin = int(self._heard[frames[same[0]]])
                new.append(piece[: heard[same[0]] + 1])
                break
            new.append(piece)
        return Traced(np.concatenate([self._arcs[:begin], *(each[::-1] for each in new[::-1])]))


class Decoder:
    """Token passing over a decoding graph, block by block.

    Tokens of a frame are followed in the order of Kaldi's hash, and the beam tightens on the way.

    Args:
        graph: from `speech.fst`. pdfs: output of the network that each input label of the graph
            reads, [labels + 1]; number 0 is not used.
        options: of pruning.
        outputs: how many outputs the network has; by default those that `pdfs` names.
        compiled_loops: whether C does the search; by default where there is the native
            library. Both give the same. Grammars are searched without it.

    Raises:
        OpscopeError: the graph has an input label that `pdfs` does not know.
    """

    def __init__(
        self,
        graph: SearchGraph,
        pdfs: np.ndarray,
        options: SearchOptions | None = None,
        *,
        outputs: int | None = None,
        compiled_loops: bool | None = None,
    ) -> None:
        self.options = options or SearchOptions()
        pdfs = np.ascontiguousarray(pdfs, np.int32)
        if graph.largest >= len(pdfs):
            raise OpscopeError(
                f"the graph has the input label {graph.largest}, the model has transition-ids up"
                f" to {len(pdfs) - 1}"
            )
        least = int(pdfs[1:].max(initial=-1)) + 1
        self.outputs = least if outputs is None else outputs
        if self.outputs < least or pdfs[1:].min(initial=0) < 0:
            raise OpscopeError(f"transition-ids read outputs up to {least - 1} of {self.outputs}")
        if compiled_loops is None:
            compiled_loops = compiled.available()
        how = pdfs, self.outputs, self.options
        self._tokens: Tokens
        if isinstance(graph, GrammarGraph) or not compiled_loops:
            self._tokens = ArrayTokens(graph, *how)
        else:
            self._tokens = compiled.CompiledTokens(graph, *how)
        self._changes = 0  # of the tokens
        self._newest_at = -1
        self._traced_at = -1, False
        self.reset()

    def reset(self) -> None:
        """Begin a new utterance; arcs that were composed so far are kept."""
        self.finalized = False
        self._path = Traced()
        self._changes += 1
        self._check(self._tokens.start())

    @property
    def frames(self) -> list[Frame]:
        """What is alive at each time, the first one before all frames; to be read only."""
        return self.frames_between(0, self._tokens.count).frames()

    def frames_between(self, begin: int, end: int) -> FrameBlock:
        """Some of `frames`, with their arrays one after the other."""
        return self._tokens.frames(begin, end)

    def token_counts(self, begin: int) -> list[int]:
        """`Frame.counted` of the frames from one on."""
        return self._tokens.sizes(begin, self._tokens.count)[:, 3].tolist()

    @property
    def frames_decoded(self) -> int:
        """How many frames of log-likelihoods were taken."""
        return self._tokens.count - 1

    def accept(self, loglikes: np.ndarray) -> None:
        """Follow the frames of a block.

        Args:
            loglikes: log-likelihoods, float32, [frames, pdfs]; -infinity forbids an output.

        Raises:
            ShapeError: the number of outputs differs from the model's.
            NotFiniteError: one of them is NaN or infinity.
            RunError: the search found no path, or the graph lets it grow without end.
        """
        if self.finalized:
            raise RunError("the utterance is over: reset the decoder before more frames come")
        loglikes = np.asarray(loglikes, np.float32)
        if loglikes.ndim != 2 or loglikes.shape[1] != self.outputs:
            raise ShapeError(
                f"log-likelihoods of shape {loglikes.shape}: [frames, {self.outputs}] is wanted"
            )
        wrong = np.isnan(loglikes) | np.isposinf(loglikes)
        if wrong.any():
            row, column = np.argwhere(wrong)[0].tolist()
            raise NotFiniteError(
                f"frame {self.frames_decoded + row}: the log-likelihood of output {column} is"
                f" {loglikes[row, column]}"
            )
        scaled = np.ascontiguousarray(loglikes * np.float32(self.options.acoustic_scale))
        self._changes += 1
        self._check(self._tokens.accept(scaled))

    def prune(self) -> None:
        """Drop what no path within the lattice beam needs now; `accept` does so now and then."""
        if not self.finalized:
            self._changes += 1
            self._tokens.prune()

    def finalize(self) -> None:
        """End the utterance: costs of ending count, and all tokens outside of the lattice go."""
        if not self.finalized:
            self._changes += 1
            self._tokens.finalize()
            self.finalized = True

    def best_path(self, use_final: bool = True) -> BestPath:
        """The best path so far.

        Args:
            use_final: whether the path must end in a final state, where one is reached.

        Raises:
            RunError: a loop of epsilons, whose costs are nothing but rounding, is on the path.
        """
        if self.finalized and not use_final:
            raise RunError("the utterance is over: its best path has the costs of ending")
        costs, finals = self._newest()
        final = use_final and bool(np.isfinite(finals).any())
        ends = finals if final else np.zeros_like(finals)
        at = int(np.argmin(costs + ends))
        path = np.concatenate(list(self._pieces(at)))[::-1]
        words = path[path["olabel"] != 0]
        heard = path[path["ilabel"] != 0][::-1]
        # one cost after the other from the end on, as they were always added
        graph = np.cumsum(np.append(float(ends[at]), path["graph"][::-1].astype(np.float64)))
        acoustic = heard["acoustic"].astype(np.float64) - heard["offset"]
        return BestPath(
            heard["ilabel"][::-1].copy(),
            words["olabel"].copy(),
            np.maximum(words["frame"] - 1, 0),
            graph_cost=float(graph[-1]),
            acoustic_cost=float(np.cumsum(np.append(0.0, acoustic))[-1]),
            final=final,
        )

    def traced(self, use_final: bool = False) -> Traced:
        """The best path so far, traced back to where it meets the one that was asked for before.

        Args:
            use_final: the costs of ending count, as in `best_path`.

        Raises:
            RunError: a loop of epsilons is on the path.
        """
        asked = self._changes, use_final
        if self._traced_at != asked:
            if use_final:
                costs, finals = self._newest()
                best = int(np.argmin(costs + _ends(finals)))
            else:
                best = self._tokens.best()
            self._path = self._path.continued(self._pieces(best))
            self._traced_at = asked
        return self._path

    def final_relative_cost(self) -> float:
        """How much the best path that ends costs more than the best one; infinity: none ends."""
        costs, finals = self._newest()
        ending = float((costs + finals).min(initial=np.inf))
        return ending - float(costs.min(initial=np.inf)) if np.isfinite(ending) else np.inf

    def end_costs(self, use_final: bool = True) -> np.ndarray:
        """The cost of ending in each token of the newest frame, float32; infinity: none ends there.

        Zero everywhere where no final state is reached, or `use_final` is off.
        """
        if self.finalized and not use_final:
            raise RunError("the utterance is over: its lattice has the costs of ending")
        _, finals = self._newest()
        return _ends(finals) if use_final else np.zeros_like(finals)

    # Inside

    def _newest(self) -> tuple[np.ndarray, np.ndarray]:
        """`Tokens.newest`, which several ask for after each block."""
        if self._newest_at != self._changes:
            self._costs = self._tokens.newest()
            self._newest_at = self._changes
        return self._costs

    def _pieces(self, token: int) -> Iterator[np.ndarray]:
        """The path to a newest token from its end back, `TRACED`, piece by piece."""
        frame = self.frames_decoded
        most = _PIECE
        while token >= 0:
            status, piece, frame, token = self._tokens.traced(frame, token, most)
            if status:
                raise RunError(f"frame {max(frame - 1, 0)}: the graph has a loop of epsilons")
            yield piece
            most *= 2

    def _check(self, status: int) -> None:
        """Raise the error that a status of the search stands for."""
        if status == NO_MEMORY:
            raise MemoryError("tokens of a search")
        if status:
            reason = _WRONG[status].format(limit=self.options.frame_tokens)
            raise RunError(f"frame {max(self.frames_decoded, 0)}: {reason}")


def _ends(finals: np.ndarray) -> np.ndarray:
    """Costs of ending as they count: zero everywhere where nothing ends."""
    return finals if np.isfinite(finals).any() else np.zeros_like(finals)
