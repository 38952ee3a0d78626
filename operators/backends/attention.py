"""Attention head by head, or block of queries by block, shared between threads (library "native").

A block's products, masks and softmax follow each other while its weights are in the cache. Where
nothing reads the weights afterwards each thread has memory for one block, and no more of them is
ever there. Dropout, gradients of masks and heads that broadcast are left to the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.base.cpu.threads import most_threads
from ...framework.fusion import native, team
from ...framework.fusion.libraries import Library
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import lookup
from ...framework.runtime.plans.memory import panel_memory
from ..attention.dot_product import attention
from ..attention.heads import split_heads
from . import blas, mkl, parts, rows

_BLOCK = 1 << 16
"""Elements of the weights of a block of queries."""
_FEWEST = 16  # rows of a block
_LARGEST = 1 << 22  # elements of a head's weights, up to which its gradient is computed here
_SHARES = 8  # blocks that a thread may have memory for
_EXP = 60


def library(dtype: np.dtype | type = np.float32) -> Library | None:
    """The functions for a dtype; None where it has none, or there is no native library."""
    return native.typed("attention", dtype)


def _products(k: KernelArgs) -> parts.MakeGemm[parts.Gemm] | None:
    """What makes products on one thread."""
    plan = getattr(k.frame, "plan", None)  # a kernel that is tried by itself has none
    libraries = ("mkl", "blas") if plan is None else plan.options.libraries
    # MKL's code for one shape first: heads are many small products of equal shapes.
    if "mkl" in libraries and mkl.library() is not None:
        return mkl.make_gemm
    return blas.make_gemm if "blas" in libraries and blas.library() is not None else None


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
        self.make, self.dtype = make, k["out"].dtype
        self.memory: list[Any] = []

    def addresses(self, stack: Any) -> list[int]:
        """Where each head of an array begins; zeros for None."""
        if stack is None:
            return [0] * len(self.places)
        self.memory.append(stack)
        return parts.addresses_in(stack, self.places)

    def product(self, a: Any, b: Any, out: Any, scale: float = 1.0) -> tuple[int, int] | None:
        """Function and handle of a product of matrices that lie as these; zeros for no `out`."""
        if out is None:
            return 0, 0
        arrays = a, b, out
        how = parts.layouts(arrays)
        if how is None:
            return None
        gemm, _ = parts.one(self.make, arrays, how, (scale, 0.0))
        self.memory.append(gemm)
        return gemm.address, gemm.handle

    def room(self, elements: int) -> tuple[Any, int, int]:
        """Memory of so many elements for each thread, its bytes, and how many threads have some."""
        size = -(-elements * self.dtype.itemsize // 64) * 64
        # Bounded: memory for all threads of a large machine would leave the cache.
        count = min(len(self.places) * 64, _SHARES * most_threads())
        return panel_memory(size * count), size, count

    def call(self, name: str, words: list[Any], work: int) -> Call:
        argument = np.array([rows.word(one) for one in words], np.int64)
        item = native.function("attention", self.dtype, name), argument.ctypes.data
        self.memory += [argument, *(one for one in words if isinstance(one, np.ndarray))]
        return rows.call(team.ParallelTask((item,), work, self.memory))


def _bind(k: KernelArgs) -> Call | None:
    slots = [split_heads(k[slot], k.attrs["heads"]) for slot in ("query", "key", "value", "out")]
    query, key, value, out = slots
    lead, make = out.shape[:-2], _products(k)
    if make is None or not _suit(slots, lead) or (k.train and k.attrs["dropout"] > 0):
        return None
    heads, (queries, keys) = _Heads(k, make, lead), (out.shape[-2], key.shape[-2])
    step = min(queries, max(_FEWEST, _BLOCK // keys))
    weights = k.get("weights")
    # Where the weights are an output they are computed in their place, and any thread may take a
    # block.
    room, size, count = (None, 0, 1 << 20) if weights is not None else heads.room(step * keys)
    # As `pull` below: for its layout alone.
    like = np.empty((step, keys), out.dtype)
    masks = _masks(k, heads, (*lead, queries, keys))
    places = [heads.addresses(array) for array in (query, key, value, out)]
    kept = heads.addresses(weights)
    words: list[Any] = [len(heads.places) * -(-queries // step), room, size, count]
    words += [keys, int(k.attrs["causal"]), *masks.kind]
    first = heads.places[0]
    for begin in range(0, queries, step):
        many = min(step, queries - begin)
        w = like[:many] if weights is None else weights[first][:many]
        one = heads.product(query[first][:many], key[first].T, w, _scale(k, query))
        other = heads.product(w, value[first], out[first][:many])
        if one is None or other is None:
            return None
        for at in range(len(heads.places)):
            q, each, v, o = (place[at] for place in places)
            q, o = q + begin * query.strides[-2], o + begin * out.strides[-2]
            row = begin * keys * out.itemsize
            words += [*one, *other, q, each, v, o]
            words += [masks.at[at] and masks.at[at] + begin * masks.kind[1], masks.keys[at]]
            words += [begin, many, kept[at] and kept[at] + row]
    width = query.shape[-1] + value.shape[-1] + _EXP
    return heads.call("attend", words, len(heads.places) * queries * keys * width)


def _suit(arrays: list[Any], lead: tuple[int, ...]) -> bool:
    dtype = arrays[-1].dtype
    return library() is not None and all(
        type(array) is np.ndarray
        and array.dtype == dtype
        and array.shape[:-2] == lead
        and array.size > 0
        for array in arrays
    )


class _Mask:
    """Attributes: kind: the words of `attend`; at, keys: addresses of a head's masks, or 0."""

    def __init__(self, kind: list[int], at: list[int], keys: list[int]) -> None:
        self.kind, self.at, self.keys = kind, at, keys


def _masks(k: KernelArgs, heads: _Heads, shape: tuple[int, ...]) -> _Mask:
    mask, keys = k.get("mask"), k.get("key_mask")
    kind = [0, 0, 0, 0]
    if mask is not None:
        mask = np.broadcast_to(mask, shape)
        kind[:3] = [1 if mask.dtype == bool else 2, *mask.strides[-2:]]
    if keys is not None:
        kind[3] = keys.strides[1]
        keys = np.broadcast_to(keys.reshape(shape[0], *(1,) * (len(shape) - 2), shape[-1]), shape)
    return _Mask(kind, heads.addresses(mask), heads.addresses(keys))


def _bind_grad(k: KernelArgs) -> Call | None:
    count, weights, make = k.attrs["heads"], k["weights"], _products(k)
    slots = [split_heads(k[one], count) for one in ("query", "key", "value", "out", "out_grad")]
    query, key, value, out, grad = slots
    lead = out.shape[:-2]
    targets = [k.get(f"{slot}_grad") for slot in ("query", "key", "value")]
    targets = [None if target is None else split_heads(target, count) for target in targets]
    of_query, of_key, of_value = targets
    found = [target for target in targets if target is not None]
    if make is None or k.get("mask_grad") is not None or (k.train and k.attrs["dropout"] > 0):
        return None
    (queries, keys), width = weights.shape[-2:], out.shape[-1]
    if queries * keys > _LARGEST or not _suit([*slots, *found, weights], lead):
        return None
    if any(array.strides[-1] != array.itemsize for array in (out, grad)):
        return None
    heads = _Heads(k, make, lead)
    first = heads.places[0]
    # Only its layout counts, for the products' code: threads have memory of their own.
    pull = np.empty((queries, keys), out.dtype)
    at = [None if target is None else target[first] for target in targets]
    scale, none = _scale(k, query), of_query is None and of_key is None
    products = [
        heads.product(weights[first].T, grad[first], at[2]),
        heads.product(grad[first], value[first].T, None if none else pull),
        heads.product(pull, key[first], at[0], scale),
        heads.product(pull.T, query[first], at[1], scale),
    ]
    if any(product is None for product in products):
        return None
    functions = [one for product in products if product for one in product]
    room, size, many = heads.room(queries * keys)
    words: list[Any] = [len(heads.places), room, size, many, queries, keys, width]
    words += [array.strides[-2] // array.itemsize for array in (out, grad)]
    arrays = query, key, value, out, grad, weights, of_query, of_key, of_value
    for places in zip(*map(heads.addresses, arrays), strict=True):
        words += [*functions, *places]
    work = len(heads.places) * queries * keys * (2 * query.shape[-1] + 2 * width + 8)
    return heads.call("attend_grad", words, work)


def _where_compiled(bind: Callable[[KernelArgs], Call | None]) -> Callable[..., Call | None]:
    return lambda k: None if library() is None else bind(k)


for _entry, _kernel in ((attention, _bind), (lookup(f"{attention.type}_grad"), _bind_grad)):
    _entry.kernel(
        _where_compiled(_kernel), device="cpu", dtypes=(np.float32, np.float64), library="native"
    )
