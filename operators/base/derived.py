"""Reference kernels that follow from the scalar expressions of an operator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

from ...framework.fusion.scalars.array_calls import SPECIAL, array_calls, array_plan
from ...framework.fusion.scalars.expression import names, nodes, parse, part_name
from ...framework.fusion.scalars.pointwise import ABSENT
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from .calls import reducing
from .erf import erf_call, erfc_call

SPECIAL.update(erf=erf_call, erfc=erfc_call)


def derived_kernel(k: KernelArgs) -> Call:
    """The NumPy/CuPy kernel of an operator with `scalar` expressions for all its outputs.

    Operands broadcast as in NumPy.
    """
    results = _results(k)
    return in_order(*_calls(k, k.op.entry.expressions, results))


def summed_back_kernel(k: KernelArgs) -> Call:
    """Like `derived_kernel`, for gradients of operators whose operands broadcast.

    A gradient of the result's shape is summed back to the shape of the operand. `x_grad` may have
    the memory of out_grad, so the expressions name it last.
    """
    results = _results(k)
    scalar = k.op.entry.expressions
    shape = k["out_grad"].shape
    # No operand was broadcast, as in most nets: one plan for all gradients shares what they have in
    # common.
    if all(target.shape == shape for target in results.values()):
        return in_order(*_calls(k, scalar, results))
    calls: list[Call | None] = []
    for slot, target in results.items():
        text = {slot: scalar[slot]}
        sign = scalar[slot][:1]
        name = scalar[slot].lstrip("-")
        if target.shape == shape:
            calls += _calls(k, text, {slot: target})
        elif name in k.op.inputs:  # an array, or minus an array: the sum comes first
            calls.append(reducing(k.xp, k[name], target))
            calls.append(partial(k.xp.negative, target, target) if sign == "-" else None)
        else:
            whole = k.scratch(shape, target.dtype)
            calls += _calls(k, text, {slot: whole})
            calls.append(reducing(k.xp, whole, target))
    return in_order(*calls)


def _results(k: KernelArgs) -> dict[str, Any]:
    """Arrays of the outputs that somebody needs."""
    arrays = {slot: k.get(slot) for slot in k.op.entry.expressions}
    return {slot: array for slot, array in arrays.items() if array is not None}


def _calls(k: KernelArgs, scalar: Mapping[str, str], results: Mapping[str, Any]) -> list[Call]:
    inputs = k.op.inputs
    attrs = k.attrs
    texts = tuple(scalar.items())
    named, summed = _roles(texts, tuple(inputs), tuple(attrs))
    # As tuples, since plans are cached by them: equal operators share one plan.
    values = {**ABSENT, **attrs}
    numbers = tuple((name, repr(float(values[name]))) for name in named)
    counts = tuple((slot, len(inputs[slot])) for slot in summed)
    plan = array_plan(texts, tuple(results), numbers, counts)
    arrays = {name: k[name] for name in plan.reads if name in inputs}
    for slot in summed:
        arrays.update((part_name(slot, i), array) for i, array in enumerate(k.list(slot)))
    return array_calls(k, plan, arrays, results)


@lru_cache(maxsize=1024)
def _roles(
    texts: tuple[tuple[str, str], ...], inputs: tuple[str, ...], attrs: tuple[str, ...]
) -> tuple[list[str], list[str]]:
    """Names in expressions: of attributes and absent inputs, and of slots that are summed."""
    trees = [parse(text) for _, text in texts]
    mentioned = frozenset().union(*map(names, trees)) - set(inputs)
    summed = {node[2][1] for tree in trees for node in nodes(tree) if node[:2] == ("call", "sum")}
    return sorted(n for n in mentioned if n in attrs or n in ABSENT), sorted(summed)
