"""Statistics that components keep while they run: sums in float64, added to with every batch.

Each operator reads its totals and writes them anew; a net gives both the same variable. Kaldi
draws lots for which batches it takes into account; here every batch counts, as the averages are
what matters.
"""

from __future__ import annotations

from functools import partial

from ...framework.base.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import in_order, reducing
from .fused import computed
from .lstm import lstm_formulas

_NO_GRADIENT = "statistics are no part of what is trained"
_SOURCE = "Kaldi: nnet3/nnet-component-itf.cc"


def _totals(**docs: str) -> tuple[list[Slot], list[Slot]]:
    """Input slots, and the output slots that replace them."""
    inputs = [Slot(name, doc) for name, doc in docs.items()]
    outputs = [
        Slot(f"{name}_out", f"{name}, added to", inplace="" if name == "count" else name)
        for name in docs
    ]
    return inputs, outputs


def _keep(s: ShapeArgs, **shapes: tuple[int, ...]) -> None:
    """Totals keep their shapes, which must be these."""
    for name, wanted in shapes.items():
        s.same_shape(f"{name} and what is added to it", s[name], wanted)
        s.set(f"{name}_out", (s[name], s.dtype(name)))


_SUMMED = ("value", "square", "sigmoid_slope", "tanh_slope", "relu_slope")

column_sums = operator(
    "nnet3.column_sums",
    doc=(
        "Adds the sums of the first D columns of f(x) [N, E] to total [D], and N to count [1]. f:"
        " x itself, its square, or the slope of a nonlinearity at its output x: x (1 - x) for"
        " sigmoid, 1 - x^2 for tanh, x > 0 for relu."
    ),
    inputs=[
        Slot("x", "[N, E]"),
        Slot("total", "[D], D <= E"),
        Slot("count", "[1]: rows so far", optional=True),
    ],
    outputs=[
        Slot("total_out", "total, added to", inplace="total"),
        Slot("count_out", "count, added to", optional=True),
    ],
    attrs=[AttrSpec("of", "string", "what is summed", "value", choices=_SUMMED)],
    source=_SOURCE,
    no_gradient=_NO_GRADIENT,
)


@column_sums.shape_rule
def column_sums_shape(s: ShapeArgs) -> None:
    s.floats("x")
    counted = {"count": (1,)} if s.has("count") else {}
    cols, width = s.rank("x", 2)[1], s.rank("total", 1)[0]
    if 0 <= cols < width:
        s.fail(f"total wants sums of {width} columns and x has {cols}")
    _keep(s, total=(width,), **counted)


@column_sums.kernel
def column_sums_kernel(k: KernelArgs) -> Call:
    xp, of = k.xp, k.attrs["of"]
    x = k["x"][:, : k["total"].shape[0]]
    sums, work = k.scratch(x.shape[1:], x.dtype), k.scratch(x.shape, x.dtype)
    one, calls, source = x.dtype.type(1), [], work
    if of == "value":
        source = x
    elif of == "relu_slope":
        calls.append(partial(xp.greater, x, x.dtype.type(0), work, casting="unsafe"))
    elif of == "sigmoid_slope":
        calls += [partial(xp.subtract, one, x, work), partial(xp.multiply, work, x, work)]
    else:
        calls.append(partial(xp.multiply, x, x, work))
        if of == "tanh_slope":
            calls.append(partial(xp.subtract, one, work, work))
    calls += [
        reducing(xp, source, sums),
        partial(xp.add, k["total"], sums, k["total_out"]),
    ]
    if k.get("count") is not None:
        calls.append(partial(xp.add, k["count"], x.shape[0], k["count_out"]))
    return in_order(*calls)


_IN, _OUT = _totals(sum="[D]", sumsq="[D]", count="[1]: rows so far")

batch_norm_statistics = operator(
    "nnet3.batch_norm_statistics",
    doc=(
        "Adds the statistics of a batch to those of a batch normalisation: N mean to sum [D],"
        " N uvar to sumsq [D], N to count [1]; N counts the rows of x [R, B*D], over all blocks."
    ),
    inputs=[
        Slot("x", "[R, B*D]", shape_only=True),
        Slot("mean", "[D]"),
        Slot("uvar", "[D]: mean of squares"),
        *_IN,
    ],
    outputs=_OUT,
    source="Kaldi: nnet3/nnet-normalize-component.cc",
    no_gradient=_NO_GRADIENT,
)


@batch_norm_statistics.shape_rule
def batch_norm_statistics_shape(s: ShapeArgs) -> None:
    width = s.same_shape("mean and uvar", s["mean"], s["uvar"])
    s.rank("x", 2)
    _keep(s, sum=width, sumsq=width, count=(1,))


@batch_norm_statistics.kernel
def batch_norm_statistics_kernel(k: KernelArgs) -> Call:
    xp, mean = k.xp, k["mean"]
    rows, cols = k.shape("x")
    count = rows * cols // max(mean.shape[0], 1)
    part, real = k.scratch(mean.shape, k["sum"].dtype), k["sum"].dtype.type
    return in_order(
        partial(xp.multiply, mean, real(count), part),
        partial(xp.add, k["sum"], part, k["sum_out"]),
        partial(xp.multiply, k["uvar"], real(count), part),
        partial(xp.add, k["sumsq"], part, k["sumsq_out"]),
        partial(xp.add, k["count"], count, k["count_out"]),
    )


_IN, _OUT = _totals(posterior="[H, C]", entropy="[H]", count="[1]: rows so far")
_LEAST = 1e-20

attention_statistics = operator(
    "nnet3.attention_statistics",
    doc=(
        "Adds to the statistics of an attention with weights [N, H, C]: their sums over rows to"
        " posterior [H, C], their entropies to entropy [H], N to count [1]."
    ),
    inputs=[Slot("weights", "[N, H, C]"), *_IN],
    outputs=_OUT,
    source="Kaldi: nnet3/nnet-attention-component.cc",
    no_gradient=_NO_GRADIENT,
)


@attention_statistics.shape_rule
def attention_statistics_shape(s: ShapeArgs) -> None:
    s.floats("weights")
    shape = s.rank("weights", 3)
    _keep(s, posterior=shape[1:], entropy=shape[1:2], count=(1,))


@attention_statistics.kernel
def attention_statistics_kernel(k: KernelArgs) -> Call:
    xp, weights = k.xp, k["weights"]
    work = k.scratch(weights.shape, weights.dtype)
    sums, entropies = (k.scratch(weights.shape[1:end], weights.dtype) for end in (3, 2))
    return in_order(
        partial(xp.sum, weights, axis=0, out=sums),
        partial(xp.add, k["posterior"], sums, k["posterior_out"]),
        partial(xp.maximum, weights, weights.dtype.type(_LEAST), out=work),
        partial(xp.log, work, out=work),
        partial(xp.multiply, work, weights, work),
        partial(xp.sum, work, axis=(0, 2), out=entropies),
        partial(xp.subtract, k["entropy"], entropies, k["entropy_out"]),
        partial(xp.add, k["count"], weights.shape[0], k["count_out"]),
    )


_IN, _OUT = _totals(
    values="[5, C]",
    slopes="[5, C]",
    count="[1]: rows so far",
    repaired="[5]: rows times units that were repaired",
)

lstm_statistics = operator(
    "nnet3.lstm_statistics",
    doc=(
        "Adds the sums over rows of the five nonlinearities of `nnet3.lstm`, i, f, c, o and that of"
        " the cell, to values [5, C], those of their slopes to slopes [5, C], and N to count [1]."
        " Self-repair: N times the units that `repair` [5, C] has just changed are added to"
        " repaired [5]; repair_out is `scale` where the average slope is now below `lower`, and 0"
        " elsewhere."
    ),
    inputs=[
        Slot("x", "[N, 5C] or [N, 5C+3]"),
        Slot("w", "[3, C]"),
        *_IN,
        Slot("repair", "[5, C]: that of this batch", optional=True),
    ],
    outputs=[*_OUT, Slot("repair_out", "[5, C]: that of the next batch", optional=True)],
    attrs=[
        AttrSpec("lower", "floats", "[5]: least average slopes that are left alone", [0.0] * 5),
        AttrSpec("scale", "floats", "[5]: strengths of self-repair", [0.0] * 5),
    ],
    source="Kaldi: cudamatrix/cu-math.cc",
    no_gradient=_NO_GRADIENT,
)


@lstm_statistics.shape_rule
def lstm_statistics_shape(s: ShapeArgs) -> None:
    s.floats("x", "w")
    shape = (5, s.rank("w", 2)[1])
    _keep(s, values=shape, slopes=shape, count=(1,), repaired=(5,))
    if s.has("repair"):
        _keep(s, repair=shape)
    for name in ("lower", "scale"):
        if len(s.attrs[name]) != 5:
            s.fail(f"{name} has {len(s.attrs[name])} numbers, one for each of 5 nonlinearities")


@lstm_statistics.kernel
def lstm_statistics_kernel(k: KernelArgs) -> Call:
    xp, dtype, shape = k.xp, k["x"].dtype, (k["x"].shape[0], k["w"].shape[1])
    names, formulas = lstm_formulas(k)
    gates = {name: k.scratch(shape, dtype) for name in ("i", "f", "g", "o", "t")}
    values = tuple(gates.values())
    work, sums = k.scratch(shape, dtype), k.scratch((5, shape[1]), "f8")
    one = dtype.type(1)

    def slopes() -> None:
        for number, value in enumerate(values):
            if number in (2, 4):
                xp.multiply(value, value, work)
                xp.subtract(one, work, work)
            else:
                xp.subtract(one, value, work)
                xp.multiply(work, value, work)
            xp.sum(work, axis=0, out=sums[number])

    rows, repair = k.shape("x")[0], k.get("repair")

    def count_repaired() -> None:
        xp.copyto(k["repaired_out"], k["repaired"])
        if repair is not None:
            xp.add(k["repaired_out"], rows * (repair != 0).sum(axis=1), k["repaired_out"])

    def next_repair() -> None:
        low = k["slopes_out"] < lower * (1 + k["count_out"])
        xp.multiply(low, scale, k["repair_out"], casting="unsafe")

    lower, scale = (xp.asarray(k.attrs[name])[:, None] for name in ("lower", "scale"))
    return in_order(
        computed(k, names, formulas, gates),
        *(partial(xp.sum, value, axis=0, out=sums[i]) for i, value in enumerate(values)),
        partial(xp.add, k["values"], sums, k["values_out"]),
        slopes,
        partial(xp.add, k["slopes"], sums, k["slopes_out"]),
        partial(xp.add, k["count"], rows, k["count_out"]),
        count_repaired,
        *([] if repair is None else [next_repair]),
    )
