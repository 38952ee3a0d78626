"""Changes to chain and discriminative examples, and their merging into minibatches.

Source: Kaldi's `chainbin/nnet3-chain-copy-egs.cc`, `nnet3-chain-merge-egs.cc` and
`nnet3/nnet-chain-example.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from ..chain.examples import NnetChainExample, NnetChainSupervision, merge_outputs
from ..files.examples import NnetExample
from . import selecting
from .merging import ExampleMerger, MinibatchRule, merge_examples, structure


def renamed_output(example: NnetChainExample, name: str) -> NnetChainExample:
    """With `output` called `name`. Raises FormatError: there is no `output`."""
    output = _the_output(example)
    return _with_output(example, output, replace(output, name=name))


def scaled_output(example: NnetChainExample, weight: float) -> NnetChainExample:
    """With the weight of `output` times a factor. Raises FormatError: there is no `output`."""
    output = _the_output(example)
    supervision = replace(
        output.supervision, weight=float(np.float32(output.supervision.weight * weight))
    )
    return _with_output(example, output, replace(output, supervision=supervision))


def _the_output(example: NnetChainExample) -> NnetChainSupervision:
    for output in example.outputs:
        if output.name == "output":
            return output
    raise FormatError("the example has no 'output'")


def _with_output(
    example: NnetChainExample, old: NnetChainSupervision, new: NnetChainSupervision
) -> NnetChainExample:
    outputs = [new if output is old else output for output in example.outputs]
    return replace(example, outputs=outputs)


def shifted(example: NnetChainExample, frames: int) -> NnetChainExample:
    """With all times later by so many frames: times of outputs by the nearest multiple of the frame
    subsampling factor, times of iVectors not at all.

    Raises:
        FormatError: an output has a single frame, so that the factor is not known.
    """
    if not frames:
        return example
    inputs = selecting.shifted(NnetExample(example.inputs), frames).io
    outputs = []
    for output in example.outputs:
        factor = _subsampling(output)
        later = factor * int(np.floor(0.5 + frames / factor))
        indexes = output.indexes + np.array([0, later, 0], np.int32)
        outputs.append(replace(output, indexes=indexes))
    return replace(example, inputs=inputs, outputs=outputs)


def _subsampling(output: NnetChainSupervision) -> int:
    times = output.indexes[:, 1]
    others = times[times != times[:1]]
    if not len(others) or others[0] < times[0]:
        raise FormatError(f"the frames of {output.name!r} do not show a subsampling factor")
    return int(others[0] - times[0])


def selected(
    example: NnetChainExample, left_context: int = -1, right_context: int = -1
) -> NnetChainExample:
    """With no more context of `input` than said; -1 = all that is there.

    Raises:
        FormatError: it is no single example with an `input` and an `output`.
    """
    if any(part.indexes[:, 0].any() for part in (*example.inputs, *example.outputs)):
        raise FormatError("the context of merged examples cannot be cut")
    first_in, last_in = selecting.span(example.inputs, "input")
    first, last = selecting.span(example.outputs, "output")
    if left_context != -1:
        first_in = max(first_in, first - left_context)
    if right_context != -1:
        last_in = min(last_in, last + right_context)
    inputs = [
        selecting.within(io, first_in, last_in) if io.name == "input" else io
        for io in example.inputs
    ]
    return replace(example, inputs=inputs)


def merge_chain_examples(
    examples: Sequence[NnetChainExample], compress: bool = False
) -> NnetChainExample:
    """One example of several; the n of each one follow the n of the one before.

    Raises:
        ShapeError: the examples differ in inputs and outputs, or are merged already.
    """
    if len({len(example.outputs) for example in examples}) > 1:
        raise ShapeError("chain examples with different numbers of outputs cannot be merged")
    inputs = merge_examples([NnetExample(e.inputs) for e in examples], compress).io
    outputs = [
        merge_outputs([example.outputs[number] for example in examples])
        for number in range(len(examples[0].outputs))
    ]
    return replace(examples[0], inputs=inputs, outputs=outputs)


def language_of(key: str) -> str | None:
    """The LANGUAGE of a key that ends in `?lang=LANGUAGE`; None where it does not say."""
    found = re.search(r"[?&]lang=([^&]*)", key[key.rfind("?") :] if "?" in key else "")
    return found[1] if found else None


def in_language(key: str, example: NnetChainExample, default: str) -> NnetChainExample:
    """With `output` called `output-LANGUAGE`, by the example's key; others stay as they are."""
    name = f"output-{language_of(key) or default}"
    outputs = [
        replace(output, name=name) if output.name == "output" else output
        for output in example.outputs
    ]
    return replace(example, outputs=outputs)


class ChainExampleMerger(ExampleMerger):
    """Merges a stream of chain examples.

    Args:
        rule: of minibatch sizes. compress: the features of minibatches.
        multilingual: name outputs `output-LANGUAGE`, after keys that end in `?lang=LANGUAGE`, and
            let the keys of minibatches end so.
    """

    def __init__(
        self, rule: MinibatchRule, compress: bool = False, multilingual: bool = False
    ) -> None:
        super().__init__(rule, compress)
        self.multilingual = multilingual

    def accepted(self, key: str, example: NnetChainExample) -> NnetChainExample:
        """See `ExampleMerger`."""
        if not self.multilingual:
            return example
        first, *others = example.outputs
        named = replace(first, name=f"output-{language_of(key) or ''}")
        return replace(example, outputs=[named, *others])

    def structure(self, example: NnetChainExample) -> tuple[object, ...]:
        """See `ExampleMerger`."""
        outputs = tuple((output.name, output.indexes.tobytes()) for output in example.outputs)
        return structure(NnetExample(example.inputs)), outputs

    def example_size(self, example: NnetChainExample) -> int:
        """See `ExampleMerger`."""
        return max(len(part.indexes) for part in (*example.inputs, *example.outputs))

    def merged(self, examples: Sequence[NnetChainExample]) -> NnetChainExample:
        """See `ExampleMerger`."""
        return merge_chain_examples(examples, self.compress)

    def name(self, number: int, example: NnetChainExample, count: int) -> str:
        """See `ExampleMerger`."""
        language = example.outputs[0].name.partition("-")[2]
        return super().name(number, example, count) + (
            f"?lang={language}" if self.multilingual else ""
        )
