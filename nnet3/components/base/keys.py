"""Declaring the keys of component types: the `KEY=VALUE` of `component name=... type=...`."""

from __future__ import annotations

from typing import Any, Final

from ...language.config import REQUIRED, Computed, Key


def key(name: str, type: type | str, default: Any = REQUIRED, doc: str = "") -> Key:
    """A key; `type` is int, float, bool, str, or lists of integers as Kaldi splits them: "ints" at
    colons and commas, "columns" at commas, "offsets" at commas and without gaps. Without `doc` the
    key means what `MEANINGS` says."""
    unset = ""
    if isinstance(default, Computed):
        default, unset = default.mark, default.words
    kind = type if isinstance(type, str) else type.__name__
    return Key(name, kind, default, unset, doc or MEANINGS.get(name, ""))


def optional(type: type | str, **defaults: Any) -> tuple[Key, ...]:
    """Keys of one type with their defaults; `_` in a name becomes `-`."""
    return tuple(key(name.replace("_", "-"), type, value) for name, value in defaults.items())


def required(type: type | str, *names: str) -> tuple[Key, ...]:
    """Keys of one type that a line must have."""
    return tuple(key(name, type) for name in names)


MEANINGS: Final = {
    "add-log-stddev": "whether the log of the root mean square is one more column",
    "alpha": "smoothing of the natural gradient's Fisher matrix",
    "alpha-in": "smoothing of the natural gradient's Fisher matrix of the input",
    "alpha-out": "smoothing of the natural gradient's Fisher matrix of the output",
    "backprop-scale": "factor of the derivative",
    "bias": "a file with the vector of biases",
    "bias-mean": "mean of random biases",
    "bias-stddev": "standard deviation of random biases",
    "block-dim": "columns that share parameters or statistics; divides dim",
    "cell-dim": "columns of the cell state",
    "clipping-threshold": "the largest size that a derivative may have; 0: any",
    "column-map": "for each output column the number of an input column, from 0",
    "continuous": "masks are uniform in (1 - 2p, 1 + 2p), not zeros and ones",
    "dim": "columns of input and output",
    "dropout-per-frame": "whole rows are dropped",
    "dropout-proportion": "the share p that is dropped, 0 to 1",
    "epsilon": "added to the variance",
    "filt-x-dim": "width of a filter",
    "filt-x-step": "distance of two filters in x",
    "filt-y-dim": "height of a filter",
    "filt-y-step": "distance of two filters in y",
    "height-in": "heights of an input row",
    "height-offsets": "input heights that an output height sees, from its own",
    "height-out": "heights of an output row",
    "height-subsample-out": "input heights for one output height",
    "include-variance": "also sums of squares",
    "init-unit": "the filters begin as a copy of the input",
    "input-dim": "columns of the input",
    "input-period": "frames between two input rows",
    "input-vectorization-order": "the order of columns, fastest first: zyx or yzx",
    "input-x-dim": "width of the image",
    "input-y-dim": "height of the image",
    "input-z-dim": "planes of the image",
    "is-updatable": "whether the output is trained",
    "key-dim": "columns of a key, and of a query without its position",
    "key-scale": "factor of the products of keys and queries",
    "l2-regularize": "L2 regularization; not negative",
    "learning-rate": "learning rate; not negative",
    "learning-rate-factor": "factor of learning rates that are set from outside; not negative",
    "left-context": "frames before the output's that are pooled",
    "matrix": "a file with the parameters, in place of random ones",
    "max-change": "largest change of the parameters in a minibatch; 0: any",
    "max-memory-mb": "megabytes that Kaldi may take for patches of the input",
    "max-rows-process": "rows that go through the parts at a time",
    "norm-based-clipping": "rows are clipped by their norm, not each value",
    "num-blocks": "blocks of W",
    "num-components": "how many parts there are",
    "num-filters": "filters, which are the planes of the output",
    "num-filters-in": "filters at each height of the input",
    "num-filters-out": "filters at each height of the output",
    "num-heads": "heads that attend",
    "num-left-inputs": "frames before the output's that are attended to, in steps of time-stride",
    "num-left-inputs-required": "how many of these must be there",
    "num-log-count-features": "columns with the log of the count",
    "num-minibatches-history": "minibatches that the natural gradient remembers",
    "num-repeats": "blocks of columns that share one transform",
    "num-right-inputs": "frames after the output's that are attended to, in steps of time-stride",
    "num-right-inputs-required": "how many of these must be there",
    "num-samples-history": "rows that the natural gradient remembers",
    "offsets": "pairs time,height of the filters' taps, with `;` between",
    "orthonormal-constraint": "the scale that W W^T is drawn to; -1: whatever suits W; 0: none",
    "output-context": "whether the weights are part of the output",
    "output-dim": "columns of the output",
    "output-mean": "mean of the random output at the start",
    "output-period": "frames between two output rows",
    "output-stddev": "standard deviation of the random output at the start",
    "output-stddevs": "also deviations; the input has sums of squares",
    "param-mean": "mean of random parameters",
    "param-stddev": "standard deviation of random parameters",
    "pool-x-size": "width of a box",
    "pool-x-step": "distance of two boxes in x",
    "pool-y-size": "height of a box",
    "pool-y-step": "distance of two boxes in y",
    "pool-z-size": "planes of a box",
    "pool-z-step": "distance of two boxes in z",
    "rank": "rank of the natural gradient's Fisher matrix",
    "rank-in": "rank of the natural gradient's Fisher matrix of the input",
    "rank-out": "rank of the natural gradient's Fisher matrix of the output",
    "recurrence-interval": "frames back that the recurrence reads",
    "recurrent-dim": "columns of the recurrence",
    "required-time-offsets": "the time-offsets whose rows must be there",
    "right-context": "frames after the output's that are pooled",
    "scale": "factor of the output",
    "scales": "a file with the vector of scales",
    "self-repair-clipped-proportion-threshold": "the share of clipped rows from which it acts",
    "self-repair-lower-threshold": "mean derivative below which a dimension is repaired",
    "self-repair-scale": "how strongly dimensions are repaired",
    "self-repair-target": "the value that self-repair draws the input to",
    "self-repair-threshold": "mean derivative below which a dimension is repaired",
    "self-repair-upper-threshold": "mean derivative above which a dimension is repaired",
    "sigmoid-self-repair-threshold": "mean derivative of a gate below which it is repaired",
    "sizes": "columns of each group",
    "specaugment-max-proportion": "the largest share of columns that is zeroed; 0: plain dropout",
    "specaugment-max-regions": "the largest number of stretches of zeroed columns",
    "tanh-self-repair-threshold": "mean derivative of a tanh below which it is repaired",
    "target-rms": "the root mean square that is scaled to",
    "test-mode": "whether it computes as in test",
    "time-mask-max-frames": "most frames of a stretch",
    "time-offsets": "input frames that an output frame sees, from its own",
    "time-period": "frames that share a mask; 0: the whole sequence",
    "time-stride": "frames between two that are attended to",
    "update-period": "minibatches from one update of the Fisher matrix to the next",
    "use-bias": "whether there is a bias",
    "use-dropout": "three more columns of the input are masks of i, f and o",
    "use-natural-gradient": "whether the update is preconditioned",
    "value-dim": "columns of a value",
    "variance-floor": "least variance",
    "vector": "a file with the parameters, in place of random ones",
    "zeroed-proportion": "the share of rows that is zeroed",
    "zeroing-interval": "frames between two places where derivatives may be zeroed",
    "zeroing-threshold": "the norm of a row's derivative from which it is zeroed",
}
"""What a key means in every component type that has it and declares no other meaning."""
