"""Written by `python -m opscope.python_api.builder.methods`; do not edit."""

from collections.abc import Callable, Sequence
from typing import Any

from ...framework.ir.registry import OperatorDef
from .variable import Var

def method_types() -> list[str]: ...
def make_method(entry: OperatorDef) -> Callable[..., Any]: ...
def describe(entry: OperatorDef) -> str: ...
def stub_text(types: Sequence[str] | None = ...) -> str: ...

class OpMethods:
    add_op: Callable[..., Any]
    def abs(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def accuracy(
        self,
        x: Var | str,
        label: Var | str,
        *,
        k: int = ...,
        ignore_index: int = ...,
        name: str = ...,
    ) -> tuple[Var, ...]: ...
    def add(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def affine(
        self,
        x: Var | str,
        w: Var | str,
        b: Var | str | None = ...,
        *,
        num_flatten_dims: int = ...,
        name: str = ...,
    ) -> Var: ...
    def arange(
        self,
        *,
        start: float = ...,
        stop: float,
        step: float = ...,
        dtype: Any = ...,
        name: str = ...,
    ) -> Var: ...
    def argmax(
        self,
        x: Var | str,
        *,
        axis: int = ...,
        keepdims: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def argmin(
        self,
        x: Var | str,
        *,
        axis: int = ...,
        keepdims: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def assign(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def auc(
        self,
        x: Var | str,
        label: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def avg_pool1d(
        self,
        x: Var | str,
        *,
        kernel: Sequence[int],
        stride: Sequence[int] = ...,
        padding: Sequence[int] = ...,
        ceil_mode: bool = ...,
        count_include_pad: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def avg_pool2d(
        self,
        x: Var | str,
        *,
        kernel: Sequence[int],
        stride: Sequence[int] = ...,
        padding: Sequence[int] = ...,
        ceil_mode: bool = ...,
        count_include_pad: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def avg_pool3d(
        self,
        x: Var | str,
        *,
        kernel: Sequence[int],
        stride: Sequence[int] = ...,
        padding: Sequence[int] = ...,
        ceil_mode: bool = ...,
        count_include_pad: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def batch_norm(
        self,
        x: Var | str,
        scale: Var | str,
        bias: Var | str,
        mean: Var | str,
        variance: Var | str,
        *,
        momentum: float = ...,
        epsilon: float = ...,
        use_global_stats: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def bernoulli_random(
        self,
        *,
        shape: Sequence[int],
        dtype: Any = ...,
        p: float = ...,
        seed: int = ...,
        name: str = ...,
    ) -> Var: ...
    def cast(
        self,
        x: Var | str,
        *,
        dtype: Any,
        name: str = ...,
    ) -> Var: ...
    def ceil(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def clip(
        self,
        x: Var | str,
        *,
        minimum: float = ...,
        maximum: float = ...,
        name: str = ...,
    ) -> Var: ...
    def concat(
        self,
        x: Sequence[Var | str],
        *,
        axis: int = ...,
        name: str = ...,
    ) -> Var: ...
    def constant(
        self,
        *,
        value: Any,
        name: str = ...,
    ) -> Var: ...
    def conv1d(
        self,
        x: Var | str,
        w: Var | str,
        b: Var | str | None = ...,
        *,
        stride: Sequence[int] = ...,
        padding: Sequence[int] = ...,
        padding_algorithm: str = ...,
        dilation: Sequence[int] = ...,
        groups: int = ...,
        name: str = ...,
    ) -> Var: ...
    def conv2d(
        self,
        x: Var | str,
        w: Var | str,
        b: Var | str | None = ...,
        *,
        stride: Sequence[int] = ...,
        padding: Sequence[int] = ...,
        padding_algorithm: str = ...,
        dilation: Sequence[int] = ...,
        groups: int = ...,
        name: str = ...,
    ) -> Var: ...
    def conv3d(
        self,
        x: Var | str,
        w: Var | str,
        b: Var | str | None = ...,
        *,
        stride: Sequence[int] = ...,
        padding: Sequence[int] = ...,
        padding_algorithm: str = ...,
        dilation: Sequence[int] = ...,
        groups: int = ...,
        name: str = ...,
    ) -> Var: ...
    def conv_transpose1d(
        self,
        x: Var | str,
        w: Var | str,
        b: Var | str | None = ...,
        *,
        stride: Sequence[int] = ...,
        padding: Sequence[int] = ...,
        output_padding: Sequence[int] = ...,
        dilation: Sequence[int] = ...,
        groups: int = ...,
        name: str = ...,
    ) -> Var: ...
    def conv_transpose2d(
        self,
        x: Var | str,
        w: Var | str,
        b: Var | str | None = ...,
        *,
        stride: Sequence[int] = ...,
        padding: Sequence[int] = ...,
        output_padding: Sequence[int] = ...,
        dilation: Sequence[int] = ...,
        groups: int = ...,
        name: str = ...,
    ) -> Var: ...
    def conv_transpose3d(
        self,
        x: Var | str,
        w: Var | str,
        b: Var | str | None = ...,
        *,
        stride: Sequence[int] = ...,
        padding: Sequence[int] = ...,
        output_padding: Sequence[int] = ...,
        dilation: Sequence[int] = ...,
        groups: int = ...,
        name: str = ...,
    ) -> Var: ...
    def cos(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def cross_entropy(
        self,
        x: Var | str,
        label: Var | str,
        *,
        soft_label: bool = ...,
        ignore_index: int = ...,
        name: str = ...,
    ) -> Var: ...
    def cumsum(
        self,
        x: Var | str,
        *,
        axis: int = ...,
        exclusive: bool = ...,
        reverse: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def div(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def dropout(
        self,
        x: Var | str,
        *,
        p: float = ...,
        seed: int = ...,
        name: str = ...,
    ) -> Var: ...
    def edit_distance(
        self,
        x: Var | str,
        label: Var | str,
        x_length: Var | str | None = ...,
        label_length: Var | str | None = ...,
        *,
        normalized: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def elu(
        self,
        x: Var | str,
        *,
        alpha: float = ...,
        name: str = ...,
    ) -> Var: ...
    def embedding(
        self,
        ids: Var | str,
        w: Var | str,
        *,
        sparse: bool = ...,
        padding_idx: int = ...,
        name: str = ...,
    ) -> Var: ...
    def equal(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def erf(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def exp(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def expand(
        self,
        x: Var | str,
        *,
        shape: Sequence[int],
        name: str = ...,
    ) -> Var: ...
    def fc(
        self,
        x: Sequence[Var | str],
        w: Sequence[Var | str],
        b: Var | str | None = ...,
        *,
        activation: str = ...,
        num_flatten_dims: int = ...,
        name: str = ...,
    ) -> Var: ...
    def fill_constant(
        self,
        *,
        shape: Sequence[int] = ...,
        dtype: Any = ...,
        value: float = ...,
        name: str = ...,
    ) -> Var: ...
    def fill_like(
        self,
        x: Var | str,
        *,
        value: float = ...,
        name: str = ...,
    ) -> Var: ...
    def flatten(
        self,
        x: Var | str,
        *,
        axis: int = ...,
        name: str = ...,
    ) -> Var: ...
    def floor(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def gather(
        self,
        x: Var | str,
        ids: Var | str,
        *,
        axis: int = ...,
        name: str = ...,
    ) -> Var: ...
    def gaussian_random(
        self,
        *,
        shape: Sequence[int],
        dtype: Any = ...,
        mean: float = ...,
        std: float = ...,
        seed: int = ...,
        name: str = ...,
    ) -> Var: ...
    def gelu(
        self,
        x: Var | str,
        *,
        approximate: str = ...,
        name: str = ...,
    ) -> Var: ...
    def gelu_erf(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def gelu_tanh(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def global_avg_pool(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def global_max_pool(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def global_norm_scale(
        self,
        x: Sequence[Var | str],
        *,
        clip_norm: float,
        name: str = ...,
    ) -> Var: ...
    def greater(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def greater_equal(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def group_norm(
        self,
        x: Var | str,
        scale: Var | str | None = ...,
        bias: Var | str | None = ...,
        *,
        groups: int,
        epsilon: float = ...,
        name: str = ...,
    ) -> Var: ...
    def hard_sigmoid(
        self,
        x: Var | str,
        *,
        alpha: float = ...,
        beta: float = ...,
        name: str = ...,
    ) -> Var: ...
    def hardmax(
        self,
        x: Var | str,
        *,
        axis: int = ...,
        name: str = ...,
    ) -> Var: ...
    def he_random(
        self,
        *,
        shape: Sequence[int],
        dtype: Any = ...,
        fan_in: int = ...,
        uniform: bool = ...,
        slope: float = ...,
        seed: int = ...,
        name: str = ...,
    ) -> Var: ...
    def hinge_loss(
        self,
        x: Var | str,
        label: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def huber_loss(
        self,
        x: Var | str,
        y: Var | str,
        *,
        delta: float = ...,
        name: str = ...,
    ) -> Var: ...
    def increment(
        self,
        x: Var | str,
        *,
        value: float = ...,
        name: str = ...,
    ) -> Var: ...
    def instance_norm(
        self,
        x: Var | str,
        scale: Var | str | None = ...,
        bias: Var | str | None = ...,
        *,
        epsilon: float = ...,
        name: str = ...,
    ) -> Var: ...
    def isfinite(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def kl_div(
        self,
        x: Var | str,
        label: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def l1_loss(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def layer_norm(
        self,
        x: Var | str,
        scale: Var | str | None = ...,
        bias: Var | str | None = ...,
        *,
        begin_norm_axis: int = ...,
        epsilon: float = ...,
        name: str = ...,
    ) -> Var: ...
    def leaky_relu(
        self,
        x: Var | str,
        *,
        alpha: float = ...,
        name: str = ...,
    ) -> Var: ...
    def less(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def less_equal(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def log(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def log_softmax(
        self,
        x: Var | str,
        *,
        axis: int = ...,
        name: str = ...,
    ) -> Var: ...
    def logical_and(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def logical_not(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def logical_or(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def logical_xor(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def logsumexp(
        self,
        x: Var | str,
        *,
        axes: Sequence[int] = ...,
        keepdims: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def lr_constant(
        self,
        step: Var | str,
        *,
        learning_rate: float = ...,
        name: str = ...,
    ) -> Var: ...
    def lr_cosine(
        self,
        step: Var | str,
        *,
        learning_rate: float = ...,
        total_steps: int,
        end_learning_rate: float = ...,
        name: str = ...,
    ) -> Var: ...
    def lr_exponential_decay(
        self,
        step: Var | str,
        *,
        learning_rate: float = ...,
        decay_steps: int,
        decay_rate: float = ...,
        staircase: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def lr_inverse_time_decay(
        self,
        step: Var | str,
        *,
        learning_rate: float = ...,
        decay_steps: int,
        decay_rate: float = ...,
        staircase: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def lr_linear_warmup(
        self,
        step: Var | str,
        *,
        learning_rate: float = ...,
        warmup_steps: int,
        start_factor: float = ...,
        name: str = ...,
    ) -> Var: ...
    def lr_noam(
        self,
        step: Var | str,
        *,
        learning_rate: float = ...,
        d_model: int,
        warmup_steps: int,
        name: str = ...,
    ) -> Var: ...
    def lr_piecewise(
        self,
        step: Var | str,
        *,
        learning_rate: float = ...,
        boundaries: Sequence[int],
        factors: Sequence[float],
        name: str = ...,
    ) -> Var: ...
    def lr_polynomial_decay(
        self,
        step: Var | str,
        *,
        learning_rate: float = ...,
        decay_steps: int,
        end_learning_rate: float = ...,
        power: float = ...,
        cycle: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def lr_step_decay(
        self,
        step: Var | str,
        *,
        learning_rate: float = ...,
        step_size: int,
        gamma: float = ...,
        name: str = ...,
    ) -> Var: ...
    def lr_warmup_cosine(
        self,
        step: Var | str,
        *,
        learning_rate: float = ...,
        warmup_steps: int,
        total_steps: int,
        end_learning_rate: float = ...,
        name: str = ...,
    ) -> Var: ...
    def lrn(
        self,
        x: Var | str,
        *,
        size: int = ...,
        alpha: float = ...,
        beta: float = ...,
        k: float = ...,
        name: str = ...,
    ) -> Var: ...
    def masked_mean(
        self,
        x: Var | str,
        mask: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def matmul(
        self,
        x: Var | str,
        y: Var | str,
        *,
        transpose_x: bool = ...,
        transpose_y: bool = ...,
        alpha: float = ...,
        name: str = ...,
    ) -> Var: ...
    def max_pool1d(
        self,
        x: Var | str,
        *,
        kernel: Sequence[int],
        stride: Sequence[int] = ...,
        padding: Sequence[int] = ...,
        ceil_mode: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def max_pool2d(
        self,
        x: Var | str,
        *,
        kernel: Sequence[int],
        stride: Sequence[int] = ...,
        padding: Sequence[int] = ...,
        ceil_mode: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def max_pool3d(
        self,
        x: Var | str,
        *,
        kernel: Sequence[int],
        stride: Sequence[int] = ...,
        padding: Sequence[int] = ...,
        ceil_mode: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def maximum(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def mean(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def merge_rows(
        self,
        x: Var | str,
        rows: Var | str,
        *,
        name: str = ...,
    ) -> tuple[Var, ...]: ...
    def minimum(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def mul(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def neg(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def net(
        self,
        inputs: Sequence[Var | str] | None = ...,
        parameters: Sequence[Var | str] | None = ...,
        *,
        net: Any,
        input_names: Sequence[str] = ...,
        output_names: Sequence[str],
        name: str = ...,
    ) -> tuple[Var, ...]: ...
    def nll_loss(
        self,
        x: Var | str,
        label: Var | str,
        *,
        ignore_index: int = ...,
        name: str = ...,
    ) -> Var: ...
    def not_equal(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def one_hot(
        self,
        ids: Var | str,
        *,
        depth: int,
        dtype: Any = ...,
        name: str = ...,
    ) -> Var: ...
    def orthogonal_random(
        self,
        *,
        shape: Sequence[int],
        dtype: Any = ...,
        gain: float = ...,
        seed: int = ...,
        name: str = ...,
    ) -> Var: ...
    def pad(
        self,
        x: Var | str,
        *,
        paddings: Sequence[int],
        value: float = ...,
        name: str = ...,
    ) -> Var: ...
    def pow(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def reciprocal(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def recurrent(
        self,
        x: Sequence[Var | str],
        static: Sequence[Var | str] | None = ...,
        boot: Sequence[Var | str] | None = ...,
        *,
        net: Any,
        name: str = ...,
    ) -> tuple[Var, ...]: ...
    def recursive(
        self,
        parent: Var | str,
        position: Var | str | None = ...,
        x: Sequence[Var | str] | None = ...,
        static: Sequence[Var | str] | None = ...,
        boot: Sequence[Var | str] | None = ...,
        *,
        net: Any,
        name: str = ...,
    ) -> tuple[Var, ...]: ...
    def reduce_max(
        self,
        x: Var | str,
        *,
        axes: Sequence[int] = ...,
        keepdims: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def reduce_mean(
        self,
        x: Var | str,
        *,
        axes: Sequence[int] = ...,
        keepdims: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def reduce_min(
        self,
        x: Var | str,
        *,
        axes: Sequence[int] = ...,
        keepdims: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def reduce_prod(
        self,
        x: Var | str,
        *,
        axes: Sequence[int] = ...,
        keepdims: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def reduce_sum(
        self,
        x: Var | str,
        *,
        axes: Sequence[int] = ...,
        keepdims: bool = ...,
        name: str = ...,
    ) -> Var: ...
    def relu(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def reshape(
        self,
        x: Var | str,
        *,
        shape: Sequence[int],
        name: str = ...,
    ) -> Var: ...
    def rms_norm(
        self,
        x: Var | str,
        scale: Var | str | None = ...,
        *,
        begin_norm_axis: int = ...,
        epsilon: float = ...,
        name: str = ...,
    ) -> Var: ...
    def round(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def rows_to_dense(
        self,
        x: Var | str,
        rows: Var | str,
        like: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def rsqrt(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def scale(
        self,
        x: Var | str,
        *,
        scale: float = ...,
        bias: float = ...,
        name: str = ...,
    ) -> Var: ...
    def scatter_add(
        self,
        x: Var | str,
        ids: Var | str,
        updates: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def sequence_concat(
        self,
        x: Sequence[Var | str],
        *,
        name: str = ...,
    ) -> Var: ...
    def sequence_context(
        self,
        x: Var | str,
        *,
        left: int = ...,
        right: int = ...,
        padding: str = ...,
        name: str = ...,
    ) -> Var: ...
    def sequence_conv(
        self,
        x: Var | str,
        w: Var | str,
        b: Var | str | None = ...,
        *,
        left: int = ...,
        right: int = ...,
        padding: str = ...,
        name: str = ...,
    ) -> Var: ...
    def sequence_error(
        self,
        x: Var | str,
        label: Var | str,
        *,
        ignore_index: int = ...,
        name: str = ...,
    ) -> tuple[Var, ...]: ...
    def sequence_expand(
        self,
        x: Var | str,
        like: Var | str,
        *,
        level: int = ...,
        name: str = ...,
    ) -> Var: ...
    def sequence_length(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def sequence_mask(
        self,
        x: Var | str,
        *,
        steps: int = ...,
        dtype: Any = ...,
        name: str = ...,
    ) -> Var: ...
    def sequence_mean(
        self,
        x: Var | str,
        *,
        per: str = ...,
        name: str = ...,
    ) -> Var: ...
    def sequence_pad(
        self,
        x: Var | str,
        *,
        steps: int = ...,
        value: float = ...,
        name: str = ...,
    ) -> Var: ...
    def sequence_pool(
        self,
        x: Var | str,
        *,
        pool_type: str = ...,
        name: str = ...,
    ) -> Var: ...
    def sequence_reverse(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def sequence_shift(
        self,
        x: Var | str,
        boundary: Var | str | None = ...,
        *,
        by: int = ...,
        fill: float = ...,
        name: str = ...,
    ) -> Var: ...
    def sequence_slice(
        self,
        x: Var | str,
        offset: Var | str | None = ...,
        like: Var | str | None = ...,
        *,
        start: int = ...,
        length: int = ...,
        name: str = ...,
    ) -> Var: ...
    def sequence_softmax(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def sequence_unpad(
        self,
        x: Var | str,
        like: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def sigmoid(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def sigmoid_cross_entropy(
        self,
        x: Var | str,
        label: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def sign(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def silu(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def sin(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def slice(
        self,
        x: Var | str,
        *,
        axes: Sequence[int],
        starts: Sequence[int],
        ends: Sequence[int] = ...,
        steps: Sequence[int] = ...,
        name: str = ...,
    ) -> Var: ...
    def smooth_l1_loss(
        self,
        x: Var | str,
        y: Var | str,
        *,
        beta: float = ...,
        name: str = ...,
    ) -> Var: ...
    def softmax(
        self,
        x: Var | str,
        *,
        axis: int = ...,
        name: str = ...,
    ) -> Var: ...
    def softmax_cross_entropy(
        self,
        x: Var | str,
        label: Var | str,
        *,
        soft_label: bool = ...,
        ignore_index: int = ...,
        name: str = ...,
    ) -> Var: ...
    def softplus(
        self,
        x: Var | str,
        *,
        beta: float = ...,
        name: str = ...,
    ) -> Var: ...
    def sort(
        self,
        x: Var | str,
        *,
        axis: int = ...,
        descending: bool = ...,
        name: str = ...,
    ) -> tuple[Var, ...]: ...
    def split(
        self,
        x: Var | str,
        *,
        axis: int = ...,
        sections: Sequence[int] = ...,
        name: str = ...,
    ) -> tuple[Var, ...]: ...
    def sqrt(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def square(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def squared_error(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def squeeze(
        self,
        x: Var | str,
        *,
        axes: Sequence[int],
        name: str = ...,
    ) -> Var: ...
    def stack(
        self,
        x: Sequence[Var | str],
        *,
        axis: int = ...,
        name: str = ...,
    ) -> Var: ...
    def sub(
        self,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def sum(
        self,
        x: Sequence[Var | str],
        *,
        name: str = ...,
    ) -> Var: ...
    def tanh(
        self,
        x: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def tile(
        self,
        x: Var | str,
        *,
        repeats: Sequence[int],
        name: str = ...,
    ) -> Var: ...
    def top_k(
        self,
        x: Var | str,
        *,
        k: int,
        axis: int = ...,
        name: str = ...,
    ) -> tuple[Var, ...]: ...
    def transpose(
        self,
        x: Var | str,
        *,
        perm: Sequence[int] = ...,
        name: str = ...,
    ) -> Var: ...
    def uniform_random(
        self,
        *,
        shape: Sequence[int],
        dtype: Any = ...,
        low: float = ...,
        high: float = ...,
        seed: int = ...,
        name: str = ...,
    ) -> Var: ...
    def unsqueeze(
        self,
        x: Var | str,
        *,
        axes: Sequence[int],
        name: str = ...,
    ) -> Var: ...
    def where(
        self,
        condition: Var | str,
        x: Var | str,
        y: Var | str,
        *,
        name: str = ...,
    ) -> Var: ...
    def xavier_random(
        self,
        *,
        shape: Sequence[int],
        dtype: Any = ...,
        fan_in: int = ...,
        fan_out: int = ...,
        uniform: bool = ...,
        gain: float = ...,
        seed: int = ...,
        name: str = ...,
    ) -> Var: ...
