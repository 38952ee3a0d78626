"""Steps that score the last token of each hypothesis alone, as the reading of prompts wants it.

A prompt of 1,000 tokens and 50,000 words would else make 50 million scores of which 50,000 are
looked at. After the last operator that looks at several tokens, each is computed by itself: all
others are left out there.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain, count

import numpy as np

from ...framework.ir.desc import INPUT, make_op, make_var
from ...framework.ir.op_list import OpList
from .one_step import ACROSS_TOKENS, OneStep


def free_name(name: str, taken: Collection[str]) -> str:
    """`name`, or with a number after it where a variable is called so."""
    numbered = (f"{name}_{number}" for number in count(2))
    return next(one for one in chain([name], numbered) if one not in taken)


def of_last_tokens(step: OneStep, ids: str, scores: str, last: str) -> OpList | None:
    """The net of a step that takes several tokens, with scores of one of each hypothesis; None
    where packed tokens are padded on the way to these.

    Args:
        ids, scores: see `one_step`.
        last: a name that no variable has, for the input with the places of these tokens:
            [N, 1, 1] in tokens [N, T], [N, 1] among the rows of packed ones.
    """
    net = step.net.copy()
    taken = {last, *(var.name for var in net.vars)}
    taken.update(name for op in net.ops for name in (*op.input_names(), *op.output_names()))
    numbers = [n for n, op in enumerate(net.ops) if op.type in ACROSS_TOKENS]
    first = max(numbers, default=-1) + 1
    before, padded = {ids}, set[str]()  # what has a value of each token, and which are [N, T, ...]
    for op in net.ops[:first]:
        if before.intersection(op.input_names()):
            before.update(op.output_names())
        unpads = op.type == "sequence_unpad"
        if op.type == "sequence_pad" or (padded.intersection(op.input_names()) and not unpads):
            padded.update(op.output_names())
    left: dict[str, str] = {}
    picked = []

    def pick(name: str, out: str) -> None:
        inputs, attrs = {"x": name, "ids": last}, {"batch_dims": int(not step.packed)}
        picked.append(make_op("gather_nd", inputs, {"out": out}, attrs))

    read = [name for op in net.ops[first:] for name in op.input_names()]
    crossing = [name for name in dict.fromkeys(read) if name in before]
    if padded.intersection([*crossing, scores]):
        return None
    for name in crossing:
        left[name] = free_name(f"{name}.last", taken)
        taken.add(left[name])
        pick(name, left[name])
    net.ops[first:] = [*picked, *(op.renamed(left) for op in net.ops[first:])]
    net.vars += [make_var(name) for name in left.values()]
    if scores in before:  # nothing is computed of them
        whole = free_name(f"{scores}.whole", taken)
        net.ops = [op.renamed({scores: whole}) for op in net.ops]
        pick(whole, scores)
        net.ops.append(picked[-1])
        net.vars.append(make_var(whole))
    net.vars.append(make_var(last, [-1, 1] if step.packed else [-1, 1, 1], np.int64, INPUT))
    return net
