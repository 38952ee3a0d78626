"""Tails: operators that the kernel of the one before computes along with its own.

A convolution's activation and its maximum pooling, for example, while the image is in the cache;
outside of training also its batch norm, as a factor and a term of each channel. An epilogue is a
loop of any elementwise operators after these, over a part of the results while it is in the cache.
Kernels say which types they take (`KernelEntry.tails`). What lies between is in no memory; where
no such kernel serves, each operator runs by itself, over scratch memory in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...base.sizes.shape import ArraySpec
from ...fusion.team import in_order
from ...ir.kernel_args import BoundEpilogue, KernelArgs, KernelFrame
from ...ir.operation import Operator
from ...ir.registry import OperatorDef
from ..plans.steps import Chain, Epilogue, PlanStep, Units

_BETWEEN = 4
"""Chains before an operator among which the one is looked for whose tail it is."""


def with_tails(
    chains: Sequence[Chain],
    live_out: set[str],
    views: Mapping[str, str],
    device: str,
    libraries: Sequence[str],
    train: bool,
    epilogue_of: Callable[[Sequence[Any], str, str], Epilogue | None],
    units: Units,
) -> list[Chain]:
    """The chains, with operators and their tails made one chain that has no loops.

    Args:
        live_out: what must be in memory after the run. views: view variable -> its base.
        libraries: of kernels, the best first; none: nothing has a tail.
        train: whether the run is one of training.
        epilogue_of: makes an epilogue of the members of a loop, for a kernel's own result and what
            its tail makes of that.
        units: what stays apart.
    """
    chains = _spanned(chains, live_out, views, device, libraries, units)
    # Most nets have none, and then the search for readers is spared.
    entries = {op.entry for chain in chains for op in chain}
    tails = {one: _tails(one, device, libraries, train) for one in entries}
    if not any(tails.values()):
        return list(chains)
    # A tail's input is in no memory, so nothing else may read it.
    readers = Counter(name for chain in chains for op in chain for name in op.value_reads())
    kept = live_out | set(views) | set(views.values())
    result: list[Chain] = []

    def is_tail(op: Operator, last: Chain) -> bool:
        """Whether the kernel of the first operator of a chain takes another one at its end."""
        if last.epilogue is not None or (len(last) > 1 and last.loops):
            return False
        if not units.may_end(last[0], op):
            return False
        wanted = tails[last[0].entry]
        if not wanted or "out" not in last[-1].outputs:  # of others: split, for example
            return False
        (result_of,) = last[-1].outputs["out"]
        # In the kernel's order: bias, activation, pooling cannot be exchanged.
        types = [one.partition(".")[0] for one in wanted]
        following = wanted[types.index(last[-1].type) + 1 :] if len(last) > 1 else wanted
        fits = _tail_slot(op, result_of) in following
        return fits and readers[result_of] == 1 and result_of not in kept

    def head_of(op: Operator) -> int:
        """The number of the chain of which an operator is the next tail; -1: there is none."""
        # What a tail reads besides may be computed in between.
        for at in range(len(result) - 1, max(-1, len(result) - 1 - _BETWEEN), -1):
            if is_tail(op, result[at]) and _may_wait(result[at], result[at + 1 :], views):
                return at
        return -1

    for chain in chains:
        at = head_of(chain[0]) if len(chain) == 1 else -1
        if at >= 0:
            result.append(result.pop(at))
            result[-1].append(chain[0])
            result[-1].loops = ()
            continue
        last = result[-1] if result else None
        if (
            last is not None
            and units.may_end(last[0], chain[0])
            and _may_end(last, chain, device, libraries)
        ):
            (own,), (result_of,) = last[0].outputs["out"], last[-1].outputs["out"]
            inside = Counter(name for op in chain for name in op.value_reads())
            # What the loop computes on the way is in no memory either.
            between = [result_of, *(name for op in chain[:-1] for name in op.output_vars())]
            if all(readers[name] == inside[name] > 0 and name not in kept for name in between):
                last.epilogue = epilogue_of(chain.loops[0], own, result_of)
                if last.epilogue is not None:
                    last += chain
                    last.loops = ()
                    continue
        result.append(type(chain)(chain, chain.loops))
    return result


_SPAN = 4
"""Operators that a kernel may span, at most."""


def _spanned(
    chains: Sequence[Chain],
    live_out: set[str],
    views: Mapping[str, str],
    device: str,
    libraries: Sequence[str],
    units: Units,
) -> Sequence[Chain]:
    """The chains, with operators made one that a kernel computes as one step (`spans`)."""

    spanning = {
        entry: [
            kernel.spans
            for kernel in entry.kernels
            if kernel.spans and kernel.library in libraries and kernel.device in ("", device)
        ]
        for entry in {chain[0].entry for chain in chains}
    }

    def span(at: int) -> int:
        ops = []
        for chain in chains[at : at + _SPAN]:
            if len(chain) > 1 or chain.loops or not units.may_end(chains[at][0], chain[0]):
                break
            ops.append(chain[0])
        return max([spans(ops) for spans in spanning[ops[0].entry]]) if ops else 0

    spans = {
        at: count
        for at, chain in enumerate(chains)
        if spanning[chain[0].entry] and (count := span(at))
    }
    if not spans:
        return chains
    readers = Counter(name for chain in chains for op in chain for name in op.value_reads())
    kept = live_out | set(views) | set(views.values())
    result: list[Chain] = []
    end = 0
    for at, chain in enumerate(chains):
        if at < end:
            continue
        end = at + 1 + spans.get(at, 0)
        ops = [op for one in chains[at:end] for op in one]
        between = [name for op in ops[:-1] for name in op.output_vars()]
        if end > at + 1 and all(readers[name] == 1 and name not in kept for name in between):
            result.append(type(chain)(ops))
        else:
            result.append(chain)
            end = at + 1
    return result


def _may_wait(chain: Chain, others: Sequence[Chain], views: Mapping[str, str]) -> bool:
    """Whether a chain whose result no other reads may run after others that follow it."""

    def bases(chains: Iterable[Chain], names: Callable[[Operator], Iterable[str]]) -> set[str]:
        return {views.get(name, name) for one in chains for op in one for name in names(op)}

    (read, written), (read_there, written_there) = (
        (bases(chains, Operator.value_reads), bases(chains, Operator.output_vars))
        for chains in ([chain], others)
    )
    # What a normalization writes beside the result that its tail reads, others may read as well.
    return written_there.isdisjoint(read | written) and written.isdisjoint(read_there)


def _tail_slot(op: Operator, name: str) -> str:
    """The type of an operator that reads a variable first, or type and slot: `TYPE.SLOT`."""
    if op.value_reads()[:1] == [name]:
        return op.type
    return next((f"{op.type}.{slot}" for slot, own in op.inputs.items() if own == (name,)), "")


def _may_end(last: Chain, chain: Chain, device: str, libraries: Sequence[str]) -> bool:
    """Whether the kernel of an operator takes a loop as its epilogue: the next chain, over arrays
    of the shape of its result."""
    if last.epilogue is not None or last.loops or len(chain.loops) != 1 or device != "cpu":
        return False
    first = last[0]
    return any(kernel.epilogues and kernel.library in libraries for kernel in first.entry.kernels)


def _tails(
    entry: OperatorDef, device: str, libraries: Sequence[str], train: bool
) -> tuple[str, ...]:
    """Types of the operators that may follow within the call of a kernel of an operator."""
    for kernel in entry.kernels:
        if kernel.tails and kernel.library in libraries and kernel.device in ("", device):
            without = kernel.inference_tails if train else ()
            return tuple(one for one in kernel.tails if one not in without)
    return ()


def bind_tailed(
    step: PlanStep,
    known: Mapping[str, Any],
    specs: Mapping[str, ArraySpec],
    frame: KernelFrame,
    libraries: Sequence[str],
    bind: Callable[[Operator, Mapping[str, Any]], Callable[[], Any]],
) -> Callable[[], Any]:
    """One call for an operator and its tail.

    Args:
        known: arrays of the variables that are in memory. specs: shapes and dtypes of all.
        libraries: of kernels, the best first.
        bind: makes the call of one operator for some arrays.
    """
    ending = step.epilogue
    first, *tail = step.operators[: len(step.operators) - (ending.count if ending else 0)]
    dtype = specs[step.writes[0]][1]
    # A tail computes while its first operator still reads: results may not lie over its inputs.
    apart = not set(first.value_reads()).intersection(step.writes)
    for kernel in first.entry.kernels_for("cpu", dtype, libraries):
        if (kernel.tails or kernel.spans or ending) and apart and (kernel.epilogues or not ending):
            args = KernelArgs(first, known, specs, frame)
            args.tail = tuple([KernelArgs(op, known, specs, frame) for op in tail])
            if ending is not None:
                names = ending.bound.variables
                args.epilogue = BoundEpilogue(
                    ending.bound.loop,
                    [None if name == ending.made else known[name] for name in names],
                    names.index(ending.made),
                    names.index(ending.out),
                )
            call = kernel.bind(args)
            if call is not None:
                return call
    arrays = dict(known)
    for op in step.operators:
        for name in op.output_vars():
            if name not in arrays:
                arrays[name] = frame.scratch(*specs[name])
    return in_order(*(bind(op, arrays) for op in step.operators))
