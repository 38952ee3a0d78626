"""Written by `python build.py stubs`; do not edit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.scope import Scope
from ...framework.ir.op_list import OpList
from ...framework.ir.registry import OperatorDef
from ...framework.passes.optimizer import OptimizerAttrs
from ...framework.passes.precision.loss_scaling import LossScale
from ...framework.runtime.plain_net import PlainNet
from ...proto.net_pb2 import NetDesc
from .cells import LSTMState
from .recurrent import StepBlock
from .var.handle import Var

_F = TypeVar("_F", bound=Callable[..., Any])

BUILDER_METHODS: dict[str, Callable[..., Any]]

def builder_method(
    function: _F,
) -> _F:
    """Make a function of (builder, further arguments), which appends operators, a method."""

def running_method(
    function: _F,
) -> _F:
    """Like `builder_method`, for a function that appends no forward operators."""

def layer(
    parameter: str,
) -> Callable[[_F], _F]:
    """Register the layer of the operator that has the function's name."""

def takes(
    options: type,
) -> Callable[[_F], _F]:
    """Tell the signature of a function whose `**keywords` are the fields of a dataclass."""

class BuilderMethods:
    def layer_for(
        self,
        entry: OperatorDef,
        inputs: Sequence[Any],
        given: Mapping[str, Any],
    ) -> Callable[..., Any] | None:
        """The layer that `add_op` should call; None where there is none or parameters are given."""
    def sum(
        self,
        x: Var | str | Sequence[Var | str],
        axes: int | Sequence[int] = ...,
        keepdims: bool = False,
        *,
        name: str = "",
    ) -> Var:
        """Sum of x over axes, over all where none is given; of a list of variables, their sum."""
    def mean(
        self,
        x: Var | str,
        axes: int | Sequence[int] = ...,
        keepdims: bool = False,
        *,
        name: str = "",
    ) -> Var:
        """Arithmetic mean of x over axes, over all where none is given: the usual end of a cost."""
    def where(
        self,
        condition: Any,
        x: Any,
        y: Any,
        *,
        name: str = "",
    ) -> Var:
        """Elements of x where a condition holds, else of y. Shapes broadcast as in NumPy."""
    def maximum(
        self,
        x: Any,
        y: Any,
        *,
        name: str = "",
    ) -> Var:
        """Larger of two, element by element; NaN where either is. The gradient of a tie belongs
        to x."""
    def minimum(
        self,
        x: Any,
        y: Any,
        *,
        name: str = "",
    ) -> Var:
        """Smaller of two, element by element; NaN where either is. The gradient of a tie belongs
        to x."""
    def rnn_cell(
        self,
        x: Var | str,
        h: Var | str,
        *,
        activation: str = "tanh",
        init: Any = "xavier",
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> Var:
        """One step of a simple RNN: h' = activation(x w_x + h w_h + b)."""
    def lstm_cell(
        self,
        x: Var | str,
        h: Var | str,
        c: Var | str,
        *,
        peepholes: bool = False,
        projection: int = 0,
        forget_bias: float = 0.0,
        init: Any = "xavier",
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> LSTMState:
        """One step of an LSTM."""
    def gru_cell(
        self,
        x: Var | str,
        h: Var | str,
        *,
        reset_after: bool = True,
        init: Any = "xavier",
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> Var:
        """One step of a GRU, whose reset gate acts after (as in PyTorch) or before the product."""
    def backward_from(
        self,
        cost: Var | str,
        wrt: Sequence[Var | str] | Var | str | None = None,
        *,
        recompute: bool = False,
    ) -> None:
        """Ask for gradients of `cost`, a single number (of the sum of all costs named so)."""
    def add_optimization(
        self,
        learning_rate: float = 0.01,
        type: str = "sgd",
        *,
        schedule: str = "",
        schedule_attrs: Mapping[str, Any] | None = None,
        clip_value: float = 0.0,
        clip_norm: float = 0.0,
        parameters: Sequence[Var | str] | Var | str | None = None,
        master: bool = True,
        loss_scale: LossScale | str | float | None = None,
        **attrs: Any,
    ) -> None:
        """Append an optimizer: `b.add_optimization(0.001, "adam", weight_decay=0.01)`."""
    def add_backward_ops(
        self,
        targets: Var | str | Sequence[Var | str] | None = None,
        wrt: Sequence[Var | str] | Var | str | None = None,
    ) -> dict[str, str]:
        """Ask for gradients as `Net.add_backward_ops` does."""
    def add_optimizer_ops(
        self,
        attrs: OptimizerAttrs,
    ) -> list[str]:
        """Append an optimizer as `Net.add_optimizer_ops` does; see `OptimizerAttrs`."""
    def gradient(
        self,
        var: Var | str,
    ) -> str:
        """Name of the variable that holds the gradient with respect to `var`."""
    def fc(
        self,
        x: Var | str | Sequence[Var | str],
        size: int | None = None,
        activation: str = "",
        *,
        w: Any = None,
        b: Any = None,
        bias: bool = True,
        init: Any = "xavier",
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> Var:
        """Fully connected layer: out = activation(x w + b), as Paddle's composite `fc`."""
    def conv1d(
        self,
        x: Any,
        filters: int | None = None,
        kernel: int | Sequence[int] | None = None,
        activation: str = "",
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        w: Any = None,
        b: Any = None,
        bias: bool = True,
        init: Any = "he",
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
        padding_algorithm: str = "explicit",
    ) -> Var:
        """Convolution over [N, C, L]; see `conv2d`."""
    def conv2d(
        self,
        x: Any,
        filters: int | None = None,
        kernel: int | Sequence[int] | None = None,
        activation: str = "",
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        w: Any = None,
        b: Any = None,
        bias: bool = True,
        init: Any = "he",
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
        padding_algorithm: str = "explicit",
    ) -> Var:
        """Convolution over [N, C, H, W] with its parameters."""
    def conv3d(
        self,
        x: Any,
        filters: int | None = None,
        kernel: int | Sequence[int] | None = None,
        activation: str = "",
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        w: Any = None,
        b: Any = None,
        bias: bool = True,
        init: Any = "he",
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
        padding_algorithm: str = "explicit",
    ) -> Var:
        """Convolution over [N, C, D, H, W]; see `conv2d`."""
    def conv_transpose1d(
        self,
        x: Any,
        filters: int | None = None,
        kernel: int | Sequence[int] | None = None,
        activation: str = "",
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        w: Any = None,
        b: Any = None,
        bias: bool = True,
        init: Any = "he",
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
        output_padding: int | Sequence[int] = 0,
    ) -> Var:
        """Transposed convolution over [N, C, L]; see `conv2d`."""
    def conv_transpose2d(
        self,
        x: Any,
        filters: int | None = None,
        kernel: int | Sequence[int] | None = None,
        activation: str = "",
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        w: Any = None,
        b: Any = None,
        bias: bool = True,
        init: Any = "he",
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
        output_padding: int | Sequence[int] = 0,
    ) -> Var:
        """Transposed convolution over [N, C, H, W]; see `conv2d`."""
    def conv_transpose3d(
        self,
        x: Any,
        filters: int | None = None,
        kernel: int | Sequence[int] | None = None,
        activation: str = "",
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        w: Any = None,
        b: Any = None,
        bias: bool = True,
        init: Any = "he",
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
        output_padding: int | Sequence[int] = 0,
    ) -> Var:
        """Transposed convolution over [N, C, D, H, W]; see `conv2d`."""
    def sequence_conv(
        self,
        x: Any,
        size: int | None = None,
        *,
        left: int = 0,
        right: int = 0,
        padding: str = "zero",
        w: Any = None,
        b: Any = None,
        bias: bool = True,
        init: Any = "xavier",
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> Var:
        """Convolution over time: row t of a sequence becomes (x[t-left], ..., x[t+right]) w + b."""
    def embedding(
        self,
        ids: Any,
        size: Sequence[int] | None = None,
        *,
        w: Any = None,
        sparse: bool | None = None,
        padding_idx: int | None = None,
        init: Any = "normal",
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> Var:
        """Rows of a table: out[...] = w[ids[...]]."""
    def prelu(
        self,
        x: Var | str,
        w: Any = None,
        *,
        shared: bool = False,
        init: Any = 0.25,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> Var:
        """Parametric rectifier: out = x where x > 0, else w * x, with slopes w that are learned."""
    def recurrent_net(
        self,
        desc: OpList | NetDesc,
    ) -> tuple[Var, ...]:
        """Append a recurrent net over the outer names of its links."""
    def recursive_net(
        self,
        desc: OpList | NetDesc,
    ) -> tuple[Var, ...]:
        """Append a recursive net over the outer names of its links."""
    def recurrent(
        self,
        name: str = "",
        *,
        reverse: bool = False,
    ) -> StepBlock:
        """A recurrent net whose step is written in a `with` block; see `StepBlock`."""
    def carried(
        self,
        shape: Sequence[int],
        *,
        keep: Var | str | None = None,
        name: str = "",
    ) -> tuple[Var, Var]:
        """A state that goes from one minibatch to the next: truncated back-propagation."""
    def carry(
        self,
        held: Var | str,
        value: Var | str,
    ) -> None:
        """Let a state variable hold `value` in the next run."""
    def simple_rnn(
        self,
        x: Var | str,
        size: int,
        *,
        activation: str = "tanh",
        layers: int = 1,
        bidirectional: bool = False,
        reverse: bool = False,
        dropout: float = 0.0,
        initial: Any = None,
        carry: int = 0,
        keep: Any = None,
        init: Any = "xavier",
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> tuple[Var, list[Any]]:
        """Layers of a simple RNN over sequences; see `rnn_cell`, and `lstm` for the arguments."""
    def gru(
        self,
        x: Var | str,
        size: int,
        *,
        reset_after: bool = True,
        layers: int = 1,
        bidirectional: bool = False,
        reverse: bool = False,
        dropout: float = 0.0,
        initial: Any = None,
        carry: int = 0,
        keep: Any = None,
        init: Any = "xavier",
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> tuple[Var, list[Any]]:
        """Layers of a GRU over sequences; see `gru_cell`, and `lstm` for the arguments."""
    def lstm(
        self,
        x: Var | str,
        size: int,
        *,
        peepholes: bool = False,
        projection: int = 0,
        forget_bias: float = 0.0,
        layers: int = 1,
        bidirectional: bool = False,
        reverse: bool = False,
        dropout: float = 0.0,
        initial: Any = None,
        carry: int = 0,
        keep: Any = None,
        init: Any = "xavier",
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> tuple[Var, list[Any]]:
        """Layers of an LSTM over sequences; see `lstm_cell`."""
    def initialize(
        self,
        scope: Scope | None = None,
        context: OpContext | None = None,
        *,
        overwrite: bool = False,
        share: bool = False,
    ) -> None:
        """Fill parameters and states that hold no value by their initializers."""
    def run(
        self,
        scope: Scope | None = None,
        context: OpContext | None = None,
        need_backward: bool = True,
        *,
        feed: Mapping[Any, Any] | None = None,
        fetch: Var | str | Iterable[Var | str] = ...,
    ) -> dict[str, np.ndarray]:
        """Run the net once."""
    def predict(
        self,
        feed: Mapping[Any, Any],
        fetch: Var | str | Iterable[Var | str] | None = None,
        batch_size: int | None = 256,
        *,
        scope: Scope | None = None,
        memory: int | str | None = None,
    ) -> dict[str, Any]:
        """Values of some variables for given inputs: forward, in test phase, batch by batch."""
    def bound_net(
        self,
        names: frozenset[str],
        need_backward: bool,
    ) -> PlainNet:
        """The net that `run` runs: the whole one, or the part that `names` need."""
    def feed(
        self,
        scope: Scope,
        values: Mapping[Any, Any],
    ) -> None:
        """Give input variables values that stay, cast to the declared dtypes: all of them or
        none."""
    def tree_lstm(
        self,
        x: Var | str,
        parents: Var | str,
        size: int,
        *,
        arity: int = 0,
        positions: Var | str | None = None,
        init: Any = "xavier",
        forget_bias: float = 1.0,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> tuple[Var, Var]:
        """Tree-LSTM over the nodes of trees, from the leaves up."""
    def attention(
        self,
        query: Var | str,
        memory: Var | str,
        *,
        keys: Var | str | None = None,
        kind: str = "dot",
        size: int = 0,
        scale: float = 1.0,
        init: Any = "xavier",
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> tuple[Var, Var]:
        """Attention of each query over its own sequence of the memory."""
    def randn_like(
        self,
        x: Var | str,
        *,
        mean: float = 0.0,
        std: float = 1.0,
        seed: int = 0,
        name: str = "",
    ) -> Var:
        """Numbers from a normal distribution, in the shape and dtype of x."""
    def rand_like(
        self,
        x: Var | str,
        *,
        low: float = 0.0,
        high: float = 1.0,
        seed: int = 0,
        name: str = "",
    ) -> Var:
        """Numbers drawn evenly from [low, high), in the shape and dtype of x; see `randn_like`."""
    def bernoulli(
        self,
        p: Var | str,
        *,
        seed: int = 0,
        name: str = "",
    ) -> Var:
        """1 with probability p, else 0, in the shape and dtype of p, element by element."""
    def cross_entropy_loss(
        self,
        scores: Var | str,
        label: Var | str,
        *,
        weight: Any = None,
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
        reduction: str = "mean",
        name: str = "",
    ) -> Var:
        """Cross entropy of scores (logits), as torch.nn.functional.cross_entropy: ready to
        minimize."""
    def softmax_focal_loss(
        self,
        scores: Var | str,
        label: Var | str,
        *,
        gamma: float = 2.0,
        alpha: Any = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        name: str = "",
    ) -> Var:
        """Focal loss over classes that exclude each other: easy samples hardly count."""
    def multi_head_attention(
        self,
        query: Var | str,
        key: Var | str | None = None,
        value: Var | str | None = None,
        *,
        heads: int,
        size: int | None = None,
        mask: Var | str | None = None,
        key_padding_mask: Var | str | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        rotary: bool = False,
        bias: bool = True,
        init: Any = "xavier",
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> Var:
        """Multi-head attention: each head looks with its own projections of query, key and
        value."""
    def batch_norm(
        self,
        x: Any,
        *,
        scale: Any = None,
        bias: Any = None,
        mean: Any = None,
        variance: Any = None,
        momentum: float | None = None,
        epsilon: float | None = None,
        use_global_stats: bool | None = None,
        init: Any = 1.0,
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> Var:
        """Batch normalization of [N, C, ...] with scale, bias and running statistics."""
    def layer_norm(
        self,
        x: Any,
        *,
        scale: Any = None,
        bias: Any = None,
        begin_norm_axis: int | None = None,
        epsilon: float | None = None,
        init: Any = 1.0,
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
        affine: bool = True,
    ) -> Var:
        """Layer normalization over the last dimension, with scale and bias."""
    def rms_norm(
        self,
        x: Any,
        *,
        scale: Any = None,
        begin_norm_axis: int | None = None,
        epsilon: float | None = None,
        init: Any = 1.0,
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
        affine: bool = True,
    ) -> Var:
        """Root-mean-square normalization over the last dimension, with scale; see `layer_norm`."""
    def group_norm(
        self,
        x: Any,
        groups: int,
        *,
        scale: Any = None,
        bias: Any = None,
        epsilon: float | None = None,
        init: Any = 1.0,
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
        affine: bool = True,
    ) -> Var:
        """Group normalization of [N, C, ...] with scale and bias."""
    def instance_norm(
        self,
        x: Any,
        *,
        scale: Any = None,
        bias: Any = None,
        epsilon: float | None = None,
        init: Any = 1.0,
        bias_init: Any = 0.0,
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
        affine: bool = True,
    ) -> Var:
        """Instance normalization of [N, C, ...] with scale and bias."""
    def einsum(
        self,
        equation: str,
        *operands: Var | str | Sequence[Var | str],
        name: str = "",
    ) -> Var:
        """Sum of products by Einstein's convention, as numpy.einsum and torch.einsum."""
    def meshgrid(
        self,
        *x: Var | str | Sequence[Var | str],
        indexing: str = "ij",
        name: str = "",
    ) -> tuple[Var, ...]:
        """Coordinates of a grid: each vector along an axis of its own, repeated along all
        others."""
    def positional_encoding(
        self,
        x: Var | str,
        *,
        kind: str = "sinusoidal",
        max_length: int = 0,
        base: float = 10000.0,
        init: Any = "normal",
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> Var:
        """x plus a vector for each position: out[n, t] = x[n, t] + p[t]."""
    def transformer_encoder_layer(
        self,
        x: Var | str,
        *,
        heads: int,
        feedforward: int | None = None,
        activation: str = "relu",
        norm_first: bool = False,
        dropout: float = 0.1,
        mask: Var | str | None = None,
        key_padding_mask: Var | str | None = None,
        causal: bool = False,
        rotary: bool = False,
        epsilon: float = 1e-05,
        init: Any = "xavier",
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> Var:
        """Layer of a transformer's encoder: self-attention, then two products with an
        activation."""
    def transformer_encoder(
        self,
        x: Var | str,
        *,
        layers: int,
        final_norm: bool | None = None,
        heads: int,
        feedforward: int | None = None,
        activation: str = "relu",
        norm_first: bool = False,
        dropout: float = 0.1,
        mask: Var | str | None = None,
        key_padding_mask: Var | str | None = None,
        causal: bool = False,
        rotary: bool = False,
        epsilon: float = 1e-05,
        init: Any = "xavier",
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
    ) -> Var:
        """Encoder of a transformer: a stack of `transformer_encoder_layer`, which says more."""
    def transformer_decoder_layer(
        self,
        x: Var | str,
        memory: Var | str,
        *,
        heads: int,
        feedforward: int | None = None,
        activation: str = "relu",
        norm_first: bool = False,
        dropout: float = 0.1,
        mask: Var | str | None = None,
        key_padding_mask: Var | str | None = None,
        causal: bool = True,
        rotary: bool = False,
        epsilon: float = 1e-05,
        init: Any = "xavier",
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
        memory_mask: Var | str | None = None,
        memory_key_padding_mask: Var | str | None = None,
    ) -> Var:
        """Layer of a transformer's decoder: attention over x itself, then over a memory, then
        products."""
    def transformer_decoder(
        self,
        x: Var | str,
        memory: Var | str,
        *,
        layers: int,
        final_norm: bool | None = None,
        heads: int,
        feedforward: int | None = None,
        activation: str = "relu",
        norm_first: bool = False,
        dropout: float = 0.1,
        mask: Var | str | None = None,
        key_padding_mask: Var | str | None = None,
        causal: bool = True,
        rotary: bool = False,
        epsilon: float = 1e-05,
        init: Any = "xavier",
        lr_factor: float | None = None,
        trainable: bool = True,
        name: str = "",
        memory_mask: Var | str | None = None,
        memory_key_padding_mask: Var | str | None = None,
    ) -> Var:
        """Decoder of a transformer: a stack of `transformer_decoder_layer`, which says more."""
    def abs(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Absolute value: out = |x|. The gradient at 0 is 0."""
    def accuracy(
        self,
        x: Var | str,
        label: Var | str,
        *,
        k: int = 1,
        ignore_index: int = -100,
        name: str = "",
    ) -> tuple[Var, ...]:
        """Share of samples whose label is among the k highest scores. x [..., C], label [...].
        Of equal scores the lower class counts as the higher one; samples whose score is NaN are
        wrong; those whose label is `ignore_index` do not count. Without samples it is 0."""
    def acos(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Arccosine in radians, from 0 to pi; NaN outside of [-1, 1]."""
    def acosh(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Inverse hyperbolic cosine; NaN below 1."""
    def adaptive_avg_pool1d(
        self,
        x: Var | str,
        *,
        size: int | Sequence[int],
        name: str = "",
    ) -> Var:
        """Mean of each window, with windows chosen so that out has a given size. Along an axis
        of S places that becomes one of P, window p covers the places from floor(p * S / P) to
        ceil((p + 1) * S / P)."""
    def adaptive_avg_pool2d(
        self,
        x: Var | str,
        *,
        size: int | Sequence[int],
        name: str = "",
    ) -> Var:
        """Mean of each window, with windows chosen so that out has a given size. Along an axis
        of S places that becomes one of P, window p covers the places from floor(p * S / P) to
        ceil((p + 1) * S / P)."""
    def adaptive_avg_pool3d(
        self,
        x: Var | str,
        *,
        size: int | Sequence[int],
        name: str = "",
    ) -> Var:
        """Mean of each window, with windows chosen so that out has a given size. Along an axis
        of S places that becomes one of P, window p covers the places from floor(p * S / P) to
        ceil((p + 1) * S / P)."""
    def adaptive_max_pool1d(
        self,
        x: Var | str,
        *,
        size: int | Sequence[int],
        name: str = "",
    ) -> Var:
        """Maximum of each window, with windows chosen so that out has a given size. Along an
        axis of S places that becomes one of P, window p covers the places from floor(p * S / P)
        to ceil((p + 1) * S / P). Of equal inputs the first one, row by row, gets the gradient."""
    def adaptive_max_pool2d(
        self,
        x: Var | str,
        *,
        size: int | Sequence[int],
        name: str = "",
    ) -> Var:
        """Maximum of each window, with windows chosen so that out has a given size. Along an
        axis of S places that becomes one of P, window p covers the places from floor(p * S / P)
        to ceil((p + 1) * S / P). Of equal inputs the first one, row by row, gets the gradient."""
    def adaptive_max_pool3d(
        self,
        x: Var | str,
        *,
        size: int | Sequence[int],
        name: str = "",
    ) -> Var:
        """Maximum of each window, with windows chosen so that out has a given size. Along an
        axis of S places that becomes one of P, window p covers the places from floor(p * S / P)
        to ceil((p + 1) * S / P). Of equal inputs the first one, row by row, gets the gradient."""
    def add(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Sum: out = x + y. Shapes broadcast as in NumPy."""
    def affine(
        self,
        x: Var | str,
        w: Var | str,
        b: Var | str | None = None,
        *,
        num_flatten_dims: int = -1,
        name: str = "",
    ) -> Var:
        """Fully connected layer: out = x w + b. The axes of x before `num_flatten_dims` are
        rows, the others are flattened to K columns; by default only the last axis is columns. x
        [..., K], w [K, N], b [N] -> out [..., N]."""
    def all_finite(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Whether all ranks have found their parts finite: out = 1 where x is 1 on every rank,
        else 0."""
    def all_gather(
        self,
        x: Var | str,
        *,
        ranks: int,
        name: str = "",
    ) -> Var:
        """The arrays of all ranks, one after the other along the first axis, by rank: out [ranks
        * n, ...] of x [n, ...]; a scalar gives [ranks]."""
    def all_gather_rows(
        self,
        x: Var | str,
        rows: Var | str,
        like: Var | str,
        weight: Var | str | None = None,
        total: Var | str | None = None,
        *,
        mode: str = "sum",
        most: int = 0,
        name: str = "",
    ) -> tuple[Var, ...]:
        """Sum over all ranks of gradients with rows for a part of a table, which stay so: only
        the rows that a rank has are sent. Rows of one number are summed, rank after rank; their
        numbers ascend, and the rest of rows_out is -1. With `weight`, it is the mean weighted by
        it."""
    def all_gather_shards(
        self,
        x: Sequence[Var | str],
        *,
        ranks: int,
        shapes: int | Sequence[int],
        name: str = "",
    ) -> tuple[Var, ...]:
        """Arrays whose parts the ranks hold (see `shard`), whole on all ranks: one message for
        all of them."""
    def all_reduce(
        self,
        x: Sequence[Var | str],
        weight: Var | str | None = None,
        total: Var | str | None = None,
        *,
        mode: str = "sum",
        name: str = "",
    ) -> tuple[Var, ...]:
        """Sum over all ranks, the same bits on each: out = x0 + x1 + ..., added in the order of
        ranks. mode=mean divides by the number of ranks. With `weight`, the mean weighted by it:
        out = sum(weight x) / sum(weight)."""
    def all_reduce_start(
        self,
        x: Sequence[Var | str],
        weight: Var | str | None = None,
        total: Var | str | None = None,
        *,
        name: str = "",
    ) -> tuple[Var, ...]:
        """Begins what `all_reduce` does and `all_reduce_wait` ends. In between other operators
        run, which leave the variables of `lent` alone."""
    def all_reduce_wait(
        self,
        x: Sequence[Var | str],
        ticket: Var | str,
        *,
        mode: str = "sum",
        name: str = "",
    ) -> tuple[Var, ...]:
        """Ends what `all_reduce_start` has begun: out are the sums, or with mode=mean the means."""
    def arange(
        self,
        *,
        start: float = 0.0,
        stop: float,
        step: float = 1.0,
        dtype: Any = ...,
        name: str = "",
    ) -> Var:
        """start, start + step, ... up to but without stop."""
    def argmax(
        self,
        x: Var | str,
        *,
        axis: int = -1,
        keepdims: bool = False,
        name: str = "",
    ) -> Var:
        """Position of the largest entry along an axis, the first of equal ones."""
    def argmin(
        self,
        x: Var | str,
        *,
        axis: int = -1,
        keepdims: bool = False,
        name: str = "",
    ) -> Var:
        """Position of the smallest entry along an axis, the first of equal ones."""
    def argsort(
        self,
        x: Var | str,
        *,
        axis: int = -1,
        descending: bool = False,
        name: str = "",
    ) -> Var:
        """Positions of the entries of x in order along an axis. Equal entries keep their order,
        and NaN counts as the largest."""
    def asin(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Arcsine in radians, from -pi / 2 to pi / 2; NaN outside of [-1, 1]."""
    def asinh(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Inverse hyperbolic sine."""
    def assign(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Copy: out = x, of any dtype."""
    def atan(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Arctangent in radians, from -pi / 2 to pi / 2."""
    def atan2(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Angle in radians, from -pi to pi, of the point with ordinate x and abscissa y: the
        arctangent of x / y in the right quadrant. Shapes broadcast as in NumPy."""
    def atanh(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Inverse hyperbolic tangent; NaN outside of [-1, 1]."""
    def auc(
        self,
        x: Var | str,
        label: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Area under the ROC curve: the probability that a sample of label 1 has a higher score
        than one of label 0, ties counting half. x [N] or [N, 1]. Without samples of both kinds
        it is 0.5."""
    def avg_pool1d(
        self,
        x: Var | str,
        *,
        kernel: int | Sequence[int],
        stride: int | Sequence[int] = ...,
        padding: int | Sequence[int] | str = ...,
        padding_algorithm: str = "explicit",
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        name: str = "",
    ) -> Var:
        """Mean of each window: out[n, c, p] = mean over k of x[n, c, p*stride + k - padding]. An
        axis of size S becomes floor((S + padding at both ends - k) / stride) + 1, or with
        `ceil_mode` the ceiling of it, unless the last window would begin in the padding at the
        end; with padding_algorithm `same` it becomes ceil(S / stride). What hangs over the
        padding at the end never counts."""
    def avg_pool2d(
        self,
        x: Var | str,
        *,
        kernel: int | Sequence[int],
        stride: int | Sequence[int] = ...,
        padding: int | Sequence[int] | str = ...,
        padding_algorithm: str = "explicit",
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        name: str = "",
    ) -> Var:
        """Mean of each window: out[n, c, p] = mean over k of x[n, c, p*stride + k - padding]. An
        axis of size S becomes floor((S + padding at both ends - k) / stride) + 1, or with
        `ceil_mode` the ceiling of it, unless the last window would begin in the padding at the
        end; with padding_algorithm `same` it becomes ceil(S / stride). What hangs over the
        padding at the end never counts."""
    def avg_pool3d(
        self,
        x: Var | str,
        *,
        kernel: int | Sequence[int],
        stride: int | Sequence[int] = ...,
        padding: int | Sequence[int] | str = ...,
        padding_algorithm: str = "explicit",
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        name: str = "",
    ) -> Var:
        """Mean of each window: out[n, c, p] = mean over k of x[n, c, p*stride + k - padding]. An
        axis of size S becomes floor((S + padding at both ends - k) / stride) + 1, or with
        `ceil_mode` the ceiling of it, unless the last window would begin in the padding at the
        end; with padding_algorithm `same` it becomes ceil(S / stride). What hangs over the
        padding at the end never counts."""
    def batch_norm_apply(
        self,
        x: Var | str,
        scale: Var | str,
        bias: Var | str,
        batch_mean: Var | str,
        batch_variance: Var | str,
        count: Var | str,
        mean: Var | str,
        variance: Var | str,
        *,
        momentum: float = 0.1,
        epsilon: float = 1e-05,
        name: str = "",
    ) -> Var:
        """Normalizes x [N, C, ...] with given statistics, channel by channel: out = (x -
        batch_mean) / sqrt(batch_variance + epsilon) * scale + bias."""
    def batch_norm_sums(
        self,
        x: Var | str,
        weight: Var | str | None = None,
        *,
        name: str = "",
    ) -> tuple[Var, ...]:
        """Mean and (biased) variance of each channel of x [N, C, ...] over the batches of all
        ranks, and how many values they are of. While testing nothing is exchanged, and they are
        0, 1 and 0."""
    def bernoulli_random(
        self,
        like: Var | str | None = None,
        *,
        shape: int | Sequence[int],
        dtype: Any = ...,
        p: float = 0.5,
        seed: int = 0,
        name: str = "",
    ) -> Var:
        """1 with probability p, else 0."""
    def broadcast(
        self,
        x: Sequence[Var | str],
        *,
        root: int = 0,
        name: str = "",
    ) -> tuple[Var, ...]:
        """The values of one rank on all of them."""
    def byte_table(
        self,
        x: Var | str,
        table: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Any function of 8-bit integers, by its 256 values: out = table[x], where the bits of x
        count as an unsigned number's."""
    def cache_append(
        self,
        cache: Var | str,
        x: Var | str,
        past: Var | str,
        *,
        axis: int = 1,
        name: str = "",
    ) -> Var:
        """Write T new rows of each sequence to a cache of S: out[n, past[n] + t] = x[n, t], and
        all other rows as in `cache`. Where out is the variable of the cache, only x is copied."""
    def cast(
        self,
        x: Var | str,
        *,
        dtype: Any,
        name: str = "",
    ) -> Var:
        """Conversion to another dtype: fractions are cut off towards zero, and any number but 0
        becomes True. The gradient is converted back."""
    def ceil(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Smallest whole number not below x."""
    def celu(
        self,
        x: Var | str,
        *,
        alpha: float = 1.0,
        name: str = "",
    ) -> Var:
        """Continuously differentiable exponential linear unit: out = x where x > 0, else alpha *
        (exp(x / alpha) - 1)."""
    def clip(
        self,
        x: Var | str,
        *,
        minimum: float = ...,
        maximum: float = ...,
        name: str = "",
    ) -> Var:
        """Limits: out = min(max(x, minimum), maximum); NaN stays. The gradient is 1 from minimum
        to maximum, both included, and 0 outside."""
    def concat(
        self,
        x: Sequence[Var | str],
        *,
        axis: int = 0,
        name: str = "",
    ) -> Var:
        """Arrays one after the other along an axis; all other dimensions agree."""
    def constant(
        self,
        *,
        value: Any,
        name: str = "",
    ) -> Var:
        """A small array, which is an attribute of the operator."""
    def cos(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Cosine of x in radians."""
    def cosh(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Hyperbolic cosine."""
    def cosine_similarity(
        self,
        x: Var | str,
        y: Var | str,
        *,
        axis: int = -1,
        epsilon: float = 1e-08,
        name: str = "",
    ) -> Var:
        """Cosine of the angle between vectors along an axis: out = sum(x y) / (max(|x|, epsilon)
        max(|y|, epsilon)). x and y broadcast as in NumPy."""
    def cross_entropy(
        self,
        x: Var | str,
        label: Var | str,
        *,
        soft_label: bool = False,
        ignore_index: int = -100,
        name: str = "",
    ) -> Var:
        """Cross entropy of probabilities: out = -log(x[label]), with `soft_label` out =
        -sum(label * log(x)). x [..., C] -> out [...]. A probability below the smallest normal
        number counts as that number, so the loss stays finite."""
    def ctc_loss(
        self,
        x: Var | str,
        label: Var | str,
        *,
        blank: int = 0,
        zero_infinity: bool = False,
        per_label: bool = False,
        name: str = "",
    ) -> Var:
        """CTC loss of each sequence: out[i] = -log of the probability that the rows of x give
        the labels of sequence i in their order, wherever in time, each for one row or several,
        with blanks in between; between two equal labels there is one at least. x holds logits
        (or log-probabilities: the softmax is taken here), sequences [N, C], or [B, T, C] where
        all have T rows. label holds as many sequences, of any lengths, also empty ones. Where
        the rows are too few for the labels, out is infinite and the gradient NaN, or with
        `zero_infinity` both are 0."""
    def cumprod(
        self,
        x: Var | str,
        *,
        axis: int = -1,
        exclusive: bool = False,
        reverse: bool = False,
        name: str = "",
    ) -> Var:
        """Running product along an axis: out[i] = x[0] * ... * x[i]. Integers are multiplied as
        int64. The gradient is also right for zeros."""
    def cumsum(
        self,
        x: Var | str,
        *,
        axis: int = -1,
        exclusive: bool = False,
        reverse: bool = False,
        name: str = "",
    ) -> Var:
        """Running sum along an axis: out[i] = x[0] + ... + x[i]. Integers are summed as int64."""
    def dequantize_linear(
        self,
        x: Var | str,
        scale: Var | str,
        zero: Var | str | None = None,
        *,
        name: str = "",
    ) -> Var:
        """The reals that 8-bit integers stand for: out = scale * (x - zero)."""
    def diag(
        self,
        x: Var | str,
        *,
        diagonal: int = 0,
        name: str = "",
    ) -> Var:
        """A vector on a diagonal of a matrix of zeros, or the diagonal of a matrix as a vector."""
    def div(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Quotient: out = x / y. Shapes broadcast as in NumPy."""
    def dropout(
        self,
        x: Var | str,
        *,
        p: float = 0.5,
        channels: bool = False,
        seed: int = 0,
        name: str = "",
    ) -> Var:
        """While training, sets elements to 0 with probability p and divides the others by 1 - p,
        so that the expected value stays; while testing, out = x. With `channels` that happens to
        whole channels of [N, C, ...]."""
    def dynamic_quantize_linear(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> tuple[Var, ...]:
        """Reals as uint8 in a scale of their own: scale = (max - min) / 255 over all of x and 0,
        1 where that is 0; zero = round(-min / scale); out = round(x / scale) + zero, saturated."""
    def edit_distance(
        self,
        x: Var | str,
        label: Var | str,
        x_length: Var | str | None = None,
        label_length: Var | str | None = None,
        *,
        normalized: bool = False,
        name: str = "",
    ) -> Var:
        """Levenshtein distance of each row of x from the same row of label: the least number of
        insertions, deletions and substitutions. x [N, S] and label [N, T] are integers, padded;
        x_length and label_length [N] say how many of a row count (default: all). out [N];
        `normalized` divides by the length of the label, or by 1 where that is 0."""
    def element_count(
        self,
        x: Var | str,
        mask: Var | str | None = None,
        *,
        name: str = "",
    ) -> Var:
        """How many elements x has: out [], float64. With mask, sum(mask) times the number of
        elements of x that each of its entries goes for: what `masked_mean` divides by."""
    def elu(
        self,
        x: Var | str,
        *,
        alpha: float = 1.0,
        name: str = "",
    ) -> Var:
        """Exponential linear unit: out = x where x > 0, else alpha * (exp(x) - 1)."""
    def equal(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Comparison of elements: out = x == y."""
    def erf(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Error function: out = 2 / sqrt(pi) * (integral of exp(-t * t) for t from 0 to x)."""
    def exp(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Exponential: out = e ** x."""
    def exp2(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Power of two: out = 2 ** x."""
    def expand(
        self,
        x: Var | str,
        *,
        shape: int | Sequence[int],
        name: str = "",
    ) -> Var:
        """x broadcast to a shape, as NumPy's broadcast_to; new axes come in front."""
    def expm1(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """out = e ** x - 1, also exact for small x."""
    def eye(
        self,
        *,
        rows: int,
        columns: int = -1,
        diagonal: int = 0,
        dtype: Any = ...,
        name: str = "",
    ) -> Var:
        """A matrix with 1 on a diagonal and 0 elsewhere: the identity."""
    def fill_constant(
        self,
        *,
        shape: int | Sequence[int] = ...,
        dtype: Any = ...,
        value: float = 0.0,
        name: str = "",
    ) -> Var:
        """An array of one value."""
    def fill_like(
        self,
        x: Var | str,
        *,
        value: float = 0.0,
        name: str = "",
    ) -> Var:
        """An array of one value, with shape and dtype of x."""
    def flatten(
        self,
        x: Var | str,
        *,
        axis: int = 1,
        name: str = "",
    ) -> Var:
        """x as a matrix: the axes before `axis` become rows, the others columns."""
    def flip(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int] = ...,
        name: str = "",
    ) -> Var:
        """x in the opposite order along axes: out[i] = x[n - 1 - i]."""
    def floor(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Largest whole number not above x."""
    def floor_divide(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Quotient rounded down, as Python's //: out = floor(x / y), and 0 for integers divided
        by 0. Shapes broadcast as in NumPy."""
    def fmod(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Remainder with the sign of x, as C's fmod: out = x - trunc(x / y) * y. By 0 it is NaN,
        and 0 for integers. Shapes broadcast as in NumPy."""
    def focal_modulation(
        self,
        x: Var | str,
        *,
        gamma: float = 2.0,
        name: str = "",
    ) -> Var:
        """Focal loss of cross entropies x = -log(p) >= 0, p the probability of the right class:
        out = (1 - p)^gamma x. Easy samples hardly count."""
    def from_host_start(
        self,
        like: Var | str,
        ticket: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Begins to copy back a value that `to_host_start` has put into the host's memory."""
    def from_host_wait(
        self,
        x: Var | str,
        ticket: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Ends what `from_host_start` has begun: out is the value as it was."""
    def gather(
        self,
        x: Var | str,
        ids: Var | str,
        *,
        axis: int = 0,
        from_end: bool = False,
        name: str = "",
    ) -> Var:
        """Entries of x along an axis: for axis 0, out[i, ...] = x[ids[i], ...]."""
    def gather_nd(
        self,
        x: Var | str,
        ids: Var | str,
        *,
        batch_dims: int = 0,
        name: str = "",
    ) -> Var:
        """Parts of x by whole indexes: out[i, ...] = x[ids[i, 0], ..., ids[i, m-1], ...]. Both
        begin with `batch_dims` axes in common, which the indexes leave out."""
    def gaussian_random(
        self,
        like: Var | str | None = None,
        *,
        shape: int | Sequence[int],
        dtype: Any = ...,
        mean: float = 0.0,
        std: float = 1.0,
        seed: int = 0,
        name: str = "",
    ) -> Var:
        """Numbers drawn from a normal distribution."""
    def gelu(
        self,
        x: Var | str,
        *,
        approximate: str = "none",
        name: str = "",
    ) -> Var:
        """Gaussian error linear unit: out = x * P(a standard normal number is below x). Stands
        for `gelu_erf` (exact) or `gelu_tanh` (an approximation within 5e-4)."""
    def gelu_erf(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Gaussian error linear unit: out = x / 2 * (1 + erf(x / sqrt(2)))."""
    def gelu_tanh(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Gaussian error linear unit, approximately: out = x / 2 * (1 + tanh(sqrt(2 / pi) * (x +
        0.044715 * x ** 3)))."""
    def global_avg_pool(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Mean over all spatial axes, which become 1: out[n, c] = mean of x[n, c, ...]."""
    def global_max_pool(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Maximum over all spatial axes, which become 1: out[n, c] = max of x[n, c, ...]. Of
        equal inputs the first one gets the gradient."""
    def global_norm_scale(
        self,
        x: Sequence[Var | str],
        *,
        clip_norm: float,
        ranks: int = 1,
        name: str = "",
    ) -> Var:
        """Factor that brings the Euclidean norm of all x together down to `clip_norm`: scale =
        min(1, clip_norm / norm), []. It is float64 where an x is, else float32."""
    def glu(
        self,
        x: Var | str,
        *,
        axis: int = -1,
        name: str = "",
    ) -> Var:
        """Gated linear unit: out = a / (1 + exp(-b)), where a and b are the halves of x along an
        axis."""
    def greater(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Comparison of elements: out = x > y."""
    def greater_equal(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Comparison of elements: out = x >= y."""
    def hard_sigmoid(
        self,
        x: Var | str,
        *,
        alpha: float = 0.2,
        beta: float = 0.5,
        name: str = "",
    ) -> Var:
        """Sigmoid in three straight lines: out = min(max(alpha * x + beta, 0), 1)."""
    def hard_swish(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Swish in straight lines: out = x * min(max(x + 3, 0), 6) / 6."""
    def hard_tanh(
        self,
        x: Var | str,
        *,
        minimum: float = -1.0,
        maximum: float = 1.0,
        name: str = "",
    ) -> Var:
        """Hyperbolic tangent in three straight lines: out = min(max(x, minimum), maximum). The
        gradient is 0 at both limits, unlike the gradient of `clip`."""
    def hardmax(
        self,
        x: Var | str,
        *,
        axis: int = -1,
        name: str = "",
    ) -> Var:
        """One at the largest element along `axis` (the first of several), zero elsewhere."""
    def he_random(
        self,
        like: Var | str | None = None,
        *,
        shape: int | Sequence[int],
        dtype: Any = ...,
        fan_in: int = 0,
        uniform: bool = True,
        slope: float = 0.0,
        seed: int = 0,
        name: str = "",
    ) -> Var:
        """He's initial weights for rectified units: mean 0, variance 2 / ((1 + slope^2) fan_in).
        A matrix is [fan_in, fan_out]; a convolution's filters are [channels out, channels in,
        ...], whose fans also count the filter's places."""
    def hinge_loss(
        self,
        x: Var | str,
        label: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Hinge loss of a score x for a label of 0 or 1: out = max(0, 1 - (2 label - 1) x). x,
        label and out have one shape."""
    def huber_loss(
        self,
        x: Var | str,
        y: Var | str,
        *,
        delta: float = 1.0,
        name: str = "",
    ) -> Var:
        """Huber loss of d = x - y: out = d^2 / 2 where |d| <= delta, else delta (|d| - delta /
        2). x, y and out have one shape."""
    def increment(
        self,
        x: Var | str,
        *,
        value: float = 1.0,
        name: str = "",
    ) -> Var:
        """Counting: out = x + value, for floats and integers; out may be the variable x itself."""
    def integer_conv(
        self,
        x: Var | str,
        w: Var | str,
        x_zero: Var | str | None = None,
        w_zero: Var | str | None = None,
        scale: Var | str | None = None,
        bias: Var | str | None = None,
        out_zero: Var | str | None = None,
        *,
        stride: int | Sequence[int] = ...,
        padding: int | Sequence[int] | str = ...,
        padding_algorithm: str = "explicit",
        dilation: int | Sequence[int] = ...,
        groups: int = 1,
        name: str = "",
    ) -> Var:
        """Convolution of 8-bit integers without their zero points over one to three spatial
        axes: out = conv(x - x_zero, w - w_zero) + bias, as int32, modulo 2^32; what lies outside
        x counts as x_zero. With `scale`, that times the scale, in its dtype; with `out_zero`
        that rounded, half to even, plus the zero point, as 8-bit integers, saturated."""
    def integer_matmul(
        self,
        x: Var | str,
        y: Var | str,
        x_zero: Var | str | None = None,
        y_zero: Var | str | None = None,
        scale: Var | str | None = None,
        bias: Var | str | None = None,
        out_zero: Var | str | None = None,
        *,
        name: str = "",
    ) -> Var:
        """Matrix product of 8-bit integers without their zero points: out = (x - x_zero) (y -
        y_zero) + bias, as int32, modulo 2^32. With `scale`, that times the scale, in its dtype;
        with `out_zero` that rounded, half to even, plus the zero point, as 8-bit integers,
        saturated. Stacks broadcast as in NumPy."""
    def interpolate(
        self,
        x: Var | str,
        like: Var | str | None = None,
        *,
        size: int | Sequence[int] = ...,
        scale: float | Sequence[float] = ...,
        mode: str = "nearest",
        align_corners: bool = False,
        name: str = "",
    ) -> Var:
        """Interpolation of [N, C, ...] along all spatial axes, to another `size`, to the sizes
        of `like`, or by a factor `scale`: upsampling and downsampling. An axis of S places
        becomes one of floor(S * scale). Place p lies at (p + 0.5) * r - 0.5 of x, where r is 1 /
        scale, or S / size; with align_corners at p * (S - 1) / (size - 1), so that the corners
        are the same; `nearest` takes floor(p * r). As in PyTorch r is S / size in mode `linear`
        where a factor leaves a size as it is, and in mode `nearest` where it keeps or doubles a
        side of an image of which the new sides are at most 128 together."""
    def isfinite(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Whether an element is neither NaN nor infinite."""
    def isinf(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Whether an element is infinite, of either sign."""
    def isnan(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Whether an element is NaN."""
    def kl_div(
        self,
        x: Var | str,
        label: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Pointwise Kullback-Leibler divergence of the distribution `label` from
        log-probabilities x: out = label (log(label) - x); sum it over the classes. x, label and
        out have one shape."""
    def l1_loss(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Absolute error: out = |x - y|; the derivative where x = y is 0. x, y and out have one
        shape."""
    def label_weight(
        self,
        x: Var | str,
        label: Var | str,
        weight: Var | str | None = None,
        *,
        ignore_index: int = -100,
        name: str = "",
    ) -> Var:
        """How much each sample counts in a mean: out = weight[label], 1 without `weight`, and 0
        where the label is `ignore_index`. label [...] or [..., 1], weight [C] -> out [...]."""
    def leaky_relu(
        self,
        x: Var | str,
        *,
        alpha: float = 0.01,
        name: str = "",
    ) -> Var:
        """Leaky rectifier: out = x where x > 0, else alpha * x."""
    def less(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Comparison of elements: out = x < y."""
    def less_equal(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Comparison of elements: out = x <= y."""
    def linspace(
        self,
        *,
        start: float,
        stop: float,
        num: int = 50,
        dtype: Any = ...,
        name: str = "",
    ) -> Var:
        """`num` values at equal distances from start to stop, both included."""
    def log(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Natural logarithm; NaN below 0."""
    def log10(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Logarithm to base 10; NaN below 0."""
    def log1p(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """out = log(1 + x), also exact for small x; NaN below -1."""
    def log2(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Logarithm to base 2; NaN below 0."""
    def log_sigmoid(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Logarithm of the logistic function: out = -log(1 + exp(-x)), without overflow."""
    def log_softmax(
        self,
        x: Var | str,
        *,
        axis: int = -1,
        name: str = "",
    ) -> Var:
        """Logarithm of softmax: out = x - log(sum(exp(x))) along `axis`, in a form that is
        stable."""
    def logical_and(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Logic of elements: out = x and y."""
    def logical_not(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Logic of elements: out = not x."""
    def logical_or(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Logic of elements: out = x or y."""
    def logical_xor(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Logic of elements: out = x or y, but not both."""
    def logsumexp(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int] = ...,
        keepdims: bool = False,
        name: str = "",
    ) -> Var:
        """out = log(sum(exp(x))) over axes, shifted by the maximum so that nothing overflows."""
    def loss_scale_check(
        self,
        x: Sequence[Var | str],
        scale: Var | str,
        *,
        name: str = "",
    ) -> tuple[Var, ...]:
        """Whether the gradients of a scaled loss are finite, and the factor that undoes the
        scale."""
    def loss_scale_commit(
        self,
        new: Var | str,
        old: Var | str,
        finite: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """The end of an update that may be skipped: out = new where finite is 1, else old."""
    def loss_scale_seed(
        self,
        x: Var | str,
        scale: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """The gradient of a scaled loss with respect to itself: out = scale, everywhere."""
    def loss_scale_undo(
        self,
        x: Var | str,
        grad_scale: Var | str | None = None,
        *,
        dtype: Any,
        name: str = "",
    ) -> Var:
        """A gradient of the loss itself from a gradient of the scaled loss: out = grad_scale *
        x, in the dtype `dtype`; without grad_scale a mere conversion."""
    def loss_scale_update(
        self,
        scale: Var | str,
        steps: Var | str,
        finite: Var | str,
        *,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        name: str = "",
    ) -> tuple[Var, ...]:
        """The scale of the next step: scale * backoff_factor after gradients that are not
        finite; scale * growth_factor after growth_interval steps in a row with finite ones."""
    def lr_constant(
        self,
        step: Var | str,
        *,
        learning_rate: float = 0.01,
        name: str = "",
    ) -> Var:
        """Learning-rate schedule: out = learning_rate; t = step - 1."""
    def lr_cosine(
        self,
        step: Var | str,
        *,
        learning_rate: float = 0.01,
        total_steps: int,
        end_learning_rate: float = 0.0,
        name: str = "",
    ) -> Var:
        """Learning-rate schedule: out = end_learning_rate + (learning_rate - end_learning_rate)
        (1 + cos(pi min(t / total_steps, 1))) / 2; t = step - 1."""
    def lr_exponential_decay(
        self,
        step: Var | str,
        *,
        learning_rate: float = 0.01,
        decay_steps: int,
        decay_rate: float = 0.96,
        staircase: bool = False,
        name: str = "",
    ) -> Var:
        """Learning-rate schedule: out = learning_rate decay_rate^(t / decay_steps); t = step -
        1."""
    def lr_inverse_time_decay(
        self,
        step: Var | str,
        *,
        learning_rate: float = 0.01,
        decay_steps: int,
        decay_rate: float = 1.0,
        staircase: bool = False,
        name: str = "",
    ) -> Var:
        """Learning-rate schedule: out = learning_rate / (1 + decay_rate t / decay_steps); t =
        step - 1."""
    def lr_linear_warmup(
        self,
        step: Var | str,
        *,
        learning_rate: float = 0.01,
        warmup_steps: int,
        start_factor: float = 0.0,
        name: str = "",
    ) -> Var:
        """Learning-rate schedule: out = learning_rate (start_factor + (1 - start_factor)
        min(step / warmup_steps, 1)); t = step - 1."""
    def lr_noam(
        self,
        step: Var | str,
        *,
        learning_rate: float = 0.01,
        d_model: int,
        warmup_steps: int,
        name: str = "",
    ) -> Var:
        """Learning-rate schedule: out = learning_rate d_model^-0.5 min(step^-0.5, step
        warmup_steps^-1.5); t = step - 1."""
    def lr_piecewise(
        self,
        step: Var | str,
        *,
        learning_rate: float = 0.01,
        boundaries: int | Sequence[int],
        factors: float | Sequence[float],
        name: str = "",
    ) -> Var:
        """Learning-rate schedule: out = learning_rate factors[i], i being how many boundaries
        are at most t; t = step - 1."""
    def lr_polynomial_decay(
        self,
        step: Var | str,
        *,
        learning_rate: float = 0.01,
        decay_steps: int,
        end_learning_rate: float = 0.0,
        power: float = 1.0,
        cycle: bool = False,
        name: str = "",
    ) -> Var:
        """Learning-rate schedule: out = (learning_rate - end_learning_rate) (1 - min(t /
        decay_steps, 1))^power + end_learning_rate; with `cycle` decay_steps is multiplied by the
        rounds begun; t = step - 1."""
    def lr_step_decay(
        self,
        step: Var | str,
        *,
        learning_rate: float = 0.01,
        step_size: int,
        gamma: float = 0.1,
        name: str = "",
    ) -> Var:
        """Learning-rate schedule: out = learning_rate gamma^floor(t / step_size); t = step - 1."""
    def lr_warmup_cosine(
        self,
        step: Var | str,
        *,
        learning_rate: float = 0.01,
        warmup_steps: int,
        total_steps: int,
        end_learning_rate: float = 0.0,
        name: str = "",
    ) -> Var:
        """Learning-rate schedule: out rises linearly over warmup_steps, as `lr_linear_warmup`,
        and then falls to end_learning_rate at total_steps, as `lr_cosine`; t = step - 1."""
    def lrn(
        self,
        x: Var | str,
        *,
        size: int = 5,
        alpha: float = 0.0001,
        beta: float = 0.75,
        k: float = 1.0,
        name: str = "",
    ) -> Var:
        """Local response normalization of [N, C, ...]: out = x / base**beta, where base = k +
        alpha / size * (sum of x**2 over `size` neighboring channels; size // 2 of them before)."""
    def masked_mean(
        self,
        x: Var | str,
        mask: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Weighted mean of a padded batch: out [] = sum(mask x) / sum(mask), where mask [S, T]
        is made by `sequence_mask`, or any weights, and holds for all of x [S, T, ...] there.
        Where mask is 0 x does not count, even if it is NaN. A mask of zeros gives 0."""
    def master_store(
        self,
        x: Var | str,
        *,
        dtype: Any,
        name: str = "",
    ) -> Var:
        """A parameter of half precision from its float32 copy: out = x, rounded to `dtype`."""
    def master_sync(
        self,
        param: Var | str,
        master: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """The float32 copy of a parameter of half precision, before an update: out = master
        where it rounds to param, and param where it does not, since somebody has set the
        parameter."""
    def matmul(
        self,
        x: Var | str,
        y: Var | str,
        *,
        transpose_x: bool = False,
        transpose_y: bool = False,
        alpha: float = 1.0,
        name: str = "",
    ) -> Var:
        """Matrix product: out = alpha * op(x) op(y), where op may transpose the last two axes
        to. 2-D: [M, K] and [K, N] -> [M, N]. A 1-D x is a row and a 1-D y a column; that axis is
        left out of the result, and the transposes do not touch it. More axes in front are
        batches and broadcast as in NumPy: [B, M, K] and [K, N] -> [B, M, N]."""
    def matmul_nbits(
        self,
        x: Var | str,
        w: Var | str,
        scale: Var | str | None = None,
        zero: Var | str | None = None,
        bias: Var | str | None = None,
        *,
        bits: int = 4,
        int8_x: bool = False,
        name: str = "",
    ) -> Var:
        """Product with a matrix of 4, 8 or 16 bits: out = x m + bias. Column n of m is row n of
        w, cut into blocks; element q of block b stands for scale[n, b] * (q - zero[n, b]). Of 4
        bits two lie in a byte, the first one in its lower half. With `int8_x` x is rounded as
        well, each block of a row to 127 steps of its largest size, and sums are sums of
        integers. Of 16 bits elements are numbers in bfloat16, without scale, zero and `int8_x`;
        sums have the dtype of x."""
    def max_pool1d(
        self,
        x: Var | str,
        *,
        kernel: int | Sequence[int],
        stride: int | Sequence[int] = ...,
        padding: int | Sequence[int] | str = ...,
        padding_algorithm: str = "explicit",
        ceil_mode: bool = False,
        name: str = "",
    ) -> Var:
        """Maximum of each window: out[n, c, p] = max over k of x[n, c, p*stride + k - padding].
        An axis of size S becomes floor((S + padding at both ends - k) / stride) + 1, or with
        `ceil_mode` the ceiling of it, unless the last window would begin in the padding at the
        end; with padding_algorithm `same` it becomes ceil(S / stride). Of equal inputs the first
        one, row by row, gets the gradient."""
    def max_pool2d(
        self,
        x: Var | str,
        *,
        kernel: int | Sequence[int],
        stride: int | Sequence[int] = ...,
        padding: int | Sequence[int] | str = ...,
        padding_algorithm: str = "explicit",
        ceil_mode: bool = False,
        name: str = "",
    ) -> Var:
        """Maximum of each window: out[n, c, p] = max over k of x[n, c, p*stride + k - padding].
        An axis of size S becomes floor((S + padding at both ends - k) / stride) + 1, or with
        `ceil_mode` the ceiling of it, unless the last window would begin in the padding at the
        end; with padding_algorithm `same` it becomes ceil(S / stride). Of equal inputs the first
        one, row by row, gets the gradient."""
    def max_pool3d(
        self,
        x: Var | str,
        *,
        kernel: int | Sequence[int],
        stride: int | Sequence[int] = ...,
        padding: int | Sequence[int] | str = ...,
        padding_algorithm: str = "explicit",
        ceil_mode: bool = False,
        name: str = "",
    ) -> Var:
        """Maximum of each window: out[n, c, p] = max over k of x[n, c, p*stride + k - padding].
        An axis of size S becomes floor((S + padding at both ends - k) / stride) + 1, or with
        `ceil_mode` the ceiling of it, unless the last window would begin in the padding at the
        end; with padding_algorithm `same` it becomes ceil(S / stride). Of equal inputs the first
        one, row by row, gets the gradient."""
    def merge_rows(
        self,
        x: Var | str,
        rows: Var | str,
        *,
        name: str = "",
    ) -> tuple[Var, ...]:
        """Sparse rows, each number at most once: values of equal rows are summed at the first of
        them; the others become zeros with row -1. Shapes stay."""
    def mish(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Mish: out = x * tanh(log(1 + exp(x))), without overflow."""
    def mod(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Remainder with the sign of y, as Python's and NumPy's %: out = x - floor(x / y) * y.
        By 0 it is NaN, and 0 for integers. Shapes broadcast as in NumPy."""
    def mul(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Product of elements: out = x * y. Shapes broadcast as in NumPy."""
    def nadam_correction(
        self,
        step: Var | str,
        previous: Var | str,
        *,
        beta1: float = 0.9,
        momentum_decay: float = 0.004,
        name: str = "",
    ) -> Var:
        """The bias correction of `nadam`: out = 1 - P, where P is the product of mu(1) to
        mu(step), mu(t) = beta1 (1 - 0.96^(t momentum_decay) / 2): out = previous + (1 -
        previous) (1 - mu(step))."""
    def neg(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Negation: out = -x."""
    def nll_loss(
        self,
        x: Var | str,
        label: Var | str,
        *,
        ignore_index: int = -100,
        name: str = "",
    ) -> Var:
        """Negative log-likelihood of log-probabilities (of `log_softmax`, say): out = -x[label];
        zero for samples whose label is `ignore_index`. x [..., C], label [...] -> out [...]."""
    def norm(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int] = ...,
        keepdims: bool = False,
        p: float = 2.0,
        name: str = "",
    ) -> Var:
        """Norm of the elements over axes, as one vector: out = sum(|x|^p)^(1/p). p = 2 is
        Euclid's length, p = 1 the sum of |x|, infinity the largest |x|, minus infinity the
        smallest, 0 the number of elements that are not 0. The gradient is 0 where the norm is 0,
        and where an element is 0; equal largest elements share it equally."""
    def normalize(
        self,
        x: Var | str,
        *,
        axis: int = -1,
        epsilon: float = 1e-12,
        name: str = "",
    ) -> Var:
        """Vectors along an axis brought to Euclidean length 1: out = x / max(|x|, epsilon)."""
    def not_equal(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Comparison of elements: out = x != y."""
    def one_hot(
        self,
        ids: Var | str,
        *,
        depth: int,
        dtype: Any = ...,
        name: str = "",
    ) -> Var:
        """1 at each id and 0 elsewhere along a new last axis."""
    def orthogonal_random(
        self,
        like: Var | str | None = None,
        *,
        shape: int | Sequence[int],
        dtype: Any = ...,
        gain: float = 1.0,
        seed: int = 0,
        name: str = "",
    ) -> Var:
        """A random matrix with orthonormal rows or columns, whichever are fewer, times gain.
        With more than two dimensions, the first is the rows and the others together the columns."""
    def pad(
        self,
        x: Var | str,
        *,
        paddings: int | Sequence[int],
        value: float = 0.0,
        mode: str = "constant",
        name: str = "",
    ) -> Var:
        """x with a border. Of a, b, c two more entries at each end are, by mode: `constant` v, v
        and v, v (`value`); `reflect` c, b and b, a; `edge` a, a and c, c; `wrap` b, c and a, b."""
    def positions(
        self,
        x: Var | str,
        past: Var | str | None = None,
        *,
        axis: int = -2,
        name: str = "",
    ) -> Var:
        """Numbers 0, 1, 2, ... along an axis of x: out [size of the axis]. Where x carries
        sequences and the axis holds their rows, each sequence begins at 0. By default the axis
        before the last: T of [N, T, D], and the rows of sequences [rows, D]. With `past`
        sequence n begins at past[n]: out [N, size of the axis], or, where x carries sequences,
        [rows]."""
    def pow(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Power: out = x ** y; NaN for negative x unless y is whole. The gradient of y is 0 at x
        = 0. Shapes broadcast as in NumPy."""
    def put_along_axis(
        self,
        x: Var | str,
        ids: Var | str,
        updates: Var | str,
        *,
        axis: int = -1,
        mode: str = "set",
        name: str = "",
    ) -> Var:
        """x with entries put at positions along an axis, other ones for each line: for axis 1 of
        a matrix, out[i, ids[i, j]] = updates[i, j], or += for mode `add`, where equal ids add
        up. With mode `set` the ids of a line must differ: which of several updates stays is not
        said. Axes of ids and of updates that have size 1 broadcast."""
    def quantize_linear(
        self,
        x: Var | str,
        scale: Var | str,
        zero: Var | str | None = None,
        *,
        name: str = "",
    ) -> Var:
        """Reals as 8-bit integers: out = round(x / scale) + zero, half to even, saturated; uint8
        where no zero point says another dtype."""
    def quantized_add(
        self,
        x: Var | str,
        y: Var | str,
        x_scale: Var | str,
        y_scale: Var | str,
        out_scale: Var | str,
        x_zero: Var | str | None = None,
        y_zero: Var | str | None = None,
        out_zero: Var | str | None = None,
        *,
        name: str = "",
    ) -> Var:
        """x + y of 8-bit integers that stand for reals, as such integers: out = (x_scale (x -
        x_zero) + y_scale (y - y_zero)) / out_scale + out_zero, rounded, half to even, saturated."""
    def quantized_global_avg_pool(
        self,
        x: Var | str,
        x_scale: Var | str,
        out_scale: Var | str,
        x_zero: Var | str | None = None,
        out_zero: Var | str | None = None,
        *,
        name: str = "",
    ) -> Var:
        """Mean over all pixels of images of 8-bit integers that stand for reals, as such
        integers: out = x_scale * mean(x - x_zero) / out_scale + out_zero, rounded, half to even,
        saturated."""
    def quantized_mul(
        self,
        x: Var | str,
        y: Var | str,
        x_scale: Var | str,
        y_scale: Var | str,
        out_scale: Var | str,
        x_zero: Var | str | None = None,
        y_zero: Var | str | None = None,
        out_zero: Var | str | None = None,
        *,
        name: str = "",
    ) -> Var:
        """x * y of 8-bit integers that stand for reals, as such integers: out = x_scale (x -
        x_zero) * y_scale (y - y_zero) / out_scale + out_zero, rounded, half to even, saturated."""
    def receive(
        self,
        like: Sequence[Var | str],
        *,
        rank: int,
        name: str = "",
    ) -> tuple[Var, ...]:
        """Variables that one other rank has sent by `send`: out, with the shapes, dtypes and
        sequences of `like`. It waits until they are there."""
    def reciprocal(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """out = 1 / x."""
    def recursive(
        self,
        parent: Var | str,
        position: Var | str | None = None,
        x: Sequence[Var | str] | None = None,
        static: Sequence[Var | str] | None = None,
        boot: Sequence[Var | str] | None = None,
        *,
        net: Any,
        name: str = "",
    ) -> tuple[Var, ...]:
        """A node net run once for each node of a forest, children before parents; all nodes of
        one height run side by side. `net` is a RECURSIVE NetDesc: its links and memories say, in
        this order, which inner variable each variable of a slot stands for. With arity k a node
        reads the states of children 0 to k-1, or boot values where it has fewer; with arity 0 it
        reads sums over any number of children, of their states or of the results of a child net
        for each child and its parent, and a leaf reads boot values."""
    def reduce_all(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int] = ...,
        keepdims: bool = False,
        name: str = "",
    ) -> Var:
        """Whether all elements over axes hold; True for no elements. Numbers other than 0 count
        as true, also NaN."""
    def reduce_any(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int] = ...,
        keepdims: bool = False,
        name: str = "",
    ) -> Var:
        """Whether any element over axes holds; False for no elements. Numbers other than 0 count
        as true, also NaN."""
    def reduce_max(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int] = ...,
        keepdims: bool = False,
        name: str = "",
    ) -> Var:
        """Maximum over axes. Equal maxima share the gradient equally."""
    def reduce_mean(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int] = ...,
        keepdims: bool = False,
        name: str = "",
    ) -> Var:
        """Arithmetic mean over axes."""
    def reduce_min(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int] = ...,
        keepdims: bool = False,
        name: str = "",
    ) -> Var:
        """Minimum over axes. Equal minima share the gradient equally."""
    def reduce_prod(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int] = ...,
        keepdims: bool = False,
        name: str = "",
    ) -> Var:
        """Product over axes. Integers and booleans are multiplied as int64. The gradient is also
        right for zeros."""
    def reduce_scatter_start(
        self,
        x: Sequence[Var | str],
        weight: Var | str | None = None,
        total: Var | str | None = None,
        *,
        ranks: int,
        name: str = "",
    ) -> tuple[Var, ...]:
        """Begins the sums over all ranks of a bucket of arrays. Each rank gets its part of a sum
        (see `shard`); `reduce_scatter_wait` ends it. x may change as soon as this operator has
        run. With `weight` it is the mean weighted by it, as of `all_reduce`."""
    def reduce_scatter_wait(
        self,
        packed: Var | str,
        part: Var | str,
        ticket: Var | str,
        like: Sequence[Var | str],
        *,
        ranks: int,
        mode: str = "sum",
        name: str = "",
    ) -> tuple[Var, ...]:
        """Ends what `reduce_scatter_start` has begun: out are this rank's parts of the sums, or
        with mode=mean of the means, in the dtype of `like`."""
    def reduce_std(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int] = ...,
        keepdims: bool = False,
        ddof: int = 0,
        name: str = "",
    ) -> Var:
        """Standard deviation, the root of `reduce_var`, with a gradient of 0 where it is 0, over
        axes. NaN where the count is not above ddof, as for one element and ddof = 1."""
    def reduce_sum(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int] = ...,
        keepdims: bool = False,
        name: str = "",
    ) -> Var:
        """Sum over axes. Integers and booleans are summed as int64."""
    def reduce_var(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int] = ...,
        keepdims: bool = False,
        ddof: int = 0,
        name: str = "",
    ) -> Var:
        """Variance, sum((x - mean)^2) / (count - ddof), over axes. NaN where the count is not
        above ddof, as for one element and ddof = 1."""
    def relu(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Rectified linear unit: out = max(x, 0)."""
    def relu6(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Rectified linear unit with a ceiling: out = min(max(x, 0), 6)."""
    def repeat_interleave(
        self,
        x: Var | str,
        *,
        repeats: int,
        axis: int = 0,
        name: str = "",
    ) -> Var:
        """Every entry along an axis several times, one after the other: a, b -> a, a, b, b.
        (`tile` gives a, b, a, b.)"""
    def reshape(
        self,
        x: Var | str,
        *,
        shape: int | Sequence[int],
        name: str = "",
    ) -> Var:
        """The elements of x, in row-major order, in another shape."""
    def roll(
        self,
        x: Var | str,
        *,
        shifts: int | Sequence[int],
        axes: int | Sequence[int] = ...,
        name: str = "",
    ) -> Var:
        """x moved along axes, where what leaves at one end comes in at the other: out[(i +
        shift) mod n] = x[i]. Without axes x is rolled as one row of all its elements."""
    def rotary_embedding(
        self,
        x: Var | str,
        positions: Var | str | None = None,
        *,
        heads: int = 0,
        base: float = 10000.0,
        interleaved: bool = True,
        name: str = "",
    ) -> Var:
        """Rotary position embedding: each pair of columns is turned by the angle p base^(-2i /
        d), p the row's position and i the pair's number, so that the product of a query and a
        key depends on the distance of their positions alone. x [..., T, d], or with `heads`
        [..., T, heads d]; d is even. `positions` broadcasts to x without its last axis; without
        it rows count from 0 along T or, where x carries sequences, in each of them. Pairs are
        neighbors (0, 1), (2, 3), ... as in the paper, or, not `interleaved`, the columns i and i
        + d / 2."""
    def round(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Nearest whole number; the even one of two."""
    def rows_to_dense(
        self,
        x: Var | str,
        rows: Var | str,
        like: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """The whole table that sparse rows stand for: zeros, then out[rows[i]] += x[i]; row -1
        is passed over."""
    def rsqrt(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Reciprocal square root: out = 1 / sqrt(x)."""
    def scale(
        self,
        x: Var | str,
        *,
        scale: float = 1.0,
        bias: float = 0.0,
        name: str = "",
    ) -> Var:
        """Linear map by constants: out = scale * x + bias."""
    def scaled_dot_product_attention(
        self,
        query: Var | str,
        key: Var | str,
        value: Var | str,
        mask: Var | str | None = None,
        key_mask: Var | str | None = None,
        past: Var | str | None = None,
        *,
        causal: bool = False,
        dropout: float = 0.0,
        scale: float = 0.0,
        heads: int = 0,
        seed: int = 0,
        name: str = "",
    ) -> Var:
        """Attention: out = softmax(scale query key^T + mask) value. query [..., T, d], key [...,
        S, d], value [..., S, e] -> out [..., T, e]; the axes in front (batch, heads) broadcast.
        With `heads` query is [N, T, heads d], key [N, S, heads d], value [N, S, heads e] and out
        [N, T, heads e]: each head takes its own columns. `mask` broadcasts to the weights, [...,
        T, S] or [N, heads, T, S]: booleans are true where a query may look, floats are added.
        `key_mask` [N, S] says the same of keys, for all queries; N is the first axis. `causal`
        lets row t see the keys 0 .. t alone; with `past` 0 .. past[n] + t, where keys and values
        come from a cache, to which the rows of the query were appended. A row that sees nothing
        gives zeros, and has no gradient. While training, `dropout` sets weights to 0 with that
        probability and divides the others by 1 - dropout."""
    def scatter_add(
        self,
        x: Var | str,
        ids: Var | str,
        updates: Var | str,
        *,
        from_end: bool = False,
        name: str = "",
    ) -> Var:
        """x with rows added: out = x, then out[ids[i]] += updates[i] for every i."""
    def scatter_nd(
        self,
        x: Var | str,
        ids: Var | str,
        updates: Var | str,
        *,
        mode: str = "set",
        name: str = "",
    ) -> Var:
        """x with parts put in by whole indexes: out[ids[i, 0], ..., ids[i, m-1], ...] =
        updates[i, ...], or += for mode `add`, where equal indexes add up. With mode `set` the
        indexes must differ: which of several updates stays is not said."""
    def selu(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Scaled exponential linear unit: out = 1.0507 * (x where x > 0, else 1.6733 * (exp(x) -
        1))."""
    def send(
        self,
        x: Sequence[Var | str],
        *,
        rank: int,
        name: str = "",
    ) -> Var:
        """Sends variables to one other rank, which takes them by `receive`, in the order in
        which they were sent. It does not wait for that rank, and x may change as soon as it has
        run."""
    def sequence_concat(
        self,
        x: Sequence[Var | str],
        *,
        name: str = "",
    ) -> Var:
        """Sequences joined end to end: sequence i of out is sequence i of the first x, then of
        the second, and so on. Each x is [N_j, ...]; out is [sum of N_j, ...]. All hold as many
        sequences; of two levels the innermost are joined and the outer ones must be equal. To
        put features side by side use `concat`."""
    def sequence_context(
        self,
        x: Var | str,
        *,
        left: int = 0,
        right: int = 0,
        padding: str = "zero",
        name: str = "",
    ) -> Var:
        """Splicing: every row beside those around it in its sequence: out[t] = (x[t - left],
        ..., x[t + right]), [N, D] -> [N, (left + right + 1) D]. Of several levels the innermost
        counts."""
    def sequence_error(
        self,
        x: Var | str,
        label: Var | str,
        *,
        ignore_index: int = -100,
        name: str = "",
    ) -> tuple[Var, ...]:
        """Share of the sequences in which any row is wrong: the highest score in its row of x is
        not at its label. Rows whose label is `ignore_index` are never wrong, nor is an empty
        sequence. Without sequences it is 0. (The error of rows is 1 - `accuracy`.)"""
    def sequence_expand(
        self,
        x: Var | str,
        like: Var | str,
        *,
        level: int = -1,
        name: str = "",
    ) -> Var:
        """One row of x for each sequence of `like`, repeated over its rows: x [S, ...] -> out
        [N, ...] with the offsets of like [N, ...]. `level` selects its sequences: -1, the
        innermost; 0, the outermost. Empty sequences give nothing."""
    def sequence_length(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Number of rows of each of the S sequences x [N, ...]: out [S], int64."""
    def sequence_mask(
        self,
        x: Var | str,
        *,
        steps: int = -1,
        dtype: Any = ...,
        name: str = "",
    ) -> Var:
        """Where a padded batch of the sequences x [N, ...] holds rows: out [S, T] is 1 there and
        0 in the gaps. T is `steps`, or the length of the longest."""
    def sequence_mean(
        self,
        x: Var | str,
        *,
        per: str = "row",
        name: str = "",
    ) -> Var:
        """Mean of costs x [N] over a batch of S sequences: out []. per=row: of all rows, sum(x)
        / N; per=sequence: of the sums of the sequences, sum(x) / S; per=balanced: of the means
        of the sequences, so that long and short ones weigh the same. An empty sequence counts as
        0 in the latter two. Stands for `sequence_pool` and `mean`."""
    def sequence_pad(
        self,
        x: Var | str,
        *,
        steps: int = -1,
        value: float = 0.0,
        name: str = "",
    ) -> Var:
        """S sequences x [N, ...] as a padded batch out [S, T, ...]. T is `steps`, or the length
        of the longest. Of several levels the innermost is padded, and out carries the others.
        Their lengths and mask come from `sequence_length` and `sequence_mask`."""
    def sequence_pool(
        self,
        x: Var | str,
        *,
        pool_type: str = "mean",
        name: str = "",
    ) -> Var:
        """One row for each of S sequences: x [N, ...] -> out [S, ...]. Types: the first or last
        row; or of every element the maximum, the sum, the mean, or the sum over the square root
        of the length. Of several levels the innermost is pooled, and out carries the others. An
        empty sequence gives zeros. Of equal maxima the first row gets the gradient."""
    def sequence_reverse(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Every sequence last row first; x and out are [N, ...]. Of several levels the innermost
        is reversed."""
    def sequence_rows(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """The rows of a batch x [S, T, ...] whose S sequences are all T long: out [S T, ...]."""
    def sequence_shift(
        self,
        x: Var | str,
        boundary: Var | str | None = None,
        *,
        by: int = 1,
        fill: float = 0.0,
        name: str = "",
    ) -> Var:
        """Rows moved in time: out[t] = x[t - by] within each sequence, x and out [N, ...]. by >
        0 delays (CNTK's PastValue), by < 0 advances (FutureValue). Rows whose source lies
        outside their sequence are `fill`, or rows of `boundary`: [1, ...] for all, or [S, ...],
        one for each sequence."""
    def sequence_slice(
        self,
        x: Var | str,
        offset: Var | str | None = None,
        like: Var | str | None = None,
        *,
        start: int = 0,
        length: int = -1,
        name: str = "",
    ) -> Var:
        """A part of every sequence of x [N, ...]. With attributes alone it is a Python slice,
        x[start : start + length], and may be shorter or empty where the sequence is. With
        `offset` [S] it begins at row offset[i] of sequence i, has `length` rows or, where `like`
        is given, as many as sequence i of like, and must lie within the sequence. (Lengths are
        offsets, known before a run; where a part begins may be data.)"""
    def sequence_softmax(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Softmax over the rows of each sequence: out[t] = exp(x[t]) / sum of exp(x) over the
        sequence of row t, each column for itself. x and out are [N, ...]; the maximum is taken
        off first. Of several levels the innermost counts."""
    def sequence_unpad(
        self,
        x: Var | str,
        like: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """The rows of a padded batch x [S, T, ...] without its gaps: out [N, ...] with the
        offsets of `like` [N, ...], whose sequences are at most T long."""
    def shard(
        self,
        x: Sequence[Var | str],
        *,
        ranks: int,
        name: str = "",
    ) -> tuple[Var, ...]:
        """This rank's part of arrays that all ranks hold: of n elements, in the order of memory,
        rank r gets those from r ceil(n / ranks) on; zeros where there are none."""
    def sigmoid(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Logistic function: out = 1 / (1 + exp(-x))."""
    def sigmoid_cross_entropy(
        self,
        x: Var | str,
        label: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Cross entropy of independent classes, from logits x and labels (or probabilities) in
        [0, 1]: out = max(x, 0) - x label + log(1 + exp(-|x|)). x, label and out have one shape."""
    def sigmoid_focal_loss(
        self,
        x: Var | str,
        label: Var | str,
        *,
        alpha: float = 0.25,
        gamma: float = 2.0,
        name: str = "",
    ) -> Var:
        """Focal loss of independent classes, from logits x and labels in [0, 1]: with p =
        sigmoid(x) and q = p (1 - label) + (1 - p) label, the probability of the wrong side, out
        = a q^gamma times the cross entropy, a = alpha label + (1 - alpha) (1 - label). Easy
        samples hardly count. alpha < 0: a = 1. x, label and out have one shape."""
    def sign(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Sign: out = 1, 0 or -1; NaN of NaN."""
    def silu(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Sigmoid linear unit (swish): out = x / (1 + exp(-x))."""
    def sin(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Sine of x in radians."""
    def sinh(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Hyperbolic sine."""
    def sinusoidal_encoding(
        self,
        positions: Var | str,
        *,
        size: int,
        dtype: Any = ...,
        base: float = 10000.0,
        name: str = "",
    ) -> Var:
        """Sines and cosines of positions p at falling rates: out[..., 2i] = sin(p / base^(2i /
        D)), out[..., 2i + 1] = cos(p / base^(2i / D)), where D is `size`. positions [...] -> out
        [..., D]."""
    def slice(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int],
        starts: int | Sequence[int],
        ends: int | Sequence[int] = ...,
        steps: int | Sequence[int] = ...,
        name: str = "",
    ) -> Var:
        """A range along each of some axes, as x[start:end:step] in Python, also negative steps."""
    def smooth_l1_loss(
        self,
        x: Var | str,
        y: Var | str,
        *,
        beta: float = 1.0,
        name: str = "",
    ) -> Var:
        """Smooth L1 loss of d = x - y: out = d^2 / (2 beta) where |d| < beta, else |d| - beta /
        2. x, y and out have one shape."""
    def softmax(
        self,
        x: Var | str,
        *,
        axis: int = -1,
        name: str = "",
    ) -> Var:
        """Softmax: out = exp(x) / sum(exp(x)) along `axis`; the maximum is taken off first."""
    def softmax_cross_entropy(
        self,
        x: Var | str,
        label: Var | str,
        weight: Var | str | None = None,
        *,
        soft_label: bool = False,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        name: str = "",
    ) -> Var:
        """Cross entropy of logits, in one stable step: out = log(sum(exp(x))) - x[label], with
        `soft_label` out = -sum(label * log_softmax(x)). x [..., C] -> out [...]. Samples whose
        label is `ignore_index` have loss and gradient zero. With `label_smoothing` eps the
        target is (1 - eps) label + eps / C, and with `weight` [C] the term of class c counts
        weight[c] times, as in PyTorch. (`cross_entropy_loss` takes the weighted mean besides.)"""
    def softplus(
        self,
        x: Var | str,
        *,
        beta: float = 1.0,
        name: str = "",
    ) -> Var:
        """Smooth rectifier: out = log(1 + exp(beta * x)) / beta."""
    def softsign(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Sign with a smooth step: out = x / (1 + |x|)."""
    def sort(
        self,
        x: Var | str,
        *,
        axis: int = -1,
        descending: bool = False,
        name: str = "",
    ) -> tuple[Var, ...]:
        """x in order along an axis, and where each entry was. Equal entries keep their order,
        and NaN counts as the largest."""
    def split(
        self,
        x: Var | str,
        *,
        axis: int = 0,
        sections: int | Sequence[int] = ...,
        name: str = "",
    ) -> tuple[Var, ...]:
        """x cut along an axis into as many parts as there are outputs."""
    def sqrt(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Square root; NaN below 0."""
    def square(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Square: out = x * x."""
    def squared_error(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Squared error: out = (x - y)^2; `mean` of it is the mean squared error. x, y and out
        have one shape."""
    def squeeze(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int],
        name: str = "",
    ) -> Var:
        """x without axes of size 1."""
    def stack(
        self,
        x: Sequence[Var | str],
        *,
        axis: int = 0,
        name: str = "",
    ) -> Var:
        """Arrays of one shape, side by side along a new axis."""
    def stop_gradient(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Copy through which no gradient passes back: out = x, of any dtype. PyTorch's `detach`."""
    def sub(
        self,
        x: Var | str | float | np.ndarray,
        y: Var | str | float | np.ndarray,
        *,
        name: str = "",
    ) -> Var:
        """Difference: out = x - y. Shapes broadcast as in NumPy."""
    def take_along_axis(
        self,
        x: Var | str,
        ids: Var | str,
        *,
        axis: int = -1,
        name: str = "",
    ) -> Var:
        """Entries of x at positions along an axis, other ones for each line: for axis 1 of a
        matrix, out[i, j] = x[i, ids[i, j]]. Axes of ids that have size 1 broadcast."""
    def tan(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Tangent of x in radians."""
    def tanh(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Hyperbolic tangent."""
    def tile(
        self,
        x: Var | str,
        *,
        repeats: int | Sequence[int],
        name: str = "",
    ) -> Var:
        """x repeated along each axis: out.shape[i] = repeats[i] * x.shape[i]."""
    def to_host_start(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Begins to copy a value to the host's memory, where it waits for `from_host_start`. Its
        memory may be used for others after `to_host_wait`."""
    def to_host_wait(
        self,
        x: Var | str,
        ticket: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Ends what `to_host_start` has begun: the memory of x is not read any more."""
    def top_k(
        self,
        x: Var | str,
        *,
        k: int,
        axis: int = -1,
        name: str = "",
    ) -> tuple[Var, ...]:
        """The k largest entries along an axis, largest first, and where they are. Of equal
        entries the first counts as larger."""
    def transpose(
        self,
        x: Var | str,
        *,
        perm: int | Sequence[int] = ...,
        name: str = "",
    ) -> Var:
        """Axes in another order: out.shape[i] = x.shape[perm[i]]."""
    def tril(
        self,
        x: Var | str,
        *,
        diagonal: int = 0,
        name: str = "",
    ) -> Var:
        """The lower left triangle of each matrix, and 0 elsewhere: out[..., i, j] = x[..., i, j]
        on the diagonal j = i + `diagonal` and below it."""
    def triu(
        self,
        x: Var | str,
        *,
        diagonal: int = 0,
        name: str = "",
    ) -> Var:
        """The upper right triangle of each matrix, and 0 elsewhere: out[..., i, j] = x[..., i,
        j] on the diagonal j = i + `diagonal` and above it."""
    def trunc(
        self,
        x: Var | str,
        *,
        name: str = "",
    ) -> Var:
        """Whole number next to x towards 0: x without its fraction."""
    def uniform_random(
        self,
        like: Var | str | None = None,
        *,
        shape: int | Sequence[int],
        dtype: Any = ...,
        low: float = -1.0,
        high: float = 1.0,
        seed: int = 0,
        name: str = "",
    ) -> Var:
        """Numbers drawn evenly from [low, high)."""
    def unsqueeze(
        self,
        x: Var | str,
        *,
        axes: int | Sequence[int],
        name: str = "",
    ) -> Var:
        """x with new axes of size 1."""
    def xavier_random(
        self,
        like: Var | str | None = None,
        *,
        shape: int | Sequence[int],
        dtype: Any = ...,
        fan_in: int = 0,
        fan_out: int = 0,
        uniform: bool = True,
        gain: float = 1.0,
        seed: int = 0,
        name: str = "",
    ) -> Var:
        """Glorot's initial weights: mean 0, variance 2 gain^2 / (fan_in + fan_out). A matrix is
        [fan_in, fan_out]; a convolution's filters are [channels out, channels in, ...], whose
        fans also count the filter's places."""
