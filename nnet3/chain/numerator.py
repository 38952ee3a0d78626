"""The numerator of LF-MMI: forward-backward over the supervision's own paths, in logarithms.

Source: Kaldi's `chain/chain-numerator.cc`, and `chain/chain-generic-numerator.cc` for end-to-end
supervision. A frame at which all paths meet in one state cuts the FST; the segments between cuts
are gone through side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import ShapeError
from ...framework.base.sequence import bincount, repeated
from ...kaldi.fst.fst import Fst
from ...kaldi.lattices.layers import layers
from .supervisions.supervision import Supervision, check_labels, state_times


@dataclass(eq=False)
class _Arcs:
    """Arcs between states that are sorted by time; `row` -1 is no row of the network."""

    source: np.ndarray
    target: np.ndarray
    row: np.ndarray
    pdf: np.ndarray
    score: np.ndarray


class Numerator:
    """The paths of a supervision, ready for any number of network outputs.

    Raises:
        ShapeError: the FST's paths do not have one length.
    """

    def __init__(self, supervision: Supervision) -> None:
        self.supervision = supervision
        if supervision.fst is not None:
            arcs, times, ends = _arcs_of_fst(supervision, supervision.fst)
        else:
            arcs, times, ends = _unrolled(supervision)
        states = len(times)
        # A state that is alone at its time is where a segment ends and the next one begins; ends
        # of segments are numbered from `states` on.
        alone = bincount(times)[times] == 1
        alone[ends] = False
        begins = np.flatnonzero(alone)
        stops = np.concatenate([begins[1:], ends])
        if supervision.e2e_fsts:
            begins = np.flatnonzero(times == 0)
            stops = ends
        stop_of = np.full(states, -1)
        stop_of[stops] = states + np.arange(len(stops))
        target = np.where(stop_of[arcs.target] >= 0, stop_of[arcs.target], arcs.target)
        segment = np.searchsorted(begins, arcs.source, side="right") - 1
        step = times[arcs.source] - times[begins][segment]
        self._begins = begins
        self.states = states
        self.segments = len(begins)
        self._cell = arcs.row, arcs.pdf
        self._score = arcs.score
        self._source = arcs.source
        self._target = target
        self._segment = segment
        self._forward = layers(step, arcs.source, target)
        self._backward = layers(step, target, arcs.source)[::-1]
        real = np.flatnonzero(arcs.row >= 0)
        key = arcs.row[real] * supervision.label_dim + arcs.pdf[real]
        places, self._place = np.unique(key, return_inverse=True)
        self._real = real
        self.rows = places // supervision.label_dim
        self.pdfs = places % supervision.label_dim

    def __call__(self, log_likes: np.ndarray) -> tuple[float, np.ndarray]:
        """Forward-backward.

        Args:
            log_likes: the network's output at `rows`, `pdfs`, [places].

        Returns:
            The log-probability of all sequences together, and the posterior of each place.
        """
        with np.errstate(invalid="ignore"):  # outputs that are not finite: the caller sees NaN
            return self._sum(log_likes)

    def _sum(self, log_likes: np.ndarray) -> tuple[float, np.ndarray]:
        score = self._score.copy()
        score[self._real] += log_likes.astype(np.float64)[self._place]
        size = self.states + self.segments
        alpha = np.full(size, -np.inf)
        alpha[self._begins] = 0.0
        for arcs, source, starts, target in self._forward:
            alpha[target] = np.logaddexp.reduceat(alpha[source] + score[arcs], starts)
        beta = np.full(size, -np.inf)
        beta[self.states :] = 0.0
        for arcs, source, starts, target in self._backward:
            beta[target] = np.logaddexp.reduceat(beta[source] + score[arcs], starts)
        totals = alpha[self.states :]
        share = alpha[self._source] + score + beta[self._target] - totals[self._segment]
        occupied = np.exp(share[self._real])
        posterior = bincount(self._place, occupied, len(self.rows))
        return float(totals.sum()), posterior

    def arrays(self, columns: int) -> dict[str, np.ndarray]:
        """The lists as a kernel takes them, for an output of so many columns.

        Returns:
            For each arc: `weight`, `cell` of the output (-1: none), `source`, `target`, `segment`.
            For each segment: its first state, `begins`. Forward, and once more backward (`back_`):
            each layer's first group, `layers`; each group's first arc and its state, `groups` and
            `states`; the arcs, group by group. For each cell with posteriors: its first arc in
            `of_place`, `places`; its own number, `cell_of_place`.
        """
        row, pdf = self._cell
        order = np.argsort(self._place, kind="stable")
        forward, backward = _listed(self._forward), _listed(self._backward)
        return {
            "weight": self._score,
            "cell": _whole(np.where(row < 0, -1, row * columns + pdf)),
            "source": _whole(self._source),
            "target": _whole(self._target),
            "segment": _whole(self._segment),
            "begins": _whole(self._begins),
            **forward,
            **{f"back_{name}": array for name, array in backward.items()},
            "places": _whole(np.searchsorted(self._place[order], np.arange(len(self.rows) + 1))),
            "of_place": _whole(self._real[order]),
            "cell_of_place": _whole(self.rows * columns + self.pdfs),
        }


def _whole(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.int64)


def _listed(layers: list[tuple[np.ndarray, ...]]) -> dict[str, np.ndarray]:
    """Layers of arcs, grouped by the state that they lead to, as flat lists."""
    arcs = [arcs for arcs, *_ in layers]
    before = np.cumsum([0, *map(len, arcs)])
    groups = [starts + first for (*_, starts, _), first in zip(layers, before, strict=False)]
    return {
        "layers": _whole(np.cumsum([0, *map(len, groups)])),
        "groups": _whole(np.concatenate([*groups, before[-1:]])),
        "states": _whole(np.concatenate([states for *_, states in layers])),
        "arcs": _whole(np.concatenate(arcs)),
    }


def numerator(supervision: Supervision, output: np.ndarray) -> tuple[float, np.ndarray]:
    """The log-probability of the supervision's paths and the posteriors, [rows, pdfs].

    Args:
        supervision: with the FSTs.
        output: of the network, [frames * sequences, pdfs].

    Raises:
        ShapeError: `output` does not fit the supervision.
    """
    check_output(supervision, output.shape)
    paths = Numerator(supervision)
    log_prob, occupied = paths(output[paths.rows, paths.pdfs])
    posterior = np.zeros(output.shape, output.dtype)
    posterior[paths.rows, paths.pdfs] = occupied
    return log_prob, posterior


def check_output(supervision: Supervision, shape: tuple[int, ...]) -> None:
    """Refuse an output of another shape than the supervision is for.

    Raises:
        ShapeError: it is of another one.
    """
    expected = (supervision.rows, supervision.label_dim)
    if shape != expected:
        raise ShapeError(
            f"the supervision is for {supervision.num_sequences} sequences of "
            f"{supervision.frames_per_sequence} frames and {supervision.label_dim} pdfs, so for an "
            f"output of shape {list(expected)}; the network gives {list(shape)}"
        )


def _arcs_of_fst(supervision: Supervision, fst: Fst) -> tuple[_Arcs, np.ndarray, np.ndarray]:
    """Arcs of the one FST, with arcs from its final states to one end; times; the end."""
    times = state_times(fst)
    length, frames = supervision.rows, supervision.frames_per_sequence
    if times[-1] != length:
        raise ShapeError(f"the supervision has {length} frames, but its FST has {times[-1]}")
    source = fst.source()
    time = times[source]
    row = time % frames * supervision.num_sequences + time // frames
    final = np.flatnonzero(~np.isinf(fst.final))
    end = fst.states
    arcs = _Arcs(
        np.concatenate([source, final]),
        np.concatenate([fst.nextstate, np.full(len(final), end)]),
        np.concatenate([row, np.full(len(final), -1)]),
        np.concatenate([fst.ilabel - 1, np.full(len(final), -1)]),
        -np.concatenate([fst.weight, fst.final[final]]).astype(np.float64),
    )
    return arcs, np.append(times, length + 1), np.array([end])


def _unrolled(supervision: Supervision) -> tuple[_Arcs, np.ndarray, np.ndarray]:
    """The sequences' FSTs, of any form, unrolled over the frames, one after the other."""
    frames, sequences = supervision.frames_per_sequence, supervision.num_sequences
    pieces: list[tuple[np.ndarray, ...]] = []
    times, ends = [], []
    offset = 0
    steps = np.arange(frames)[:, None]
    for number, fst in enumerate(supervision.e2e_fsts):
        check_labels(fst)
        # State s before frame t is offset + t * states + s; the first one is in state 0 alone.
        source = offset + steps * fst.states + fst.source()
        target = offset + (steps + 1) * fst.states + fst.nextstate
        used = np.ones(source.shape, bool)
        used[0] = fst.source() == 0
        row = np.broadcast_to(steps * sequences + number, source.shape)
        pdf, score = (np.broadcast_to(v, source.shape) for v in (fst.ilabel - 1, -fst.weight))
        pieces.append(tuple(v[used] for v in (source, target, row, pdf, score)))
        final = np.flatnonzero(~np.isinf(fst.final))
        end = offset + (frames + 1) * fst.states
        nothing = np.full(len(final), -1)
        last = offset + frames * fst.states + final
        pieces.append((last, np.full(len(final), end), nothing, nothing, -fst.final[final]))
        time = repeated(np.arange(frames + 1), fst.states)
        time[1 : fst.states] = frames + 1  # never reached
        times += [time, [frames + 1]]
        ends.append(end)
        offset = end + 1
    columns = [np.concatenate(column) for column in zip(*pieces, strict=True)]
    columns[4] = columns[4].astype(np.float64)
    return _Arcs(*columns), np.concatenate(times), np.array(ends)
