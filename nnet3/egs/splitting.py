"""Cutting utterances into chunks of a few allowed lengths.

A split is a list of chunk lengths: any number of the principal length and at most two others. For
each length of utterance those splits are chosen whose duration comes closest to it, too short
counting twice as much as too long; one of them is drawn. Gaps or overlaps are then spread out.

Source: `UtteranceSplitter` in Kaldi's `nnet3/nnet-example-utils.cc`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.errors import AttributeTypeError
from ...framework.base.options.option_fields import option
from ...framework.base.untrusted.limits import check_limit
from ..training.progress import Log, number

_LONGEST = 10_000  # frames of a chunk: tables of splits are made for three times as many
_SLACK = 1.9999
"""Splits that cost no more than this above the best are taken as well."""


@dataclass(frozen=True)
class ExampleGenerationOptions:
    """The chunks that utterances are cut into, with the names of Kaldi's options.

    Attributes:
        num_frames: allowed chunk lengths, the principal one first; () = whole utterances. Rounded
            up to multiples of the subsampling factor.

    Raises:
        AttributeTypeError: a value out of bounds.
    """

    num_frames: tuple[int, ...] = (1,)
    left_context: int = option(0, "Frames of input before those with labels")
    right_context: int = option(0, "Frames of input after those with labels")
    left_context_initial: int = option(-1, "If >= 0, the same at the start of an utterance")
    right_context_final: int = option(-1, "If >= 0, the same at the end of an utterance")
    num_frames_overlap: int = option(0, "Frames that neighboring examples share, about")
    frame_subsampling_factor: int = option(1, "Input frames for one frame of labels")

    def __post_init__(self) -> None:
        factor = self.frame_subsampling_factor
        if factor < 1 or any(frames < 1 for frames in self.num_frames):
            raise AttributeTypeError("num-frames and frame-subsampling-factor must be positive")
        if max(self.num_frames, default=0) > _LONGEST:
            raise AttributeTypeError(
                f"num-frames goes up to {_LONGEST}, not {max(self.num_frames)}"
            )
        contexts = (self.left_context, self.right_context)
        contexts += (self.left_context_initial, self.right_context_final)
        check_limit("window", max(contexts), "the context of an example")
        rounded = tuple(-(-frames // factor) * factor for frames in self.num_frames)
        object.__setattr__(self, "num_frames", rounded)
        if rounded and not 0 <= self.num_frames_overlap < rounded[0]:
            raise AttributeTypeError(
                f"num-frames-overlap={self.num_frames_overlap} must be less than"
                f" num-frames={rounded[0]}"
            )

    @classmethod
    def parse_frames(cls, text: str) -> tuple[int, ...]:
        """The chunk sizes of `--num-frames=40,25,50` or `--num-frames=-1`.

        Raises:
            AttributeTypeError: it is no list of numbers.
        """
        if text == "-1":
            return ()
        try:
            return tuple(int(word) for word in text.split(","))
        except ValueError:
            raise AttributeTypeError(f"--num-frames={text!r} is no list of numbers") from None


@dataclass(frozen=True)
class Chunk:
    """A piece of an utterance.

    Attributes:
        first, frames: where it lies. left, right: frames of context.
        weights: of each output frame: 1 / the number of chunks that hold it.
    """

    first: int
    frames: int
    left: int
    right: int
    weights: np.ndarray = field(compare=False)


class UtteranceSplitter:
    """Cuts utterances and counts the chunks.

    Args:
        rng: draws splits and where gaps go: a generator, or its seed.
    """

    def __init__(
        self, options: ExampleGenerationOptions, rng: np.random.Generator | int = 0
    ) -> None:
        self.options = options
        self._rng = np.random.default_rng(rng)
        self.utterances = self.frames = self.overlap = 0
        self.chunks: dict[int, int] = {}
        self._splits: list[list[tuple[int, ...]]] = []
        if options.num_frames:
            self._splits = self._tabulate()

    # Splits

    def _tabulate(self) -> list[list[tuple[int, ...]]]:
        """For each length of utterance up to a bound: the splits to draw from."""
        lengths = self.options.num_frames
        longest = 2 * max(lengths) + lengths[0]
        splits = self._all_splits(longest + lengths[0])
        durations = np.array([self.duration(split) for split in splits])
        least = np.array([max(split) for split in splits])
        table = []
        for length in range(longest + 1):
            missing = length - durations
            costs = np.where(missing < 0, -missing, 2.0 * missing)
            costs[length < least] = np.inf
            best = costs.min()
            chosen = np.flatnonzero(costs < best + _SLACK) if np.isfinite(best) else ()
            table.append([splits[i] for i in chosen])
        return table

    def _all_splits(self, most: int) -> list[tuple[int, ...]]:
        """All splits whose duration is no longer than `most`, sorted."""
        principal, *others = self.options.num_frames
        splits = set()
        choices = [(), *((length,) for length in others)]
        for one, other in itertools.product(choices, choices):
            split = tuple(sorted(one + other))
            while self.duration(split) <= most:
                if split:
                    splits.add(split)
                split = tuple(sorted((*split, principal)))
        return sorted(splits)

    def duration(self, split: tuple[int, ...]) -> float:
        """Frames that a split covers with the overlap that is wished for."""
        if not split:
            return 0.0
        share = self.options.num_frames_overlap / self.options.num_frames[0]
        pairs = zip(split, split[1:], strict=False)
        return sum(split) - share * sum(min(pair) for pair in pairs)

    def _draw_split(self, length: int) -> list[int]:
        principal = self.options.num_frames[0]
        step = principal - self.options.num_frames_overlap
        repeats = 0
        if length >= len(self._splits):
            repeats = math.ceil((length - len(self._splits) + 1) / step)
            length -= repeats * step
        splits = self._splits[length]
        if not splits:
            return []
        split = [*splits[self._rng.integers(len(splits))], *[principal] * repeats]
        split.sort(reverse=bool(self._rng.integers(2)))
        return split

    # Gaps

    def _gaps(self, length: int, split: list[int]) -> list[int]:
        """Frames between each chunk and the one before it; negative where they overlap."""
        factor = self.options.frame_subsampling_factor
        frames = np.array(split) // factor
        gap = -(-length // factor) - int(frames.sum())
        if gap >= 0:
            places = len(frames) + 1
            gaps = np.full(places, gap // places)
            gaps[: gap % places] += 1
            self._rng.shuffle(gaps)
            gaps = gaps[:-1]
        else:
            room = np.minimum(frames[:-1], frames[1:])
            overlaps = -gap * room // room.sum()
            overlaps[: -gap - int(overlaps.sum())] += 1
            gaps = np.concatenate(([0], -overlaps))
        return (gaps * factor).tolist()

    def split(self, length: int) -> list[Chunk]:
        """The chunks of an utterance of so many input frames; none where it is too short."""
        options = self.options
        factor = self.options.frame_subsampling_factor
        split = self._draw_split(length) if options.num_frames else [length]
        gaps = self._gaps(length, split) if split and options.num_frames else [0] * len(split)
        firsts = []
        time = 0
        for frames, gap in zip(split, gaps, strict=True):
            firsts.append(time + gap)
            time += gap + frames
        spans = [
            (first // factor, (first + frames) // factor)
            for first, frames in zip(firsts, split, strict=True)
        ]
        if not options.num_frames:
            spans = [(0, -(-length // factor))]
        counts = np.zeros(-(-length // factor) + 1, np.int64)
        for begin, end in spans:
            counts[begin:end] += 1
        last = len(split) - 1
        chunks = []
        for i, (first, frames, span) in enumerate(zip(firsts, split, spans, strict=True)):
            left, right = options.left_context, options.right_context
            if i == 0 and options.left_context_initial >= 0:
                left = options.left_context_initial
            if i == last and options.right_context_final >= 0:
                right = options.right_context_final
            weights = (1.0 / counts[slice(*span)]).astype(np.float32)
            chunks.append(Chunk(first, frames, left, right, weights))
        self._count(length, chunks)
        return chunks

    def _count(self, length: int, chunks: list[Chunk]) -> None:
        self.utterances += 1
        self.frames += length
        for chunk in chunks:
            self.chunks[chunk.frames] = self.chunks.get(chunk.frames, 0) + 1
        for before, after in itertools.pairwise(chunks):
            self.overlap += max(0, before.first + before.frames - after.first)

    def lengths_match(self, length: int, targets: int, tolerance: int) -> bool:
        """Whether there are about as many targets as output frames."""
        expected = -(-length // self.options.frame_subsampling_factor)
        return abs(targets - expected) <= tolerance

    def report(self, log: Log) -> None:
        """Log the counts of chunks, as Kaldi does."""
        count = sum(self.chunks.values())
        inside = sum(length * n for length, n in self.chunks.items())
        hours = number(self.frames / 360000.0)
        log(
            f"Split {self.utterances} utts, with total length {self.frames} frames ({hours} hours"
            f" assuming 100 frames per second) into {count} chunks."
        )
        if not count:
            return
        percent = 100.0 / self.frames
        overlap = self.overlap * percent
        output = inside * percent
        log(
            f"Average chunk length was {number(inside / count)} frames; overlap between adjacent"
            f" chunks was {number(overlap)}% of input length; length of output was"
            f" {number(output)}% of input length (minus overlap = {number(output - overlap)}%)."
        )
        if len(self.chunks) > 1:
            shares = ", ".join(
                f"{length} = {100.0 * length * n / inside:.4g}%"
                for length, n in sorted(self.chunks.items())
            )
            log(f"Output frames are distributed among chunk-sizes as follows: {shares}")
