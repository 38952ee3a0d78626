"""Names that other systems have for our operators, a row each: read in both directions.

A cell names an operator there that computes ours from the same inputs, in the order of our slots.
In its brackets stand attributes: `alpha`, `theirs=ours`, or a value that theirs always has. One of
ours that a cell does not mention has its default. Where two rows share a name, the first is meant
by a call without the attribute that tells them apart. After `name(...)` the arguments are others
than ours: exporters and importers have a rule for them, and the name alone is taken from here.

- ONNX: `Gelu-20` exists since opset 20, a name without a number in all that can be written.
- PyTorch: an infix operator, a function of `torch` or `F`, or a method. Then, what ATen calls it,
  where that is another word, and whatever else means the same.
- CNTK: kinds of nodes. nnet3: types of components, without `Component` at the end.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..framework.ir.registry import lookup

SYSTEMS: Final = {"onnx": "ONNX", "torch": "PyTorch", "cntk": "CNTK", "nnet3": "nnet3"}
"""The columns, and what people call these systems."""
_ROWS: Final = """
abs           | Abs                         | abs absolute    | Abs
acos          | Acos                        | acos
acosh         | Acosh                       | acosh
add           | Add                         | + add           | Plus
argmax        | ArgMax(...)                 | argmax(...)
argmin        | ArgMin(...)                 | argmin(...)
asin          | Asin                        | asin
asinh         | Asinh                       | asinh
atan          | Atan                        | atan
atan2         |                             | torch.atan2
atanh         | Atanh                       | atanh
batch_norm    | BatchNormalization(...)     | F.batch_norm(...) | BatchNormalization
cast          | Cast(...)                   | to(...)
ceil          | Ceil                        | ceil
celu          | Celu(alpha)                 | F.celu(alpha)
clip          | Clip(...)                   | clamp(...)      | Clip
concat        | Concat(...)                 | torch.cat(...)  | RowStack
conv1d        | Conv(...)                   | F.conv1d(...)
conv2d        | Conv(...)                   | F.conv2d(...)   | Convolution
conv3d        | Conv(...)                   | F.conv3d(...)
cos           | Cos                         | cos             | Cosine
cosh          | Cosh                        | cosh
cumprod       | CumProd-26(...)             | cumprod(...)
cumsum        | CumSum(...)                 | cumsum(...)
div           | Div                         | / div true_divide divide
einsum        | Einsum(...)                 | torch.einsum(...)
elu           | Elu(alpha)                  | F.elu(alpha)
equal         | Equal                       | == eq           | Equal
erf           | Erf                         | erf
exp           | Exp                         | exp             | Exp
exp2          |                             | exp2
expm1         |                             | expm1
floor         | Floor                       | floor           | Floor
floor_divide  |                             | torch.floor_divide
fmod          | Mod(fmod=1)                 | torch.fmod
gather        | Gather(...)                 | index_select(...)
gelu_erf      | Gelu-20(approximate='none') | F.gelu(approximate='none')
gelu_tanh     | Gelu-20(approximate='tanh') | F.gelu(approximate='tanh')
global_avg_pool | GlobalAveragePool
global_max_pool | GlobalMaxPool
glu           |                             | F.glu(...)
greater       | Greater                     | > gt            | Greater
greater_equal | GreaterOrEqual              | >= ge           | GreaterEqual
group_norm    | GroupNormalization-18(...)  | F.group_norm(...)
gru           | GRU(...)                    | nn.GRU(...)
hard_sigmoid  | HardSigmoid(alpha, beta)
hard_swish    | HardSwish                   | F.hardswish
hardmax       | Hardmax(axis)               |                 | Hardmax
instance_norm | InstanceNormalization(...)  | F.instance_norm(...)
integer_matmul | MatMulInteger(...)
isfinite      |                             | torch.isfinite
isinf         | IsInf                       | torch.isinf
isnan         | IsNaN                       | torch.isnan
layer_norm    | LayerNormalization(...)     | F.layer_norm(...)
leaky_relu    | LeakyRelu(alpha)            | F.leaky_relu(negative_slope=alpha)
less          | Less                        | < lt            | Less
less_equal    | LessOrEqual                 | <= le           | LessEqual
log           | Log                         | log
log10         |                             | log10
log1p         |                             | log1p
log2          |                             | log2
log_sigmoid   |                             | F.logsigmoid log_sigmoid
log_softmax | LogSoftmax(axis) | torch.log_softmax(dim=axis) _log_softmax | LogSoftmax | LogSoftmax
logical_and   | And                         | torch.logical_and bitwise_and __and__
logical_not   | Not                         | torch.logical_not bitwise_not
logical_or    | Or                          | torch.logical_or bitwise_or __or__
logical_xor   | Xor                         | torch.logical_xor bitwise_xor
logsumexp     | ReduceLogSumExp(...)        | logsumexp(...)
lrn           | LRN(...)                    | F.local_response_norm(...)
lstm          | LSTM(...)                   | nn.LSTM(...)
matmul        | MatMul(...)                 | @ matmul mm bmm mv dot | Times
maximum       | Max                         | torch.maximum
minimum       | Min                         | torch.minimum
mish          | Mish-18                     | F.mish
mod           |                             | torch.remainder
mul           | Mul                         | * mul           | ElementTimes
neg           | Neg                         | neg negative    | Negate
not_equal     |                             | != ne           | NotEqual
pad           | Pad(...)                    | F.pad(...)
pow           | Pow                         | torch.pow
prelu         | PRelu(...)                  | F.prelu(...)
reciprocal    | Reciprocal                  | reciprocal
reduce_all    |                             | all(...)
reduce_any    |                             | any(...)
reduce_max    | ReduceMax(...)              | amax(...)
reduce_mean   | ReduceMean(...)             | mean(...)
reduce_min    | ReduceMin(...)              | amin(...)
reduce_prod   | ReduceProd(...)             | prod(...)
reduce_sum    | ReduceSum(...)              | sum(...)
relu          | Relu                        | F.relu          | RectifiedLinear | RectifiedLinear
relu6         |                             | F.relu6
reshape       | Reshape(...)                | reshape(...)
round         | Round                       | round
rsqrt         |                             | rsqrt
scaled_dot_product_attention | Attention-23(...)           | F.scaled_dot_product_attention(...)
selu          | Selu                        | F.selu
sigmoid       | Sigmoid                     | torch.sigmoid   | Sigmoid         | Sigmoid
sign          | Sign                        | sign sgn
silu          |                             | F.silu
simple_rnn    | RNN(...)                    | nn.RNN(...)
sin           | Sin                         | sin             | Sin
sinh          | Sinh                        | sinh
softmax       | Softmax(axis)               | torch.softmax(dim=axis) _softmax | Softmax
softplus      | Softplus                    | F.softplus(beta)
softsign      | Softsign                    | F.softsign
split         | Split(...)                  | split(...)
sqrt          | Sqrt                        | sqrt
square        |                             | square
stop_gradient |                             | detach
sub           | Sub                         | - sub           | Minus
tan           | Tan                         | tan
tanh          | Tanh                        | tanh            | Tanh            | Tanh
top_k         | TopK(...)                   | topk(...)
transpose     | Transpose(...)              | permute(...)
trunc         |                             | trunc
where         | Where                       | torch.where
"""


@dataclass(frozen=True)
class Name:
    """What an operator is called in another system.

    Attributes:
        type: ours. cell: of the table. name: as it is written there.
        read: all names that are read as it.
        since: the opset of ONNX that has it first; 0: all.
        attrs: attribute there -> ours. fixed: attribute there -> the value that it has.
        is_plain: whether it takes our inputs and attributes.
    """

    type: str
    cell: str
    name: str
    read: tuple[str, ...]
    since: int
    attrs: Mapping[str, str]
    fixed: Mapping[str, Any]
    is_plain: bool

    def means(self, attrs: Mapping[str, Any]) -> bool:
        """Whether a call computes ours with these attributes: those left out are defaults."""
        defaults = {spec.name: spec.default for spec in lookup(self.type).attrs}
        said = self.attrs.values()
        return self.is_plain and all(
            key in said or value == defaults[key] for key, value in attrs.items()
        )


_CELL: Final = re.compile(
    r"(?P<name>[^\s(-]+|-)(-(?P<since>\d+))?(\((?P<attrs>.*)\))?(?P<more>( \w+)*)"
)


def _name(op_type: str, cell: str) -> Name:
    match = _CELL.fullmatch(cell)
    assert match is not None, cell
    call = ast.parse(f"_({match['attrs'] or ''})", mode="eval").body
    assert isinstance(call, ast.Call)
    attrs = {arg.id: arg.id for arg in call.args if isinstance(arg, ast.Name)}
    fixed = dict[str, Any]()
    for keyword in call.keywords:
        if isinstance(keyword.value, ast.Name):
            attrs[str(keyword.arg)] = keyword.value.id
        else:
            fixed[str(keyword.arg)] = ast.literal_eval(keyword.value)
    plain = match["attrs"] != "..."
    since = int(match["since"] or 0)
    words = match["name"].rpartition(".")[2], *match["more"].split()
    read = tuple(word for word in words if word.isidentifier())
    return Name(op_type, cell, match["name"], read, since, attrs, fixed, plain)


@functools.cache
def names_of(op_type: str) -> Mapping[str, Name]:
    """The names of an operator: system -> name. None of one that has no row."""
    return table().get(op_type, {})


@functools.cache
def table() -> Mapping[str, Mapping[str, Name]]:
    """All rows: our operator -> system -> name."""
    columns: dict[str, dict[str, Name]] = {}
    for row in _ROWS.strip().splitlines():
        op_type, *cells = (cell.strip() for cell in row.split("|"))
        named = {system: cell for system, cell in zip(SYSTEMS, cells, strict=False) if cell}
        if "nnet3" in named:
            named["nnet3"] += "Component"
        columns[op_type] = {system: _name(op_type, cell) for system, cell in named.items()}
    return columns


def both(system: str, other: str) -> dict[str, str]:
    """The names of operators in one system, and those in another: for what both have."""
    rows = [row for row in table().values() if system in row and other in row]
    return {row[system].name: row[other].name for row in rows if row[system].is_plain}


@functools.cache
def names_in(system: str) -> Mapping[str, list[Name]]:
    """What a system calls operators: name there -> ours of this name, that without a say first."""
    names: dict[str, list[Name]] = {}
    for row in table().values():
        if system in row:
            for name in row[system].read:
                names.setdefault(name, []).append(row[system])
    return names
