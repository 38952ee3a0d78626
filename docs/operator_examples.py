# ruff: noqa: E501  (an entry is a line)
"""An example of each operator: the program is written from one line, run, and shown with its output."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import math
import re
from typing import Final

import numpy as np

import opscope
from opscope.framework.ir.registry import OperatorDef
from opscope.framework.passes.optimizer import optimizer_types
from opscope.python_api.builder.methods import BUILDER_METHODS

_ROWS: Final = """
abs acos asin atan atanh erf | x=[-0.5, 0, 0.5] |
acosh log log10 log2 sqrt rsqrt reciprocal | x=[1, 2, 4] |
accuracy | x=[[0.1, 0.9], [0.8, 0.2]]; label=i[1, 1] |
adaptive_avg_pool1d adaptive_max_pool1d | x=n(1, 1, 6) | size=3
adaptive_avg_pool2d adaptive_max_pool2d | x=n(1, 1, 4, 4) | size=2
adaptive_avg_pool3d adaptive_max_pool3d | x=n(1, 1, 2, 2, 4) | size=[1, 1, 2]
affine | x=[[1, 2]]; w=[[1, 0], [0, 1]]; bias=[10, 20] |
all_gather | x=[1, 2] | ranks=1
all_reduce | x=[1, 2] | x
all_gather_rows | x=[[1], [2]]; rows=i[2, 0]; like=n(3, 1) |
all_reduce_start | x=[1, 2] | [x]
all_reduce_wait | x=[1, 2] | *b.all_reduce_start([x])
arange | | stop=5
argmax argmin | x=[[1, 3, 2], [9, 7, 8]] | axis=1
argsort sort | x=[3, 1, 2] |
atan2 | y=[1, 0]; x=[0, 1] |
auc | x=[0.1, 0.4, 0.35, 0.8]; label=i[0, 0, 1, 1] |
avg_pool1d max_pool1d | x=n(1, 1, 6) | kernel=2, stride=2
avg_pool2d max_pool2d | x=n(1, 1, 4, 4) | kernel=2, stride=2
avg_pool3d max_pool3d | x=n(1, 1, 2, 2, 4) | kernel=2, stride=2
batch_norm instance_norm rms_norm layer_norm | x=[[[1, 2]], [[3, 4]]] |
batch_norm_apply | x=[[1], [3]]; scale=[1]; bias=[0]; batch_mean=[2]; batch_variance=[1]; count=2; mean=[0]; variance=[1] |
batch_norm_sums | x=[[1, 5], [3, 5]] |
bernoulli_random | | shape=[6], p=0.5, seed=1
broadcast | x=[1, 2] | [x]
byte_table | x=u[0, 1, 255]; table=u(256) |
cache_append | cache=n(1, 3, 2); x=[[[7, 8]]]; past=i[1] |
cast | x=[-1.5, 2.7] | dtype="int64"
sequence_concat | x=s[[[1], [2]], [[3]]]; y=s[[[4]], [[5]]] | [x, y]
concat stack meshgrid | x=[1, 2]; y=[3, 4] | [x, y]
constant | | value=np.float32([1, 2])
conv1d | x=n(1, 1, 5); w=[[[1, 2]]] | x, w=w, bias=False
conv2d | x=n(1, 1, 3, 3); w=[[[[1, 0], [0, 1]]]] | x, w=w, bias=False
conv3d | x=n(1, 1, 2, 2, 2); w=[[[[[1]], [[2]]]]] | x, w=w, bias=False
conv_transpose1d | x=n(1, 1, 3); w=[[[1, 2]]] | x, w=w, stride=2, bias=False
conv_transpose2d | x=n(1, 1, 2, 2); w=[[[[1, 2]]]] | x, w=w, stride=2, bias=False
conv_transpose3d | x=n(1, 1, 1, 1, 2); w=[[[[[1, 2]]]]] | x, w=w, stride=2, bias=False
cosine_similarity | x=[[1, 0], [1, 1]]; y=[[1, 1], [2, 2]] |
cross_entropy | x=[[0.1, 0.9], [0.5, 0.5]]; label=i[1, 0] |
ctc_loss | x=n(1, 3, 2); label=qi[[1]] |
cumsum cumprod | x=[1, 2, 3, 4] |
dequantize_linear | x=u[0, 128, 255]; scale=0.5; zero=u128 |
diag | x=[1, 2] |
dropout | x=[1, 2, 3, 4] | p=0.5
dynamic_quantize_linear | x=[-1, 0, 2] |
edit_distance | x=i[[1, 2, 3]]; label=i[[1, 3, 0]] |
einsum | x=[[1, 2], [3, 4]]; y=[5, 6] | "ij,j->i", x, y
element_count | x=n(2, 3) |
embedding | ids=i[2, 0]; w=[[1, 2], [3, 4], [5, 6]] | ids, w=w
expand | x=[[1], [2]] | shape=[2, 3]
eye | | rows=2
fc | x=[[1, 2]]; w=[[1, 0], [0, 1]] | x, w=w, bias=False, activation="tanh"
fill_constant | | shape=[3], value=0.5
fill_like | x=[1, 2] | value=7.0
flatten | x=n(2, 1, 3) |
flip | x=[[1, 2], [3, 4]] | axes=[1]
gather | x=[[1, 2], [3, 4], [5, 6]]; ids=i[2, 0] |
gather_nd | x=[[1, 2], [3, 4]]; ids=i[[0, 1], [1, 0]] |
gaussian_random uniform_random he_random xavier_random orthogonal_random | | shape=[2, 2], seed=1
global_avg_pool global_max_pool | x=n(1, 2, 2, 2) |
global_norm_scale | x=[3, 4] | [x], clip_norm=1.0
glu | x=[[1, 2, 0, 1]] |
group_norm | x=[[[1], [3]]] | groups=1
gru | x=s[[[1], [2]]] | x, 2, init=0.5
lstm | x=s[[[1], [2]]] | x, 2, init=0.5
simple_rnn | x=s[[[1], [2]]] | x, 2, init=0.5
gru_cell rnn_cell | x=[[1]]; h=[[0, 0]] | init=0.5
lstm_cell | x=[[1]]; h=[[0, 0]]; c=[[0, 0]] | init=0.5
hardmax softmax log_softmax | x=[[1, 2, 3]] |
hinge_loss | x=[0.5, -2]; label=[1, 0] |
huber_loss l1_loss smooth_l1_loss squared_error | x=[1, 2, 5]; y=[1, 1, 1] |
increment | x=[1, 2] |
integer_conv | x=u[[[1, 2, 3]]]; w=u[[[1, 2]]] |
integer_matmul | x=u[[1, 2]]; y=u[[3], [4]] |
interpolate | x=[[[1, 3]]] | scale=2.0
kl_div | x=[-0.7, -0.7]; label=[0.5, 0.5] |
label_weight | x=n(2, 2); label=i[1, 0]; weight=[0.5, 2] |
linspace | | start=0.0, stop=1.0, num=5
logical_and logical_or logical_xor | x=t[0, 1, 1]; y=t[0, 0, 1] |
logical_not | x=t[0, 1] |
logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_std reduce_sum reduce_var norm | x=[[1, 2], [3, 4]] | axes=[1]
mean sum | x=[[1, 2], [3, 4]] |
loss_scale_check | x=[1, 2]; scale=8 | [x], scale
loss_scale_commit | new=[2]; old=[1]; finite=t1 |
loss_scale_seed | x=3; scale=8 |
loss_scale_undo | x=[16]; scale=8 | dtype="float32"
loss_scale_update | scale=8; steps=i1; finite=t0 |
lr_constant | step=i1 |
lr_cosine | step=i50 | learning_rate=0.1, total_steps=100
lr_warmup_cosine | step=i50 | learning_rate=0.1, warmup_steps=10, total_steps=100
lr_exponential_decay lr_inverse_time_decay lr_polynomial_decay | step=i50 | learning_rate=0.1, decay_steps=100
lr_linear_warmup | step=i50 | learning_rate=0.1, warmup_steps=100
lr_noam | step=i50 | d_model=64, warmup_steps=100
lr_piecewise | step=i50 | learning_rate=0.1, boundaries=[40], factors=[1.0, 0.1]
lr_step_decay | step=i50 | learning_rate=0.1, step_size=20
lrn | x=n(1, 3, 1, 1) | size=3
masked_mean | x=[[1, 2], [3, 9]]; mask=[[1, 1], [1, 0]] |
master_store | x=[1.5, 2] | dtype="float16"
master_sync | param=h[1.5, 2]; master=[1.5, 2] |
matmul_nbits | x=n(1, 32); w=u(16); scale=[[0.5]] | x, b.reshape(w, shape=[1, 1, 16]), scale
matmul | x=[[1, 2], [3, 4]]; y=[[1, 0], [0, 1]] |
merge_rows | x=[[1], [2], [3]]; rows=i[4, 0, 4] |
maximum minimum | x=[1, 5]; y=[3, 2] |
nadam_correction | step=i1; previous=1 |
nll_loss | x=[[-0.1, -2.4], [-0.7, -0.7]]; label=i[0, 1] |
normalize | x=[[3, 4]] |
one_hot | ids=i[2, 0] | depth=3
pad | x=[[1, 2]] | paddings=[0, 0, 1, 1]
positions | x=n(1, 3, 2) | axis=1
prelu | x=[[-2, 3]]; w=[0.25, 0.25] | x, w=w
put_along_axis | x=[[1, 2, 3]]; ids=i[[2, 0]]; updates=[[9, 8]] | axis=1
quantize_linear | x=[-1, 0, 1]; scale=0.5; zero=u128 |
quantized_add quantized_mul | x=u[0, 100]; y=u[50, 100]; x_scale=0.5; x_zero=u0; y_scale=0.5; y_zero=u0; out_scale=1; out_zero=u0 |
quantized_global_avg_pool | x=u[[[0, 100]]]; x_scale=0.5; x_zero=u0; out_scale=1; out_zero=u0 |
reduce_all reduce_any | x=t[[0, 1], [1, 1]] | axes=[1]
repeat_interleave | x=[1, 2] | repeats=2
reshape | x=[[1, 2], [3, 4]] | shape=[4]
roll | x=[1, 2, 3, 4] | shifts=1
rotary_embedding | x=[[[1, 0], [1, 0]]] |
rows_to_dense | x=[[1], [2]]; rows=i[2, 0]; like=n(3, 1) |
scaled_dot_product_attention | query=[[[1, 0]]]; key=[[[1, 0], [0, 1]]]; value=[[[1, 2], [3, 4]]] |
scatter_add | x=[[0], [0], [0]]; ids=i[2, 2]; updates=[[1], [5]] |
scatter_nd | x=[0, 0, 0]; ids=i[[2], [0]]; updates=[7, 5] |
sequence_context | x=s[[[1], [2], [3]]] | left=1, right=1
sequence_conv | x=s[[[1], [2], [3]]]; w=[[1], [1]] | x, left=1, right=0, w=w, bias=False
sequence_error | x=s[[[0, 1], [1, 0]]]; label=qi[[1, 1]] |
sequence_expand | x=[[1], [2]]; like=s[[[0], [0]], [[0]]] |
sequence_length sequence_mask sequence_pad sequence_pool sequence_reverse sequence_softmax sequence_mean | x=s[[[1], [2]], [[3]]] |
sequence_shift | x=s[[[1], [2], [3]]] | by=1
sequence_slice | x=s[[[1], [2], [3]]] | start=1, length=2
sequence_rows | x=n(2, 2, 1) |
sequence_unpad | x=n(2, 3, 1); like=s[[[0], [0]], [[0]]] |
sigmoid_cross_entropy sigmoid_focal_loss | x=[0.5, -2]; label=[1, 0] |
sinusoidal_encoding | positions=i[0, 1] | size=4
slice | x=[[1, 2, 3], [4, 5, 6]] | axes=[1], starts=[1]
softmax_cross_entropy | x=[[1, 2], [3, 1]]; label=i[1, 1] |
split | x=[1, 2, 3, 4] | sections=[1, 3]
squeeze | x=[[1], [2]] | axes=[1]
unsqueeze | x=[1, 2] | axes=[0]
take_along_axis | x=[[1, 2, 3]]; ids=i[[2, 0]] | axis=1
tile | x=[1, 2] | repeats=[2]
top_k | x=[3, 1, 2] | k=2
transpose | x=[[1, 2], [3, 4]] |
tril triu | x=[[1, 2], [3, 4]] |
where | condition=t[1, 0]; x=[1, 2]; y=[3, 4] |
"""

ELSEWHERE: Final = {
    "net": "[Nets inside nets](../design_by_example.md)",
    "recurrent": "[A step of your own](../sequences.md#a-step-of-your-own)",
    "recursive": "[Trees](../trees.md)",
    **dict.fromkeys(
        (
            *("shard", "all_gather_shards", "all_finite"),
            *("reduce_scatter_start", "reduce_scatter_wait"),
        ),
        "[Less memory on each rank](../scale_out.md#less-memory-on-each-rank)",
    ),
    **dict.fromkeys(
        ("send", "receive"), "[A stage on each rank](../scale_out.md#a-stage-on-each-rank)"
    ),
    **dict.fromkeys(
        ("to_host_start", "to_host_wait", "from_host_start", "from_host_wait"),
        "[A budget of memory](../training.md#a-budget-of-memory)",
    ),
    "average_parameters": "[What a pass puts into the list](../scale_out.md#what-a-pass-puts-into-the-list)",
    "block_momentum": "[What a pass puts into the list](../scale_out.md#what-a-pass-puts-into-the-list)",
}
"""Operators that hold nets, or that a pass appends, and the page that shows them at work."""


_SEVERAL: Final = frozenset({"split", "meshgrid", "all_reduce_start"})
"""Operators whose method returns a tuple of any length."""
_UNARY: Final = "x=[-1.5, 0.5, 2]"
_BINARY: Final = "x=[1, 2, 3]; y=[3, 2, 1]"
_TYPES: Final = {
    "": "np.float32",
    "i": "np.int64",
    "t": "np.bool_",
    "u": "np.uint8",
    "h": "np.float16",
}
_VALUE: Final = re.compile(r"(?P<kind>[a-z]*)(?P<text>.*)")


def code_of(entry: OperatorDef) -> str:
    """The program of an operator's example."""
    if entry.type in optimizer_types():
        return _UPDATE.format(name=entry.type)
    inputs, call = _rows().get(entry.type, ("", ""))
    if entry.type not in _rows():
        inputs = _UNARY if len(entry.inputs) == 1 else _BINARY
    given = dict(part.split("=", 1) for part in inputs.split("; ") if part)
    lines = ["b = opscope.NetBuilder()"]
    feeds = []
    for name, text in given.items():
        value, declared = _value(text)
        lines.append(f'{name} = b.input("{name}", {declared})')
        feeds.append(f'"{name}": {value}')
    names = ", ".join(given)
    takes_inputs = not call or re.match(r"\w+=", call)
    words = ", ".join(filter(None, (names, call))) if takes_inputs else call
    slots = [slot.name for slot in entry.outputs if not slot.intermediate]
    single = len(slots) == 1 or any(slot.duplicable for slot in entry.outputs)
    results = "out" if single else ", ".join(slots)
    shown = "*out" if entry.type in _SEVERAL else results
    if not single and entry.type in BUILDER_METHODS:
        results, shown = "out, last", "out"
    lines.append(f"{results} = b.{entry.type}({words})")
    lines.append(f"feed = {{{', '.join(feeds)}}}")
    run = f"b.run(opscope.Scope(), feed=feed, fetch=[{shown}], need_backward=False)"
    lines.append(f"print({run})")
    return "\n".join(lines)


_UPDATE: Final = """b = opscope.NetBuilder()
w = b.parameter("w", [2], init=np.float32([1, -2]))
b.backward_from(b.sum(b.square(w)))
b.add_optimization(0.1, "{name}")
scope = opscope.Scope()
b.run(scope)
print(scope.numpy("w"))"""


@functools.cache
def _rows() -> dict[str, tuple[str, str]]:
    """Operator -> inputs, and the arguments of the call where they are not the inputs alone."""
    found = {}
    for line in _ROWS.strip().splitlines():
        names, inputs, call = (cell.strip() for cell in line.split("|", 2))
        found |= dict.fromkeys(names.split(), (inputs, call))
    return found


def _value(text: str) -> tuple[str, str]:
    """What is fed, as Python writes it, and the arguments that declare the input."""
    match = _VALUE.fullmatch(text)
    assert match is not None, text
    kind, rest = match.groups()
    if kind == "n":
        shape = ast.literal_eval(rest)
        return f"np.arange({math.prod(shape)}, dtype=np.float32).reshape{rest}", f"{list(shape)}"
    if kind in ("s", "qi"):
        dtype = "np.int64" if kind == "qi" else "np.float32"
        row = np.shape(ast.literal_eval(rest)[0])[1:]
        declared = ', "int64"' if kind == "qi" else ""
        rows = ", ".join(f"{dtype}({part})" for part in ast.literal_eval(rest))
        return f"[{rows}]", f"{[-1, *row]}{declared}, levels=1"
    value = (
        f"np.arange({rest[1:-1]}, dtype=np.uint8)"
        if rest.startswith("(")
        else f"{_TYPES[kind]}({rest})"
    )
    array = eval(value, {"np": np})
    dtype = "" if array.dtype == np.float32 else f', "{array.dtype}"'
    return value, f"{list(array.shape)}{dtype}"


def output_of(code: str) -> str:
    """What a program prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), np.printoptions(precision=4, suppress=True):
        exec(code, {"np": np, "opscope": opscope})
    return printed.getvalue().rstrip()
