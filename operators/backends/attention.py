"""Attention head by head, or block of queries by block, shared between threads (library "native").

A block's products, masks and softmax follow each other while its weights are in the cache. Where
nothing reads the weights afterwards each thread has memory for one block, and no more of them is
ever there. Dropout, gradients of masks and heads that broadcast are left to the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from ...framework.base.cpu.cores import is_intel
from ...framework.base.cpu.threads import most_threads
from ...framework.fusion import team
from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.arguments import Block, Several, is_host_array
from ...framework.fusion.compiled.libraries import Library
from ...framework.fusion.laid import Laid
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import lookup
from ...framework.runtime.plans.memory import panel_memory
from ..attention.dot_product import attention
from ..attention.heads import split_heads
from . import rows
from .products import mkl, parts, row_products

_BLOCK = 1 << 17
"""Elements of the weights of a block of queries. Each block packs the keys and the values anew: on
one core of an EPYC 4 heads of 2048 queries of 128 columns take 109 ms, 121 in blocks of half the
size."""
_FEWEST = 16  # rows of a block
_LARGEST = 1 << 22  # elements of a head's weights, up to which its gradient is computed here
_SHARES = 8  # blocks that a thread may have memory for
_EXP = 60


def library(dtype: np.dtype | type = np.float32) -> Library | None:
    """The functions for a dtype; None where it has none, or there is no native library."""
    return native.typed("attention", dtype)


def _products(k: KernelArgs) -> parts.MakeGemm[parts.Gemm]:
    """What makes products on one thread."""
    plan = getattr(k.frame, "plan", None)  # a kernel that is tried by itself has none
    libraries = ("mkl", "blas") if plan is None else plan.options.libraries
    # Heads are many small products of equal shapes. MKL makes code for one shape, on Intel's
    # processors alone.
    if is_intel() and "mkl" in libraries and mkl.library() is not None:
        return mkl.make_gemm
    return row_products.make_gemm


def _scale(k: KernelArgs, query: Any) -> float:
    return k.attrs["scale"] or query.shape[-1] ** -0.5


class _Heads:
    """The heads of an operator's arrays, which lie along two axes; more axes make groups of them.

    Args:
        lead: the axes before queries, keys and columns. make: of products. dtype: of all arrays.

    Attributes:
        groups: the index of each group. sizes: of the two axes.
    """

    def __init__(
        self, make: parts.MakeGemm[parts.Gemm], lead: tuple[int, ...], dtype: np.dtype
    ) -> None:
        self._missing = (None,) * (2 - len(lead))
        lead = (*(1,) * len(self._missing), *lead)
        self.groups = list(np.ndindex(lead[:-2]))
        self.sizes = {"outer": lead[-2], "inner": lead[-1]}
        self.count = lead[-2] * lead[-1]
        self.dtype = dtype
        self._make = make
        self._memory: list[Any] = []

    def of(self, group: tuple[int, ...], stack: Any) -> Any:
        """The heads of a group in an array, [outer, inner, ...]; None for None."""
        return None if stack is None else stack[(*group, *self._missing)]

    def product(self, a: Any, b: Any, out: Any, scale: float = 1.0) -> Block | None:
        """A product of matrices that lie as the first heads do; none is done for no `out`."""
        if out is None:
            return self.bind("gemm")
        arrays = a, b, out
        how = parts.layouts(arrays)
        if how is None:
            return None
        gemm, _ = parts.one(self._make, arrays, how, (scale, 0.0))
        self._memory.append(gemm)
        return self.bind("gemm", function=gemm.address, handle=gemm.handle)

    def like(self, rows: Any, columns: Any) -> Any:
        """A matrix that lies as those which threads have memory for."""
        return Laid.side_by_side(self.dtype, (rows, columns), 0)

    def room(self, elements: int) -> dict[str, Any]:
        """Memory of so many elements for each thread, its bytes, and how many threads have some."""
        size = -(-elements * self.dtype.itemsize // 64) * 64
        # Bounded: memory for all threads of a large machine would leave the cache.
        count = min(len(self.groups) * self.count * 64, _SHARES * most_threads())
        return {"memory": panel_memory(size * count), "bytes": size, "threads": count}

    def bind(self, name: str, **fields: Any) -> Block:
        return native.bind("attention", self.dtype, name, **fields)

    def call(self, name: str, work: int, **fields: Any) -> Call:
        block = self.bind(name, **fields)
        block.memory.append(self._memory)
        return rows.call(team.block_task(work, block))


def _bind(k: KernelArgs) -> Call | None:
    slots = [split_heads(k[slot], k.attrs["heads"]) for slot in ("query", "key", "value", "out")]
    query, key, value, out = slots
    lead = out.shape[:-2]
    if k.get("past") is not None:
        return _bind_cached(k, slots)
    if not _suit(slots, lead) or (k.train and k.attrs["dropout"] > 0):
        return None
    heads = _Heads(_products(k), lead, out.dtype)
    queries, keys = out.shape[-2], key.shape[-2]
    step = min(queries, max(_FEWEST, _BLOCK // keys))
    weights = k.get("weights")
    # Where the weights are an output they are computed in their place, and any thread may take a
    # block.
    room = {"bytes": 0, "threads": 1 << 20} if weights is not None else heads.room(step * keys)
    mask, key_mask = _masks(k, (*lead, queries, keys))
    blocks = []
    begins = (0,) if step == queries else range(0, queries, step)
    for group, begin in product(heads.groups, begins):
        arrays = {"query": query, "key": key, "value": value, "out": out, "weights": weights}
        arrays = {slot: heads.of(group, array) for slot, array in arrays.items()}
        some = slice(None), slice(None), slice(begin, begin + step)
        for slot in ("query", "out", "weights"):
            arrays[slot] = None if arrays[slot] is None else arrays[slot][some]
        q, keyed, valued, made = (arrays[slot][0, 0] for slot in ("query", "key", "value", "out"))
        many = made.shape[0]
        like = heads.like(many, keys) if weights is None else arrays["weights"][0, 0]
        one = heads.product(q, keyed.T, like, _scale(k, query))
        other = heads.product(like, valued, made)
        if one is None or other is None:
            return None
        fields = {"scores": one, "sums": other, "rows": many, "keys": keys, "first": begin}
        masking = None if mask is None else heads.of(group, mask)[some]
        fields |= _in_bytes("mask", masking, "n", "h", "down", "right")
        fields |= _in_bytes("key_mask", heads.of(group, key_mask), "n", "h", "step")
        fields |= arrays
        blocks.append(heads.bind("attend_block", **heads.sizes, **fields))
    flags = mask is not None and mask.dtype == bool
    fields = {"blocks": Several.of(blocks), "causal": k.attrs["causal"], "flags": flags}
    width = query.shape[-1] + value.shape[-1] + _EXP
    work = len(heads.groups) * heads.count * queries * keys * width
    return heads.call("attend", work, count=len(blocks), heads=heads.count, **fields, **room)


def _bind_cached(k: KernelArgs, slots: list[Any]) -> Call | None:
    """Over as many keys as the sequences have by now: how many, only a run knows."""
    out = slots[-1]
    lead = out.shape[:-2]
    # Without heads the axis of them has one.
    query, key, value, out = (x if x.ndim != 3 else x[:, None] for x in slots)
    extras = any(k.get(slot) is not None for slot in ("mask", "key_mask", "weights"))
    if extras or not _suit(slots, lead) or out.ndim != 4 or (k.train and k.attrs["dropout"] > 0):
        return None
    if any(array.strides[-1] != array.itemsize for array in slots):
        return None
    heads = _Heads(row_products.make_gemm, lead, out.dtype)
    queries, keys = out.shape[-2], key.shape[-2]
    work = heads.count * queries * keys * (query.shape[-1] + value.shape[-1] + _EXP)
    threads = min(out.shape[0] * out.shape[1], most_threads())
    return heads.call(
        "attend_cached",
        work,
        count=out.shape[0],
        heads=out.shape[1],
        queries=queries,
        keys=keys,
        width=query.shape[-1],
        columns=out.shape[-1],
        scale=_scale(k, query),
        past=k["past"],
        query=query,
        key=key,
        value=value,
        out=out,
        memory=k.scratch((threads, out.shape[1], keys), out.dtype),
        threads=threads,
    )


def _suit(arrays: list[Any], lead: tuple[int, ...]) -> bool:
    dtype = arrays[-1].dtype
    return library() is not None and all(
        is_host_array(array)
        and array.dtype == dtype
        and array.shape[:-2] == lead
        and array.size > 0
        for array in arrays
    )


def _masks(k: KernelArgs, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The mask and that of the keys, for each head, or None."""
    mask, keys = k.get("mask"), k.get("key_mask")
    if mask is not None:
        mask = np.broadcast_to(mask, shape)
    if keys is not None:
        keys = keys.reshape(shape[0], *(1,) * (len(shape) - 3), shape[-1])
        keys = np.broadcast_to(keys, (*shape[:-2], shape[-1]))
    return mask, keys


def _in_bytes(name: str, array: Any, *axes: str) -> dict[str, Any]:
    """A field for an array, or None, and those for its steps in bytes."""
    steps = (0,) * len(axes) if array is None else array.strides
    return {name: array, **{f"{name}_{axis}": step for axis, step in zip(axes, steps, strict=True)}}


def _bind_grad(k: KernelArgs) -> Call | None:
    count = k.attrs["heads"]
    weights = k["weights"]
    slots = [split_heads(k[one], count) for one in ("query", "key", "value", "out", "out_grad")]
    query, key, value, out, grad = slots
    lead = out.shape[:-2]
    targets = [k.get(f"{slot}_grad") for slot in ("query", "key", "value")]
    targets = [None if target is None else split_heads(target, count) for target in targets]
    of_query, of_key, of_value = targets
    wanted = [target for target in targets if target is not None]
    if k.get("mask_grad") is not None or (k.train and k.attrs["dropout"] > 0):
        return None
    queries, keys = weights.shape[-2:]
    width = out.shape[-1]
    if queries * keys > _LARGEST or not _suit([*slots, *wanted, weights], lead):
        return None
    if any(array.strides[-1] != array.itemsize for array in (out, grad)):
        return None
    heads = _Heads(_products(k), lead, out.dtype)
    scale = _scale(k, query)
    # Only its layout counts, for the products' code: threads have memory of their own.
    none = of_query is None and of_key is None
    pull = heads.like(queries, keys)
    bound = []
    for group in heads.groups:
        arrays = {"query": query, "key": key, "value": value, "out": out, "out_grad": grad}
        arrays |= {"weights": weights, "query_grad": of_query, "key_grad": of_key}
        arrays |= {"value_grad": of_value}
        arrays = {slot: heads.of(group, array) for slot, array in arrays.items()}
        one: dict[str, Any] = {
            slot: None if own is None else own[0, 0] for slot, own in arrays.items()
        }
        products = {
            "to_value": heads.product(one["weights"].T, one["out_grad"], one["value_grad"]),
            "to_weights": heads.product(one["out_grad"], one["value"].T, None if none else pull),
            "to_query": heads.product(pull, one["key"], one["query_grad"], scale),
            "to_key": heads.product(pull.T, one["query"], one["key_grad"], scale),
        }
        if any(product is None for product in products.values()):
            return None
        sizes = {"queries": queries, "keys": keys, "width": width, **heads.sizes}
        bound.append(heads.bind("attend_heads", **products, **arrays, **sizes))
    work = len(bound) * heads.count * queries * keys * (2 * query.shape[-1] + 2 * width + 8)
    room = heads.room(queries * keys)
    fields = {"count": len(bound), "each": heads.count, "heads": Several.of(bound)}
    return heads.call("attend_grad", work, **fields, **room)


def _where_compiled(bind: Callable[[KernelArgs], Call | None]) -> Callable[..., Call | None]:
    return lambda k: None if library() is None else bind(k)


for _entry, _kernel in ((attention, _bind), (lookup(f"{attention.type}_grad"), _bind_grad)):
    _entry.kernel(
        _where_compiled(_kernel), device="cpu", dtypes=(np.float32, np.float64), library="native"
    )
