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

Layer = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""See `layers`."""


@dataclass(eq=False)
class _Paths:
    """States and arcs, sorted by time, of the segments of a supervision.

    Attributes:
        states: how many; the end of segment n is state `states` + n. begins: first state of each
            segment. source, target, segment, score: of the arcs.
        forward, backward: the arcs frame by frame.
        real: arcs that an output of the network belongs to. place: of each of these, its number
            among the places. rows, pdfs: of the places.
    """

    states: int
    begins: np.ndarray
    source: np.ndarray
    target: np.ndarray
    segment: np.ndarray
    score: np.ndarray
    forward: list[Layer]
    backward: list[Layer]
    real: np.ndarray
    place: np.ndarray
    rows: np.ndarray
    pdfs: np.ndarray


class Numerator:
    """The paths of a supervision, ready for any number of network outputs.

    Raises:
        ShapeError: the FST's paths do not have one length.
    """

    def __init__(self, supervision: Supervision) -> None:
        self.supervision = supervision
        if supervision.fst is not None:
            self._paths = _paths_of_fst(supervision, supervision.fst)
        else:
            self._paths = _unrolled(supervision)
        self.states = self._paths.states
        self.segments = len(self._paths.begins)
        self.rows, self.pdfs = self._paths.rows, self._paths.pdfs

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
        paths = self._paths
        score = paths.score.copy()
        score[paths.real] += log_likes.astype(np.float64)[paths.place]
        size = self.states + self.segments
        alpha = np.full(size, -np.inf)
        alpha[paths.begins] = 0.0
        for arcs, source, starts, target in paths.forward:
            alpha[target] = np.logaddexp.reduceat(alpha[source] + score[arcs], starts)
        beta = np.full(size, -np.inf)
        beta[self.states :] = 0.0
        for arcs, source, starts, target in paths.backward:
            beta[target] = np.logaddexp.reduceat(beta[source] + score[arcs], starts)
        totals = alpha[self.states :]
        share = alpha[paths.source] + score + beta[paths.target] - totals[paths.segment]
        occupied = np.exp(share[paths.real])
        posterior = bincount(paths.place, occupied, len(self.rows))
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
        paths = self._paths
        order = np.argsort(paths.place, kind="stable")
        cells = self.rows * columns + self.pdfs
        cell = np.full(len(paths.source), -1)
        cell[paths.real] = cells[paths.place]
        forward, backward = _listed(paths.forward), _listed(paths.backward)
        return {
            "weight": paths.score,
            "cell": _whole(cell),
            "source": _whole(paths.source),
            "target": _whole(paths.target),
            "segment": _whole(paths.segment),
            "begins": _whole(paths.begins),
            **forward,
            **{f"back_{name}": array for name, array in backward.items()},
            "places": _whole(np.searchsorted(paths.place[order], np.arange(len(self.rows) + 1))),
            "of_place": _whole(paths.real[order]),
            "cell_of_place": _whole(cells),
        }


def _whole(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.int64)


def _listed(layers: list[Layer]) -> dict[str, np.ndarray]:
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


def _paths_of_fst(supervision: Supervision, fst: Fst) -> _Paths:
    """The paths of the one FST, with arcs from its final states to one end."""
    times = state_times(fst)
    length, frames = supervision.rows, supervision.frames_per_sequence
    if times[-1] != length:
        raise ShapeError(f"the supervision has {length} frames, but its FST has {times[-1]}")
    time = times[fst.source()]
    row = time % frames * supervision.num_sequences + time // frames
    final = np.flatnonzero(~np.isinf(fst.final))
    source = np.concatenate([fst.source(), final])
    # A state that is alone at its time is where a segment ends and the next one begins; ends of
    # segments are numbered from `states` on.
    begins = np.flatnonzero(bincount(times)[times] == 1)
    stop_of = np.full(fst.states + 1, -1)
    stop_of[np.append(begins[1:], fst.states)] = fst.states + np.arange(len(begins))
    target = np.append(fst.nextstate, np.full(len(final), fst.states))
    target = np.where(stop_of[target] >= 0, stop_of[target], target)
    segment = np.searchsorted(begins, source, side="right") - 1
    step = times[source] - times[begins][segment]
    places, place = np.unique(row * supervision.label_dim + fst.ilabel - 1, return_inverse=True)
    return _Paths(
        states=fst.states,
        begins=begins,
        source=source,
        target=target,
        segment=segment,
        score=-np.concatenate([fst.weight, fst.final[final]]).astype(np.float64),
        forward=layers(step, source, target),
        backward=layers(step, target, source)[::-1],
        real=np.arange(len(row)),
        place=place,
        rows=places // supervision.label_dim,
        pdfs=places % supervision.label_dim,
    )


def _unrolled(supervision: Supervision) -> _Paths:
    """The paths of the sequences' FSTs, of any form: side by side they are one FST, of which there
    is a copy for each frame."""
    frames, sequences = supervision.frames_per_sequence, supervision.num_sequences
    for fst in supervision.e2e_fsts:
        check_labels(fst)
    counts = [fst.states for fst in supervision.e2e_fsts]
    first = np.cumsum([0, *counts])
    states, first = int(first[-1]), first[:-1]
    source, target, pdf, score, final_score = (
        np.concatenate(column)
        for column in zip(
            *(
                (fst.source() + at, fst.nextstate + at, fst.ilabel - 1, fst.weight, fst.final)
                for at, fst in zip(first.tolist(), supervision.e2e_fsts, strict=True)
            ),
            strict=True,
        )
    )
    sequence_of = repeated(np.arange(sequences), counts)
    arcs, count = np.arange(len(source)), len(source)
    final = np.flatnonzero(~np.isinf(final_score))
    ends = (frames + 1) * states + sequence_of[final]
    ((towards, from_where, starts, targets),) = layers(np.zeros(count, int), source, target)
    back_starts = np.flatnonzero(np.diff(source, prepend=-1))
    last = count * frames + np.arange(len(final))
    end_starts = np.flatnonzero(np.diff(ends, prepend=-1))
    before = np.arange(frames)[:, None]
    cells = sequence_of[source] * supervision.label_dim + pdf
    places, place = np.unique(cells, return_inverse=True)
    every = (before * (sequences * supervision.label_dim) + places).ravel()
    return _Paths(
        states=(frames + 1) * states,
        begins=first,
        source=np.append(before * states + source, frames * states + final),
        target=np.append((before + 1) * states + target, ends),
        segment=np.append(np.tile(sequence_of[source], frames), sequence_of[final]),
        score=-np.append(np.tile(score, frames), final_score[final]).astype(np.float64),
        forward=[
            (towards + t * count, from_where + t * states, starts, targets + (t + 1) * states)
            for t in range(frames)
        ]
        + [(last, frames * states + final, end_starts, ends[end_starts])],
        backward=[(last, ends, np.arange(len(final)), frames * states + final)]
        + [
            (
                arcs + t * count,
                target + (t + 1) * states,
                back_starts,
                source[back_starts] + t * states,
            )
            for t in range(frames - 1, -1, -1)
        ],
        real=np.arange(count * frames),
        place=(before * len(places) + place).ravel(),
        rows=every // supervision.label_dim,
        pdfs=every % supervision.label_dim,
    )
