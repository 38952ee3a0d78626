"""Merging examples of one structure into minibatches.

Source: `ExampleMergingConfig`, `ExampleMerger` and `MergeExamples` in Kaldi's
`nnet3/nnet-example-utils.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, ShapeError
from ...framework.base.sequence import repeated
from ..files.examples import NnetExample, NnetIo
from ..training.progress import Log
from .rows import compressed, stack_rows


@dataclass(frozen=True)
class MinibatchSizes:
    """Sizes that minibatches may have: ranges, both ends included."""

    ranges: tuple[tuple[int, int], ...]

    @property
    def largest(self) -> int:
        """The size of all minibatches but the last ones."""
        return max(last for _, last in self.ranges)

    def largest_upto(self, most: int) -> int:
        """The largest size that is no more than `most`; 0 where there is none."""
        return max(min(last, most) if first <= most else 0 for first, last in self.ranges)


class MinibatchRule:
    """The value of `--minibatch-size`: `64`, `32,64:128`, or sizes by the size of examples,
    `100=64,128/300=32`, of which the nearest counts.

    Raises:
        AttributeTypeError: it cannot be understood.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.rules: dict[int, MinibatchSizes] = {}
        pieces = text.split("/")
        for piece in pieces:
            head, equals, sizes = piece.rpartition("=")
            if not equals and len(pieces) > 1:
                raise self._error("with several rules, each says for which size of examples it is")
            size = self._number(head) if equals else 0
            if size in self.rules:
                raise self._error(f"two rules for examples of size {size}")
            self.rules[size] = MinibatchSizes(tuple(self._range(part) for part in sizes.split(",")))

    def _range(self, text: str) -> tuple[int, int]:
        first, colon, last = text.partition(":")
        span = self._number(first), self._number(last if colon else first)
        if not 0 < span[0] <= span[1]:
            raise self._error(f"{text!r} is no range")
        return span

    def _number(self, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise self._error(f"{text!r} is no number") from None

    def _error(self, why: str) -> AttributeTypeError:
        return AttributeTypeError(f"--minibatch-size={self.text}: {why}")

    def size(self, example_size: int, available: int, ended: bool) -> int:
        """How many of the available examples to merge now; 0 = wait for more, or none fits."""
        nearest = min(self.rules, key=lambda size: abs(size - example_size))
        sizes = self.rules[nearest]
        if ended:
            return sizes.largest_upto(available)
        return sizes.largest if sizes.largest <= available else 0


def example_size(example: NnetExample) -> int:
    """Rows of the longest input or output."""
    return max(len(io.indexes) for io in example.io)


def structure(example: NnetExample) -> tuple[object, ...]:
    """A hashable value that is equal for examples that can be merged: names, Indexes, widths."""
    return tuple((io.name, io.features.shape[1], io.indexes.tobytes()) for io in example.io)


def merge_examples(examples: Sequence[NnetExample], compress: bool = False) -> NnetExample:
    """One example made of several; the n of each follow the n of the one before.

    Inputs and outputs are in the order of their names, as Kaldi's.

    Raises:
        ShapeError: the examples differ in their inputs and outputs.
    """
    stride = max((int(io.indexes[:, 0].max(initial=0)) for io in examples[0].io[:1]), default=0) + 1
    names = sorted({io.name for example in examples for io in example.io})
    merged = []
    for name in names:
        parts = [(n, io) for n, e in enumerate(examples) for io in e.io if io.name == name]
        if len(parts) != len(examples):
            raise ShapeError(f"{len(parts)} of {len(examples)} merged examples have {name!r}")
        indexes = np.concatenate([io.indexes for _, io in parts])
        indexes[:, 0] += repeated(
            [n * stride for n, _ in parts], [len(io.indexes) for _, io in parts]
        ).astype(np.int32)
        features = stack_rows([io.features for _, io in parts])
        merged.append(NnetIo(name, indexes, compressed(features) if compress else features))
    return NnetExample(merged)


@dataclass
class _Counts:
    """Counts of merged and discarded examples of one structure."""

    size: int
    written: dict[int, int] = field(default_factory=dict)  # minibatch size -> minibatches
    discarded: int = 0


class ExampleMerger:
    """Merges a stream of examples; keeps count of what it makes and what is left over. What depends
    on the kind of examples is in methods of its own.

    Args:
        rule: of minibatch sizes. compress: the features of minibatches.
    """

    def __init__(self, rule: MinibatchRule, compress: bool = False) -> None:
        self.rule = rule
        self.compress = compress
        self.counts: dict[object, _Counts] = {}
        self.minibatches = 0

    def structure(self, example: Any) -> tuple[object, ...]:
        """A hashable value that is equal for examples that can be merged."""
        return structure(example)

    def example_size(self, example: Any) -> int:
        """Rows of the longest input or output."""
        return example_size(example)

    def merged(self, examples: Sequence[Any]) -> Any:
        """One example of several. Raises ShapeError: they differ."""
        return merge_examples(examples, self.compress)

    def name(self, number: int, example: Any, count: int) -> str:
        """The key of a minibatch of `count` examples like this one."""
        return f"merged-{number}-{count}"

    def merge(self, examples: Iterable[Any]) -> Iterator[tuple[str, Any]]:
        """Minibatches and their keys, `merged-NUMBER-SIZE`; the smaller ones come at the end."""
        waiting: dict[object, list[Any]] = {}
        for example in examples:
            key = self.structure(example)
            group = waiting.setdefault(key, [])
            group.append(example)
            if self.rule.size(self.example_size(example), len(group), ended=False):
                yield self._write(key, group)
                del waiting[key]
        for key, group in waiting.items():
            while group:
                size = self.rule.size(self.example_size(group[0]), len(group), ended=True)
                if not size:
                    self._of(key, group[0]).discarded += len(group)
                    break
                yield self._write(key, group[:size])
                del group[:size]

    def _of(self, key: object, example: Any) -> _Counts:
        return self.counts.setdefault(key, _Counts(self.example_size(example)))

    def _write(self, key: object, group: list[Any]) -> tuple[str, Any]:
        written = self._of(key, group[0]).written
        written[len(group)] = written.get(len(group), 0) + 1
        name = self.name(self.minibatches, group[0], len(group))
        self.minibatches += 1
        return name, self.merged(group)

    def report(self, log: Log) -> None:
        """Log the counts of merged examples, as Kaldi does."""
        counts = sorted(self.counts.values(), key=lambda c: c.size)
        groups = []
        for c in counts:
            minibatches = ",".join(f"{size}->{n}" for size, n in c.written.items())
            groups.append(f"{c.size}={{{minibatches},d={c.discarded}}}")
        log(
            "Merged specific eg types as follows [format:"
            " <eg-size1>={<mb-size1>-><num-minibatches1>,<mbsize2>-><num-minibatches2>.../"
            "d=<num-discarded>},<egs-size2>={...},... (note,egs-size == number of input frames"
            " including context)."
        )
        log(",".join(groups))
        sizes = [(c.size, size, n) for c in counts for size, n in c.written.items()]
        kept = sum(size * n for _, size, n in sizes)
        discarded = sum(c.discarded for c in counts)
        frames = sum(length * size * n for length, size, n in sizes)
        frames += sum(c.size * c.discarded for c in counts)
        total = max(kept + discarded, 1)
        batches = sum(n for *_, n in sizes)
        log(
            f"Processed {kept + discarded} egs of avg. size {frames / total:.4g} into {batches}"
            f" minibatches, discarding {100.0 * discarded / total:.4g}% of egs.  Avg minibatch size"
            f" was {kept / max(batches, 1):.4g}, #distinct types of egs/minibatches was"
            f" {len(counts)}/{len(sizes)}"
        )
