"""The decoder: log-likelihoods come in blocks; the best path is there at any time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import NotFiniteError, OpscopeError, RunError, ShapeError
from ..fst.graph import Graph
from . import compiled
from .arrays import ArrayLoops
from .frames import LINK, MANY_STATES, MANY_TOKENS, NEGATIVE_LOOP, TOKEN, Frame, Loops
from .options import SearchOptions

_WRONG = {
    MANY_STATES: "the composed graph has too many states",
    NEGATIVE_LOOP: "the graph has a loop of epsilons whose costs are below zero",
    MANY_TOKENS: "more tokens in a frame than frame_tokens={limit}",
}


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


class Decoder:
    """Token passing over a decoding graph, block by block.

    Tokens of a frame are followed in the order of Kaldi's hash, and the beam tightens on the way.

    Args:
        graph: from `speech.fst`. pdfs: output of the network that each input label of the graph
            reads, [labels + 1]; number 0 is not used.
        options: of pruning.
        outputs: how many outputs the network has; by default those that `pdfs` names.
        compiled_loops: whether C does the inner loops; by default where there is the native
            library. Both give the same.

    Raises:
        OpscopeError: the graph has an input label that `pdfs` does not know.
    """

    def __init__(
        self,
        graph: Graph,
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
        kind = compiled.CompiledLoops if compiled_loops else ArrayLoops
        self._loops: Loops = kind(graph, pdfs, self.options)
        self.reset()

    def reset(self) -> None:
        """Begin a new utterance; arcs that were composed so far are kept."""
        self.finalized = False
        self._states = np.array([self._loops.start()], np.int32)
        self._final_costs: np.ndarray | None = None
        self._finals: np.ndarray | None = None
        self.frames: list[Frame] = []
        self._advance(np.zeros(0, TOKEN), None)

    @property
    def frames_decoded(self) -> int:
        """How many frames of log-likelihoods were taken."""
        return len(self.frames) - 1

    def accept(self, loglikes: np.ndarray) -> None:
        """Follow the frames of a block.

        Args:
            loglikes: log-likelihoods, float32, [frames, pdfs]; -infinity forbids an output.

        Raises:
            ShapeError: the number of outputs is not that of the model.
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
        for row in scaled:
            if self.frames_decoded % self.options.prune_interval == 0:
                self._prune_active()
            self._states = self._loops.shrink(self._states, self.options.graph_arcs)
            self._advance(self.frames[-1].tokens, row)

    def prune(self) -> None:
        """Drop what no path within the lattice beam needs now; `accept` does so now and then."""
        if not self.finalized:
            self._prune_active()

    def finalize(self) -> None:
        """End the utterance: costs of ending count, and all tokens outside of the lattice go."""
        if self.finalized:
            return
        self._finals = self._finals_now()
        costs, best = self._ends()
        self._final_costs = costs
        last = self.frames[-1]
        base = (last.tokens["cost"] + costs) - np.float32(best)
        nothing = np.zeros(0, TOKEN)
        beam = self.options.lattice_beam
        last.onward, last.links, _ = self._loops.prune(last, base, nothing, beam, 0.0)
        for number in range(len(self.frames) - 2, -1, -1):
            self._prune_links(number, 0.0)
            self._drop_tokens(number + 1)
        self._drop_tokens(0)
        self.finalized = True

    def best_path(self, use_final: bool = True) -> BestPath:
        """The best path so far.

        Args:
            use_final: whether the path must end in a final state, where one is reached.

        Raises:
            RunError: a loop of epsilons, whose costs are nothing but rounding, is on the path.
        """
        costs = self._final_costs
        if costs is None:
            costs = self._ends()[0] if use_final else np.zeros(len(self._states), np.float32)
        elif not use_final:
            raise RunError("the utterance is over: its best path has the costs of ending")
        reached = bool(np.isfinite(self._finals_now()).any()) if use_final else False
        tokens = self.frames[-1].tokens
        at = int(np.argmin(tokens["cost"] + costs))
        end_cost = float(costs[at])
        number = len(self.frames) - 1
        labels = []
        words = []
        places = []
        graph = end_cost
        acoustic = 0.0
        steps = 0
        while at >= 0:
            steps += 1
            if steps > len(self.frames[number].tokens):
                raise RunError(f"frame {max(number - 1, 0)}: the graph has a loop of epsilons")
            _, _, back, ilabel, olabel, arc_cost, frame_cost = self.frames[number].tokens[at].item()
            graph += arc_cost
            if olabel:
                words.append(olabel)
                places.append(max(number - 1, 0))
            if ilabel:
                labels.append(ilabel)
                number = number - 1
                steps = 0
                acoustic += frame_cost - self.frames[number].offset
            at = back
        return BestPath(
            *(np.array(each[::-1], np.int32) for each in (labels, words, places)),
            graph_cost=graph,
            acoustic_cost=acoustic,
            final=reached,
        )

    def trace_back(self, use_final: bool = False) -> Iterator[tuple[int, int, int]]:
        """The frames of the best path so far, from the newest one back.

        Args:
            use_final: the costs of ending count, as in `best_path`.

        Yields:
            The frame, its transition-id, and the token that the arc leaves: a number that no other
            token of that time has, and that stays while the utterance goes on.

        Raises:
            RunError: a loop of epsilons is on the path.
        """
        number = len(self.frames) - 1
        steps = 0
        costs = self.frames[-1].tokens["cost"]
        at = int(np.argmin(costs + self.end_costs() if use_final else costs))
        while at >= 0:
            _, _, back, ilabel, *_ = self.frames[number].tokens[at].item()
            steps += 1
            if steps > len(self.frames[number].tokens):
                raise RunError(f"frame {max(number - 1, 0)}: the graph has a loop of epsilons")
            if ilabel:
                number = number - 1
                steps = 0
                yield number, ilabel, int(self.frames[number].names[back])
            at = back

    def final_relative_cost(self) -> float:
        """How much the best path that ends costs more than the best one; infinity: none ends."""
        tokens = self.frames[-1].tokens["cost"]
        ending = float((tokens + self._finals_now()).min(initial=np.inf))
        return ending - float(tokens.min(initial=np.inf)) if np.isfinite(ending) else np.inf

    def end_costs(self, use_final: bool = True) -> np.ndarray:
        """The cost of ending in each token of the newest frame, float32; infinity: none ends there.

        Zero everywhere where no final state is reached, or `use_final` is off.
        """
        if self._final_costs is not None:
            if not use_final:
                raise RunError("the utterance is over: its lattice has the costs of ending")
            return self._final_costs
        return self._ends()[0] if use_final else np.zeros(len(self._states), np.float32)

    # Inside

    def _advance(self, tokens: np.ndarray, likelihood: np.ndarray | None) -> None:
        status, states, fresh, onward, links, offset = self._loops.step(
            self._states, tokens, likelihood
        )
        frame = self.frames_decoded if self.frames else 0
        if status in _WRONG:
            reason = _WRONG[status].format(limit=self.options.frame_tokens)
            raise RunError(f"frame {frame}: {reason}")
        if status:
            raise MemoryError("tokens of a search")
        if not len(states):
            raise RunError(f"frame {frame}: no path is left, all log-likelihoods forbid it")
        if self.frames:
            self.frames[-1].onward = onward
            self.frames[-1].offset = offset
        self.frames.append(Frame(fresh, links, np.empty(0, LINK)))
        self._states = states

    def _finals_now(self) -> np.ndarray:
        return self._loops.finals(self._states) if self._finals is None else self._finals

    def _ends(self) -> tuple[np.ndarray, float]:
        """Costs of ending in the newest tokens, zero where none is final; the best total."""
        costs = self._finals_now()
        tokens = self.frames[-1].tokens["cost"]
        if not np.isfinite(costs).any():
            costs = np.zeros(len(tokens), np.float32)
        return costs, float((tokens + costs).min())

    def _prune_active(self) -> None:
        """Drop links and tokens that no path within the lattice beam needs, newest frames first."""
        delta = self.options.lattice_beam * self.options.prune_scale
        last = len(self.frames) - 1
        newest = self.frames[last]
        newest.counted = newest.counted or len(newest.tokens)
        for number in range(last - 1, -1, -1):
            frame = self.frames[number]
            if frame.prune_links:
                if self._prune_links(number, delta) and number:
                    self.frames[number - 1].prune_links = True
                frame.prune_links = False
            if number + 1 < last and self.frames[number + 1].prune_tokens:
                self._drop_tokens(number + 1)
                self.frames[number + 1].prune_tokens = False

    def _prune_links(self, number: int, delta: float) -> bool:
        frame = self.frames[number]
        before = len(frame.onward) + len(frame.links)
        base = np.full(len(frame.tokens), np.inf, np.float32)
        frame.onward, frame.links, changed = self._loops.prune(
            frame, base, self.frames[number + 1].tokens, self.options.lattice_beam, delta
        )
        if len(frame.onward) + len(frame.links) < before:
            frame.prune_tokens = True
            frame.onward = frame.onward.copy()
            frame.links = frame.links.copy()
        return changed

    def _drop_tokens(self, number: int) -> None:
        """Take tokens that no path within the lattice beam needs out of a frame."""
        frame = self.frames[number]
        frame.counted = len(frame.tokens)
        kept = np.isfinite(frame.tokens["extra"])
        if kept.all():
            return
        places = np.cumsum(kept, dtype=np.int32) - np.int32(1)
        places[~kept] = -1
        frame.tokens = frame.tokens[kept]
        frame.names = frame.names[kept]
        inside = frame.tokens["ilabel"] == 0
        self._move_backs(frame.tokens, inside, places)
        frame.links["from"], frame.links["to"] = (
            places[frame.links["from"]],
            places[frame.links["to"]],
        )
        frame.onward["from"] = places[frame.onward["from"]]
        if number:
            before = self.frames[number - 1]
            before.onward["to"] = places[before.onward["to"]]
        if number + 1 < len(self.frames):
            tokens = self.frames[number + 1].tokens
            self._move_backs(tokens, tokens["ilabel"] != 0, places)
        else:
            self._states = self._states[kept]
            if self._final_costs is not None and self._finals is not None:
                self._final_costs = self._final_costs[kept]
                self._finals = self._finals[kept]

    @staticmethod
    def _move_backs(tokens: np.ndarray, which: np.ndarray, places: np.ndarray) -> None:
        back = tokens["back"]
        which = which & (back >= 0)
        back[which] = places[back[which]]
