"""PyTorch's samples of its own operators, run here and there: `build.py zoo --samples`.

PyTorch tests each of its operators with inputs of odd shapes and dtypes, and with odd arguments:
tensors without axes or entries, whole numbers, options that nobody sets. A sample is exported, read
by `from_torch` and run; that is right, or refused by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from opscope import from_torch

from .measuring import CRASH, NO_EXPORT, RIGHT, WRONG, outcome, quiet, told

_DTYPES = (torch.float32, torch.int64, torch.bool)
_MOST = {torch.float32: 8, torch.int64: 4, torch.bool: 4}
"""Samples of an operator: so many of those that PyTorch has, evenly among them."""
_DRAWN = ("bernoulli", "dropout", "rand", "multi_head_attention", "scaled_dot_product", "empty")
"""In the names of operators that draw numbers, or leave them open."""
_OPEN = {
    "item": "a Python number has no dtype",
    "broadcast_shapes": "it gives no tensor",
    "argsort": "equal entries may come in any order",
    "kthvalue": "equal entries may come in any order",
    "sort": "equal entries may come in any order",
    "topk": "equal entries may come in any order",
    "nn.functional.batch_norm": "predictions take running statistics, in training form as well",
}
"""Operator -> why what it gives may differ from PyTorch."""


class Calling(torch.nn.Module):
    """A call of an operator, whose tensors are the inputs.

    Attributes:
        function: the operator. leaves: its arguments, None for tensors. form: how they are nested.
    """

    def __init__(self, function: Any, leaves: Sequence[Any], form: Any) -> None:
        super().__init__()
        self.function, self.leaves, self.form = function, leaves, form

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if each is None else each for each in self.leaves]
        args, options = pytree.tree_unflatten(leaves, self.form)
        return self.function(*args, **options)


def main(names: Sequence[str]) -> int:
    """Print what is wrong, of these operators or of all; returns how many are."""
    from torch.testing._internal.common_methods_invocations import op_db

    counts: Counter[str] = Counter()
    for info in op_db:
        name = ".".join(filter(None, (info.name, info.variant_test_name)))
        if names and name not in names or name in _OPEN or any(one in name for one in _DRAWN):
            continue
        for dtype, sample in _samples(info):
            found = _measured(info.op, sample)
            kind = found.partition(":")[0]
            counts[kind] += 1
            if kind in (WRONG, CRASH):
                print(f"{name} {str(dtype)[6:]} {sample.summary()}: {found}", flush=True)
    print(", ".join(f"{kind} {number}" for kind, number in counts.most_common()))
    return counts[WRONG] + counts[CRASH]


def _samples(info: Any) -> Iterator[tuple[torch.dtype, Any]]:
    for dtype in _DTYPES:
        if dtype in info.dtypes:
            torch.manual_seed(0)
            try:
                samples = list(islice(info.sample_inputs("cpu", dtype), 60))
            except Exception:  # PyTorch has none for this dtype
                continue
            step = max(len(samples) / _MOST[dtype], 1)
            yield from ((dtype, samples[int(k * step)]) for k in range(int(len(samples) / step)))


def _measured(function: Any, sample: Any) -> str:
    """What comes of a sample."""
    leaves, form = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    tensors = [each.detach() for each in leaves if isinstance(each, torch.Tensor)]
    others = [None if isinstance(each, torch.Tensor) else each for each in leaves]
    module = Calling(function, others, form)
    try:
        with quiet():
            wanted = _arrays(module(*(each.clone() for each in tensors)))
            program = torch.export.export(module, tuple(each.clone() for each in tensors))
    except Exception as error:  # whatever PyTorch says
        return told(NO_EXPORT, error)
    return outcome(lambda: _compared(from_torch(program), tensors, wanted))


def _compared(model: Any, tensors: Sequence[torch.Tensor], wanted: Sequence[np.ndarray]) -> str:
    feed = {info.name: x.numpy() for info, x in zip(model.inputs, tensors, strict=True)}
    found = list(model.run(feed).values())
    if len(found) != len(wanted):
        return f"{WRONG}: {len(found)} results, not {len(wanted)}"
    for ours, theirs in zip(found, wanted, strict=True):
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            return (
                f"{WRONG}: {ours.dtype}{list(ours.shape)}, not {theirs.dtype}{list(theirs.shape)}"
            )
        if not np.allclose(ours, theirs, rtol=2e-4, atol=2e-5, equal_nan=True):
            return f"{WRONG}: {ours.reshape(-1)[:4]}, not {theirs.reshape(-1)[:4]}"
    return RIGHT


def _arrays(value: Any) -> list[np.ndarray]:
    leaves = (each for each in pytree.tree_leaves(value) if each is not None)
    return [torch.as_tensor(each).detach().resolve_conj().resolve_neg().numpy() for each in leaves]
