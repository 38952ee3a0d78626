"""Every kernel of native/cuda as PTX, run lane by lane, leaves what the stand-in of CuPy computes.

The interpreter (tests/ptx) also refuses races, reads of shared memory that was not written,
accesses outside arrays and barriers that some threads do not reach.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opscope.nnet3.components  # noqa: F401 - registers its operators
from chain_graphs import random_hmm, random_supervision
from cuda_compiler import nvrtc, ptx_of
from device_steps import STEPS
from opscope import NetBuilder, OpContext, Scope, Sequences, native, options
from opscope.framework.base.errors import OpscopeError
from opscope.framework.fusion.cuda.cuda_source import gpu_source
from opscope.framework.fusion.cuda.device_kernels import cuda_text
from opscope.framework.fusion.scalars.codegen import ONE, Operand
from opscope.framework.ir.registry import lookup
from opscope.nnet3.chain.arrays import graph_arrays, supervision_arrays
from opscope.nnet3.chain.denominator import DenominatorGraph
from opscope.nnet3.chain.supervisions.supervision import Supervision, merge_supervision
from opscope.testing import Case
from opscope.testing.device_array import no_race
from opscope.testing.device_double import DOUBLE, by_default, instead_of_cupy
from opscope.testing.device_kernels import make_kernel
from opscope.testing.op_setup import Setup, run
from ptx.launches import ARCHITECTURE, interpreted
from ptx.machine import launch
from ptx.memory import region_at
from scalar_kernels import HEAD, kernel, loops_of

pytestmark = pytest.mark.skipif(nvrtc() is None, reason="no nvidia-cuda-nvrtc-cu12")

Use = tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]
RNG = np.random.default_rng(0)
SIZES = (1, 31, 33, 1025)


def use(kind: str, inputs: dict[str, Any], attrs: Any = None, **rest: Any) -> Use:
    """One operator with its inputs and attributes; `rest` as of `Case`, and `many`: the output slot
    of two variables."""
    return kind, inputs, attrs or {}, rest


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def rows() -> Iterator[Use]:
    shapes = [(0, 3), (3, 1), (33, 31), (2, 1025), (1, 33)]
    for shape in shapes:
        x, out, grad = normal(*shape), np.abs(normal(*shape)) + 0.1, normal(*shape)
        yield use("softmax", {"x": x})
        yield use("softmax_grad", {"x": x, "out": out, "out_grad": grad})
        yield use("log_softmax", {"x": x})
        yield use("log_softmax_grad", {"x": x, "out": -out, "out_grad": grad})
        labels = RNG.integers(0, shape[1], shape[0])
        labels[1::3] = -100
        yield use("softmax_cross_entropy", {"x": x, "label": labels}, outputs=("softmax",))
        given = {"x": x, "label": labels, "softmax": out, "out_grad": grad[:, 0]}
        yield use("softmax_cross_entropy_grad", given)
        yield use("nll_loss", {"x": x, "label": labels})
        yield use("label_weight", {"x": x, "label": labels, "weight": normal(shape[1])})
        affine = {"scale": normal(shape[1]), "bias": normal(shape[1])}
        yield use("layer_norm", {"x": x + 3, **affine})
        yield use("layer_norm", {"x": x})
        given = {"x": x, "mean": grad[:, 0], "inv_std": out[:, 0], "out_grad": grad, **affine}
        yield use("layer_norm_grad", given, outputs=("x_grad", "scale_grad", "bias_grad"))
    given = {slot: normal(2, 3, 4) for slot in ("query", "key", "value")}
    yield use("scaled_dot_product_attention", given, {"heads": 2, "causal": True})


def copies() -> Iterator[Use]:
    for height in SIZES:
        yield use("split", {"x": normal(height, 6)}, {"axis": 1, "sections": (1, 5)}, many="out")


def recurrent() -> Iterator[Use]:
    for height, cells in ((33, 3), (2, 33), (1, 1)):
        bounds = {"clipping_threshold": 1.0, "zeroing_threshold": 1.5, "scale": 0.9}
        attrs = {**bounds, "boundary": np.arange(height) % 2 == 0}
        grad = normal(height, cells) * np.arange(height)[:, None]
        given = {"x": grad, "out_grad": grad}
        yield use("nnet3.truncate_gradient_grad", given, attrs)
        attrs = {"lower": [0.2, 0.1, 0.3, 0.2, 0.1], "scale": [1.0, 2.0, 3.0, 4.0, 5.0]}
        totals = {"values": normal(5, cells), "slopes": np.abs(normal(5, cells))}
        totals |= {"count": np.array([9.0]), "repaired": np.arange(5.0)}
        repair = {"repair": np.arange(5.0 * cells).reshape(5, cells) % 2}
        for scaled in (0, 3):
            given = {"x": normal(height, 5 * cells + scaled), "w": normal(3, cells), **totals}
            yield use("nnet3.lstm_statistics", given, attrs)
            yield use("nnet3.lstm_statistics", {**given, **repair}, attrs, outputs=("repair_out",))


def windows() -> Iterator[Use]:
    shapes = {1: [(2, 3, 33)], 2: [(1, 2, 6, 5), (33, 1, 4, 4)], 3: [(1, 2, 4, 3, 5)]}
    for axes, listed in shapes.items():
        for shape in listed:
            x = normal(*shape)
            w = normal(4, shape[1], *[3] * axes)
            attrs = {"padding": [1] * axes, "stride": [2] * axes}
            yield use(f"conv{axes}d", {"x": x, "w": w}, attrs)
            out = [shape[0], 4, *((n - 1) // 2 + 1 for n in shape[2:])]
            given = {"x": x, "w": w, "out_grad": normal(*out)}
            yield use(f"conv{axes}d_grad", given, attrs, outputs=("x_grad", "w_grad"))
            attrs = {"kernel": [3] * axes, **attrs}
            yield use(f"max_pool{axes}d", {"x": x}, attrs, outputs=("index",))
            out[1] = shape[1]
            index = RNG.integers(0, 3, winners(shape, out)).astype(np.uint8)
            given = {"x": x, "index": index, "out_grad": normal(*out)}
            yield use(f"max_pool{axes}d_grad", given, attrs)
            for counts in (True, False):
                own = {**attrs, "count_include_pad": counts}
                yield use(f"avg_pool{axes}d", {"x": x}, own)
                yield use(f"avg_pool{axes}d_grad", {"x": x, "out_grad": normal(*out)}, own)


def winners(shape: tuple[int, ...], out: list[int]) -> int:
    """How many winners a maximum over windows has: of each axis, the last one first."""
    total, now = 0, list(shape)
    for axis in range(len(shape) - 1, 1, -1):
        now[axis] = out[axis]
        total += int(np.prod(now))
    return total


def ctc() -> Iterator[Use]:
    for steps, labels, classes in (([9], [[1, 2]], 5), ([7, 3, 33], [[3], [4, 4, 1], []], 5)):
        counts = [len(one) for one in labels]
        x, label = normal(sum(steps), classes), np.array(sum(labels, []), np.int64)
        offsets = {"x": [np.cumsum([0, *steps])], "label": [np.cumsum([0, *counts])]}
        for attrs in ({}, {"zero_infinity": True, "per_label": True}):
            given = {"x": x, "label": label}
            yield use("ctc_loss", given, attrs, offsets=offsets, outputs=("slope",))


def columns() -> Iterator[Use]:
    for height, width in ((1, 1), (31, 33), (1025, 3)):
        x, out = normal(height, width), normal(height, width)
        attrs = {"block": width, "target_rms": 0.5}
        yield use("nnet3.batch_norm", {"x": x}, attrs, outputs=("mean", "uvar", "scale"))
        scale = np.abs(normal(width))
        given = {"x": x, "out": out, "scale": scale, "out_grad": x}
        yield use("nnet3.batch_norm_grad", given, attrs)
        totals = {"sum": normal(width), "sumsq": normal(width), "count": np.ones(1)}
        given = {"x": x, "mean": normal(width), "uvar": scale, **totals}
        yield use("nnet3.batch_norm_statistics", given)
        for of in ("value", "square", "sigmoid_slope", "tanh_slope", "relu_slope"):
            given = {"x": x, "total": normal(width), "count": np.ones(1)}
            yield use("nnet3.column_sums", given, {"of": of}, outputs=("count_out",))


def parts() -> Iterator[Use]:
    for height, width in ((1, 1), (33, 31), (1025, 2)):
        x, y = normal(height, width), normal(height, width)
        yield use("nnet3.splice_rows", {"x": x}, {"first": [0], "rows": height, "ones": True})
        scales = [np.array([2.0]), np.array([0.5])]
        yield use("nnet3.scaled_parts", {"x": x, "scale": scales}, outputs=("b_grad",))
        yield use("nnet3.scaled_parts", {"x": x, "scale": scales[:1]})
        yield use("nnet3.linear_objective", {"output": x, "supervision": y})


def natural_gradient() -> Iterator[Use]:
    for height, width, rank in ((40, 6, 2), (7, 33, 5)):
        values = np.linspace(4.0, 2.0, rank)
        beta = 0.7 * 5 + 4.0 * values.sum() / width
        w = np.linalg.qr(normal(width, rank))[0].T * np.sqrt(1 / (beta / values + 1))[:, None]
        given = {"x": normal(height, width), "w": w, "d": values, "rho": np.array([0.7])}
        for count in (3, 14):
            attrs = {"update_period": 1}
            yield use("nnet3.precondition", {**given, "count": np.array([count])}, attrs)
        stays = {"count": np.array([3]), "frozen": np.ones(1)}
        yield use("nnet3.precondition", {**given, **stays}, {"update_period": 1})
    # Rows that are not orthogonal any more, of an estimate with far larger and smaller values.
    skewed = {**given, "w": w + 0.1 * normal(*w.shape), "count": np.array([11])}
    skewed |= {"d": np.logspace(4, -6, rank), "rho": np.array([1e-6])}
    skewed["x"] = 1e-3 * normal(height, width)
    yield use("nnet3.precondition", skewed, {"update_period": 1})


def updates() -> Iterator[Use]:
    for height in SIZES:
        params, grads, deltas = ([normal(height, 3), normal(height)] for _ in range(3))
        common = {"param": params, "rate": np.array([0.1]), "l2_scale": np.array([8.0])}
        for kept in (0.0, 1.0):
            given = {**common, "grad": grads, "delta": deltas, "kept": np.array([kept])}
            attrs = {"l2": 0.01, "momentum": 0.5}
            yield use("nnet3.parameter_delta", given, attrs, many="delta_out")
        one = np.ones(1)
        changes = {"delta": deltas, "scale": -one, "bound_scale": one}
        for bounds in ([0.75, 0.1], [0.0, 1e9]):
            attrs = {"arrays": [1, 1], "bounds": bounds, "total": 2.0}
            yield use("nnet3.max_change", changes, attrs)
        given = {"param": params, "delta": deltas, "scales": np.array([0.5, 0.25])}
        yield use("nnet3.apply_change", given, {"index": 1}, many="param_out")
        yield use("nnet3.scale_states", {"x": params, "factor": one / 2}, many="x_out")
    for shape, scale in (((3, 5), -1.0), ((31, 33), 1.0)):
        attrs = {"scale": scale, "probability": 1.0}
        yield use("nnet3.constrain_orthonormal", {"w": normal(*shape)}, attrs)


def indexes() -> Iterator[Use]:
    for count in SIZES:
        ids = RNG.integers(0, 7, count)
        for dtype in (np.int32, np.int64):
            yield use("embedding", {"w": normal(7, 2), "ids": ids.astype(dtype)})


def chain() -> Iterator[Use]:
    graph = graph_arrays(DenominatorGraph.of_fst(random_hmm(RNG, states=3), 3))
    parts = [random_supervision(RNG, 3, weight=0.5) for _ in range(2)]
    loops = [Supervision(0.5, 1, 3, 3, e2e_fsts=[random_hmm(RNG, states=n)]) for n in (2, 3)]
    attrs = {"out_of_range_regularize": 0.01, "l2_regularize": 0.3}
    for several in (parts, loops):
        given = {**supervision_arrays(merge_supervision(several)), **graph}
        given["output"] = normal(6, 3)
        given["output"][0, 0] = 31.0  # beyond the range that is not penalized
        yield use("nnet3.chain_objective", given, attrs)
        given["posteriors"] = np.abs(normal(6, 3))
        yield use("nnet3.chain_objective", given, {"lwf_scale": 0.5, **attrs})


OF_FILES: dict[str, Callable[[], Iterator[Use]]] = {
    "rows": rows,
    "windows": windows,
    "ctc": ctc,
    "batch_norm": columns,
    "parts": parts,
    "copies": copies,
    "recurrent": recurrent,
    "natural_gradient": natural_gradient,
    "updates": updates,
    "indexes": indexes,
    "chain": chain,
}
THREADS = {"windows": (33,), "indexes": (33, 256), "ctc": (32, 2)}
"""Of a block; where kernels add up over its lanes they want a power of two."""
ELSEWHERE = {"columns": "rows", "labels": "rows"}
"""Files whose kernels operators of other ones start."""


def start(kind: str, inputs: Any, attrs: Any, dtype: str, many: str = "", **rest: Any) -> None:
    outputs = {many: [f"{many}_0", f"{many}_1"]} if many else None
    run(Setup(lookup(kind), Case(inputs, attrs, **rest), dtype, None, outputs), DOUBLE, twice=False)


def kernels_of(name: str) -> set[str]:
    files = [name, *(one for one, of in ELSEWHERE.items() if of == name)]
    return set(re.findall(r"^KERNEL (\w+)", cuda_text(*files), re.MULTILINE))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OF_FILES)
def test_kernels_leave_what_the_stand_in_computes(name, dtype):
    with instead_of_cupy(), interpreted(THREADS.get(name, (256, 4)), most=99) as done:
        for kind, inputs, attrs, rest in OF_FILES[name]():
            start(kind, inputs, attrs, dtype, **rest)
    assert kernels_of(name) <= {*done}


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("softmax_cross_entropy", {"x": normal(33, 3), "label": np.arange(33) - 2}),
        ("nll_loss", {"x": normal(33, 3), "label": np.arange(33) - 2}),
        ("label_weight", {"x": normal(33, 3), "label": np.arange(33) - 2}),
        ("embedding", {"w": normal(7, 2), "ids": np.arange(300) // 2}),
    ],
)
def test_one_of_many_wrong_labels_is_noted(kind, inputs):
    """The lane that is the first to mark the note writes it, the others do not."""
    with instead_of_cupy(), interpreted() as done, pytest.raises(OpscopeError, match="holds"):
        start(kind, inputs, {}, "float32")
    assert done


def test_every_file_has_its_kernels_run():
    files = {path.stem for path in (Path(native.__file__).parent / "cuda").glob("*.cu")}
    without = {"names", "prelude", "row_lists"}  # the last one's kernel is in the nets below
    assert files - without == {*OF_FILES, *ELSEWHERE}


@pytest.mark.parametrize("name", ["conv", "step net", "transformer", "tdnn-f", "lstmp", "lf-mmi"])
def test_kernels_of_a_training(name):
    with by_default(), options(graphs=False), interpreted((256,), most=1) as done:
        step = STEPS[name]()
        step()
        step()
    assert len(done) >= 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("optimizer", ["adam", "momentum", "adagrad"])
def test_generated_kernels(optimizer, dtype):
    """Steps of an LSTM are one kernel of its products and loops, an update is one of all arrays."""
    b = NetBuilder("net", dtype)
    states, _ = b.lstm(b.input("x", [-1, 5], levels=1), 3)
    b.backward_from(b.mean(b.square(b.fc(states, 2)), name="loss"))
    b.add_optimization(0.01, optimizer)
    rows = [normal(length, 5).astype(dtype) for length in (7, 1, 4)]
    with by_default(), options(graphs=False), interpreted((256, 1)) as done:
        scope = Scope()
        b.initialize(scope, OpContext(seed=1))
        for _ in range(2):
            b.run(scope, feed={"x": Sequences.from_list(rows)}, fetch=["loss"])
    assert "row_list" in done
    assert any(name.startswith("opscope_table_") for name in done)


FLOAT16 = """
struct float16 {
  unsigned short bits;
  __device__ float16(float value) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value)); }
  __device__ operator float() const {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
};
"""
BOUNDS = {"float16": 1e-3, "float32": 3e-6, "float64": 2e-12}
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 40.0, -40.0, 1e5, np.inf, -np.inf, np.nan]
COUNT = 37


def argument(operand: Operand, place: int) -> np.ndarray:
    """Usual and special values; or one number."""
    if operand.kind == ONE:
        return np.full(COUNT, 0.75 + place / 8, operand.dtype)
    values = np.concatenate([np.roll(EDGES, 3 * place), normal(COUNT - len(EDGES))])
    with np.errstate(over="ignore"):
        return values.astype(operand.dtype)


@pytest.mark.parametrize("dtype", BOUNDS)
def test_scalar_expressions(dtype):
    """A part of the operators' expressions, over whole arrays and over numbers."""
    loops = loops_of(dtype)[list(BOUNDS).index(dtype) :: 4]
    text = HEAD + (FLOAT16 if dtype == "float16" else "")
    text += "".join(kernel(loop, number) for number, loop in enumerate(loops))
    ptx = ptx_of(text, ARCHITECTURE, lines=True)
    for number, loop in enumerate(loops):
        source = gpu_source(loop)
        ins = [argument(loop.operands[i], place) for place, i in enumerate(source.inputs)]
        outs = [np.empty(COUNT, loop.operands[i].dtype) for i in source.outputs]
        found = [out.copy() for out in outs]
        given = source.in_params, source.out_params, source.operation, source.name
        make_kernel(lambda _, array: array, no_race, [].append, *given)(*ins, *outs)
        arrays = [*ins, *found]
        sent = [
            *(np.uint64(one.ctypes.data).tobytes() for one in arrays),
            np.int64(COUNT).tobytes(),
        ]
        regions = [region_at(one.ctypes.data, one.nbytes) for one in arrays]
        launch(ptx, f"{source.name}_{number}", 2, 9, sent, regions, text)
        bound = BOUNDS[dtype]
        for out, wanted in zip(found, outs, strict=True):
            np.testing.assert_allclose(out, wanted, bound, bound, err_msg=source.operation)
