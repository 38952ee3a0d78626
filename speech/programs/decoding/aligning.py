"""nnet3-align-compiled.

Source: Kaldi's `nnet3bin/nnet3-align-compiled.cc`, `decoder/decoder-wrappers.cc`,
`hmm/hmm-utils.cc`.
"""

from __future__ import annotations

import contextlib
import math
from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError, OpscopeError
from ....kaldi.files.kaldi_io import Reader
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.fst.arcs import ARC
from ....kaldi.fst.fst import Fst
from ....kaldi.tables.tables import TableWriter
from ....nnet3.inference.chunks import ChunkComputer
from ....nnet3.programs.base.options import DEBUG, GPU, chosen_place, errors_tell
from ....nnet3.programs.base.passes import chosen_passes, optimization_options
from ....nnet3.programs.base.program import Option, program
from ....nnet3.programs.base.saving import fail_unless
from ....nnet3.programs.compute import IVECTORS, Utterances, chunk_options, chunked, tell_chunk
from ...fst.graph import StaticGraph
from ...search.alignment import best_alignment
from ...search.decoder import BestPath
from ...search.options import DECODING_SCALE
from .acoustic_model import AcousticModel, with_graphs

_LEAST = 1e-10  # probability of leaving a state, where loops leave nothing


@program(
    "nnet3-align-compiled",
    "Align features given nnet3 neural net model; graphs come from compile-train-graphs, without"
    " the probabilities of transitions.",
    (
        "<nnet-in>",
        "<graphs-rspecifier>",
        "<features-rspecifier>",
        "<alignments-wspecifier>",
        "[<scores-wspecifier>]",
    ),
    *chunk_options(DECODING_SCALE),
    Option("beam", 200.0, "Decoding beam used in alignment"),
    Option("retry-beam", 0.0, "Decoding beam of a second try; 0: there is none"),
    Option("careful", False, "Detect alignments that fail: the graph may begin again at its end"),
    Option("transition-scale", 1.0, "Scale of transition probabilities [relative to acoustics]"),
    Option(
        "self-loop-scale",
        1.0,
        "Scale of self-loop versus non-self-loop log probs [relative to acoustics]",
    ),
    Option(
        "write-per-frame-acoustic-loglikes",
        "",
        "Wspecifier of the acoustic log-likelihood of each frame, a vector for each utterance",
    ),
    *IVECTORS,
    GPU,
    *DEBUG,
    *optimization_options(),
)
def nnet3_align_compiled(
    options: SimpleNamespace, model: str, graphs: str, features: str, alignments: str, scores: str
) -> None:
    _check_beams(options.beam, options.retry_beam)
    acoustic = AcousticModel.read(model)
    network = acoustic.network
    reader = Reader(network.transition_model, name=model, binary=network.binary)
    costs = transition_costs(
        TransitionModel.read_from(reader), options.transition_scale, options.self_loop_scale
    )
    how = True, chosen_place(options.use_gpu), chosen_passes(options)
    with errors_tell(model):
        computer = ChunkComputer(network, chunked(options), *how)
    tell_chunk(options, computer)
    inputs = Utterances(options, features)
    waiting: list[Fst] = []
    with contextlib.ExitStack() as stack:
        outputs = _Outputs(options, stack, alignments, scores)
        aligning = _Aligning(options, acoustic, outputs)

        def not_empty(key: str, fst: Fst) -> Fst | None:
            if 0 <= fst.start < fst.states:
                return fst
            inputs.fail(f"Empty decoding graph for {key}")
            return None

        absent = "No features for utterance {}"
        pairs = with_graphs(inputs, graphs, features, absent, not_empty, waiting)
        for key, matrix in computer.compute_all(pairs):
            fst = with_costs(waiting.pop(0), costs, f"{graphs}: {key}")
            aligning.utterance(key, looped(fst) if options.careful else fst, matrix)
    aligning.tell(inputs.failed)


def _check_beams(beam: float, retry: float) -> None:
    if not (beam > 0 and math.isfinite(beam)) or (retry and not beam < retry < math.inf):
        raise OpscopeError(f"Beams do not make sense: beam {beam:g}, retry-beam {retry:g}")


def transition_costs(
    model: TransitionModel, transition_scale: float, self_loop_scale: float
) -> np.ndarray:
    """The cost of each transition-id, float32, [transition-ids + 1].

    Args:
        transition_scale: of the choice among transitions that leave their state.
        self_loop_scale: of staying in the state or leaving it.

    Raises:
        FormatError: the model has no probability for a transition.
    """
    known = model.transitions()
    logs = model.log_probs.astype(np.float32)
    if len(logs) != len(known.state):
        raise FormatError(
            f"the transition model has {len(logs)} probabilities of {len(known.state)} transitions"
        )
    if transition_scale == self_loop_scale:
        return -(logs * np.float32(transition_scale))
    leaving = np.zeros(int(known.state.max(initial=0)) + 1, np.float32)
    loops = np.flatnonzero(known.is_loop)
    stays = np.exp(logs[loops].astype(np.float64))
    leaving[known.state[loops]] = np.log(np.maximum(1 - stays, _LEAST))
    leaves = leaving[known.state]
    loop, other = np.float32(self_loop_scale), np.float32(transition_scale)
    return -np.where(known.is_loop, loop * logs, loop * leaves + other * (logs - leaves))


def with_costs(fst: Fst, costs: np.ndarray, what: str) -> Fst:
    """A graph with the costs of transition-ids added.

    Raises:
        FormatError: an input label is no transition-id.
    """
    labels = fst.ilabel
    wrong = np.flatnonzero((labels < 0) | (labels >= len(costs)))
    if len(wrong):
        raise FormatError(
            f"{what}: invalid symbol {labels[wrong[0]]} on graph input side: the model has"
            f" transition-ids up to {len(costs) - 1}"
        )
    added = np.where(labels > 0, costs[labels], np.float32(0))
    return fst.with_columns(weight=fst.weight + added)


def looped(fst: Fst) -> Fst:
    """A graph that may go through another time after its end, and never end there.

    What fits better with more of the text than there is does not reach a final state.
    """
    states = fst.states
    ends = np.flatnonzero(np.isfinite(fst.final))
    added = np.zeros(len(ends) + 1, ARC)
    added["weight"][:-1] = fst.final[ends]
    added["nextstate"][:-1] = 2 * states  # the state that both ends in and begins again
    added["nextstate"][-1] = states + fst.start
    again = fst.arcs.copy()
    again["nextstate"] += states
    source = np.concatenate([fst.source(), fst.source() + states, ends, [2 * states]])
    arcs = np.concatenate([fst.arcs, again, added])
    order = np.argsort(source, kind="stable")
    begin = np.searchsorted(source[order], np.arange(2 * states + 2)).astype(np.int64)
    final = np.full(2 * states + 1, np.inf, np.float32)
    final[-1] = 0
    return Fst(fst.start, final, begin, arcs[order])


class _Outputs:
    """The tables that are written."""

    def __init__(
        self, options: SimpleNamespace, stack: contextlib.ExitStack, alignments: str, scores: str
    ) -> None:
        frames = options.write_per_frame_acoustic_loglikes
        self._alignments = stack.enter_context(TableWriter(alignments, "int_vector"))
        self._scores = stack.enter_context(TableWriter(scores, "float")) if scores else None
        self._frames = stack.enter_context(TableWriter(frames, "vector")) if frames else None

    def write(self, key: str, best: BestPath, frames: np.ndarray) -> None:
        """Write the path of an utterance.

        Args:
            frames: the log-likelihood of each.
        """
        self._alignments.write(key, best.transition_ids)
        if self._scores is not None:
            self._scores.write(key, -(best.graph_cost + best.acoustic_cost))
        if self._frames is not None:
            self._frames.write(key, frames)


class _Aligning:
    """Aligns utterances, and counts."""

    def __init__(self, options: SimpleNamespace, model: AcousticModel, outputs: _Outputs) -> None:
        self._options = options
        self._model = model
        self._outputs = outputs
        self._program = options.program
        self._scale = float(np.float32(options.acoustic_scale))
        self._done = self._failed = self._retried = self._frames = 0
        self._likelihood = 0.0

    def utterance(self, key: str, fst: Fst, loglikes: np.ndarray) -> None:
        """Align an utterance, of which the network gave scaled log-likelihoods."""
        options = self._options
        warn = self._program.warn
        graph = StaticGraph.of(fst)

        def retry(beam: float) -> None:
            self._retried += 1
            warn(f"Retrying utterance {key} with beam {beam:g}")

        beams = [options.beam, *([options.retry_beam] if options.retry_beam else [])]
        with errors_tell(key):
            best = best_alignment(
                graph,
                self._model.pdfs,
                loglikes,
                beams,
                retry,
                lambda error: warn(f"{key}: {error}"),
            )
        if not best.final:
            warn(f"Did not successfully decode file {key}, len = {len(loglikes)}")
            self._failed += 1
            return
        rows = loglikes[np.arange(len(loglikes)), self._model.pdfs[best.transition_ids]]
        self._outputs.write(key, best, rows / np.float32(self._scale or 1))
        self._likelihood -= (best.graph_cost + best.acoustic_cost) / (self._scale or 1)
        self._frames += len(loglikes)
        self._done += 1

    def tell(self, failed: int) -> None:
        """Log the counts; no output at all is a failure.

        Args:
            failed: utterances that were not aligned.
        """
        log = self._program.log
        failed += self._failed
        mean = self._likelihood / self._frames if self._frames else math.nan
        log(f"Overall log-likelihood per frame is {mean:g} over {self._frames} frames.")
        log(f"Retried {self._retried} out of {self._done + failed} utterances.")
        log(f"Done {self._done}, errors on {failed}")
        fail_unless(self._done)
