"""Attention head by head, or block of queries by block, shared between threads (library "native").

A block's products, masks and softmax follow each other while its weights are in the cache. Where
nothing reads the weights afterwards each thread has memory for one block, and no more of them is
ever there. Dropout, gradients of masks and heads that broadcast are left to the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.base.cpu.cores import is_intel
from ...framework.base.cpu.threads import most_threads
from ...framework.fusion import team
from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.arguments import Block, Places, Several, several
from ...framework.fusion.compiled.libraries import Library
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
    """The heads of an operator's arrays.

    Attributes:
        places: the index of each head. make: of products. dtype: of all arrays.
    """

    def __init__(
        self, k: KernelArgs, make: parts.MakeGemm[parts.Gemm], lead: tuple[int, ...]
    ) -> None:
        self.places = list(np.ndindex(lead))
        self.make = make
        self.dtype = k["out"].dtype
        self.memory: list[Any] = []

    def at(self, stack: Any, beyond: int = 0) -> Places | None:
        """Where each head of an array begins, or so many bytes beyond; None for None."""
        if stack is None:
            return None
        return Places(stack, parts.offsets_in(stack, self.places) + beyond)

    def product(self, a: Any, b: Any, out: Any, scale: float = 1.0) -> Block | None:
        """A product of matrices that lie as these; none is done for no `out`."""
        if out is None:
            return self.bind("gemm")
        arrays = a, b, out
        how = parts.layouts(arrays)
        if how is None:
            return None
        gemm, _ = parts.one(self.make, arrays, how, (scale, 0.0))
        self.memory.append(gemm)
        return self.bind("gemm", function=gemm.address, handle=gemm.handle)

    def room(self, elements: int) -> dict[str, Any]:
        """Memory of so many elements for each thread, its bytes, and how many threads have some."""
        size = -(-elements * self.dtype.itemsize // 64) * 64
        # Bounded: memory for all threads of a large machine would leave the cache.
        count = min(len(self.places) * 64, _SHARES * most_threads())
        return {"memory": panel_memory(size * count), "bytes": size, "threads": count}

    def bind(self, name: str, **fields: Any) -> Block:
        return native.bind("attention", self.dtype, name, **fields)

    def several(self, name: str, **fields: Any) -> Several:
        """A struct for each head."""
        kernels = library(self.dtype)
        assert kernels is not None, "the caller has seen that it is there"
        return several(kernels, name, len(self.places), **fields)

    def call(self, name: str, work: int, **fields: Any) -> Call:
        block = self.bind(name, **fields)
        block.memory.append(self.memory)
        return rows.call(team.block_task(work, block))


def _bind(k: KernelArgs) -> Call | None:
    slots = [split_heads(k[slot], k.attrs["heads"]) for slot in ("query", "key", "value", "out")]
    query, key, value, out = slots
    lead = out.shape[:-2]
    if k.get("past") is not None:
        return _bind_cached(k, slots)
    if not _suit(slots, lead) or (k.train and k.attrs["dropout"] > 0):
        return None
    heads, (queries, keys) = _Heads(k, _products(k), lead), (out.shape[-2], key.shape[-2])
    step = min(queries, max(_FEWEST, _BLOCK // keys))
    weights = k.get("weights")
    # Where the weights are an output they are computed in their place, and any thread may take a
    # block.
    room = {"bytes": 0, "threads": 1 << 20} if weights is not None else heads.room(step * keys)
    # As `pull` below: for its layout alone.
    like = np.empty((step, keys), out.dtype)
    mask, key_mask, steps = _masks(k, (*lead, queries, keys))
    first = heads.places[0]
    blocks = []
    for begin in range(0, queries, step):
        many = min(step, queries - begin)
        w = like[:many] if weights is None else weights[first][:many]
        one = heads.product(query[first][:many], key[first].T, w, _scale(k, query))
        other = heads.product(w, value[first], out[first][:many])
        if one is None or other is None:
            return None
        fields: dict[str, Any] = {"scores": one, "sums": other, "keys": keys, **steps}
        fields |= {"query": heads.at(query, begin * query.strides[-2]), "key": heads.at(key)}
        fields |= {"value": heads.at(value), "out": heads.at(out, begin * out.strides[-2])}
        fields |= {"mask": heads.at(mask, begin * steps["mask_down"]), "first": begin}
        fields |= {"key_mask": heads.at(key_mask), "rows": many}
        fields |= {"weights": heads.at(weights, begin * keys * out.itemsize)}
        blocks.append(heads.several("attend_block", **fields))
    flags = mask is not None and mask.dtype == bool
    fields = {"blocks": Several.joined(blocks), "causal": k.attrs["causal"], "flags": flags}
    count = len(fields["blocks"])
    width = query.shape[-1] + value.shape[-1] + _EXP
    work = len(heads.places) * queries * keys * width
    return heads.call("attend", work, count=count, **fields, **room)


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
    heads = _Heads(k, row_products.make_gemm, lead)
    count, queries, keys = len(heads.places), out.shape[-2], key.shape[-2]
    work = count * queries * keys * (query.shape[-1] + value.shape[-1] + _EXP)
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
        **heads.room(keys),
    )


def _suit(arrays: list[Any], lead: tuple[int, ...]) -> bool:
    dtype = arrays[-1].dtype
    return library() is not None and all(
        type(array) is np.ndarray
        and array.dtype == dtype
        and array.shape[:-2] == lead
        and array.size > 0
        for array in arrays
    )


def _masks(k: KernelArgs, shape: tuple[int, ...]) -> tuple[Any, Any, dict[str, int]]:
    """The mask and that of the keys, for each head, or None; their steps in bytes."""
    mask, keys = k.get("mask"), k.get("key_mask")
    down = right = key_step = 0
    if mask is not None:
        mask = np.broadcast_to(mask, shape)
        down, right = mask.strides[-2:]
    if keys is not None:
        key_step = keys.strides[1]
        keys = np.broadcast_to(keys.reshape(shape[0], *(1,) * (len(shape) - 2), shape[-1]), shape)
    return mask, keys, {"mask_down": down, "mask_right": right, "key_step": key_step}


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
    heads = _Heads(k, _products(k), lead)
    first = heads.places[0]
    # Only its layout counts, for the products' code: threads have memory of their own.
    pull = np.empty((queries, keys), out.dtype)
    at = [None if target is None else target[first] for target in targets]
    scale = _scale(k, query)
    none = of_query is None and of_key is None
    products = {
        "to_value": heads.product(weights[first].T, grad[first], at[2]),
        "to_weights": heads.product(grad[first], value[first].T, None if none else pull),
        "to_query": heads.product(pull, key[first], at[0], scale),
        "to_key": heads.product(pull.T, query[first], at[1], scale),
    }
    if any(product is None for product in products.values()):
        return None
    arrays = {"query": query, "key": key, "value": value, "out": out, "out_grad": grad}
    arrays |= {"weights": weights, "query_grad": of_query, "key_grad": of_key}
    per_head = heads.several(
        "attend_head",
        **products,
        **{slot: heads.at(array) for slot, array in (*arrays.items(), ("value_grad", of_value))},
        **{"queries": queries, "keys": keys, "width": width},
    )
    work = len(heads.places) * queries * keys * (2 * query.shape[-1] + 2 * width + 8)
    room = heads.room(queries * keys)
    return heads.call("attend_grad", work, count=len(per_head), heads=per_head, **room)


def _where_compiled(bind: Callable[[KernelArgs], Call | None]) -> Callable[..., Call | None]:
    return lambda k: None if library() is None else bind(k)


for _entry, _kernel in ((attention, _bind), (lookup(f"{attention.type}_grad"), _bind_grad)):
    _entry.kernel(
        _where_compiled(_kernel), device="cpu", dtypes=(np.float32, np.float64), library="native"
    )
