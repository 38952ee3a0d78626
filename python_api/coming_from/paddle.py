# ruff: noqa: E501  (an entry is a line)
"""Paddle's names, of version 2 and later, and the operators of 2017 that ours follow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ...framework.ir.registry import lookup
from ..builder.operator_methods import method_types
from .rows import Row, read

_ROWS: Final = """
paddle.nn.Layer | opscope.NetBuilder |
paddle.nn.Sequential | b.fc | call one layer after the other; each takes the variable of the one before
paddle.nn.Linear | b.fc | weights are [inputs, outputs], as in Paddle
paddle.nn.Embedding | b.embedding |
paddle.nn.Flatten | b.flatten |
paddle.nn.Identity | b.assign |
paddle.nn.Conv1D | b.conv1d |
paddle.nn.Conv2D | b.conv2d |
paddle.nn.Conv3D | b.conv3d |
paddle.nn.Conv1DTranspose | b.conv_transpose1d |
paddle.nn.Conv2DTranspose | b.conv_transpose2d |
paddle.nn.Conv3DTranspose | b.conv_transpose3d |
paddle.nn.{MaxPool1D MaxPool2D MaxPool3D AvgPool1D AvgPool2D AvgPool3D AdaptiveAvgPool1D AdaptiveAvgPool2D AdaptiveAvgPool3D AdaptiveMaxPool1D AdaptiveMaxPool2D AdaptiveMaxPool3D} | = |
paddle.nn.BatchNorm1D | b.batch_norm | `momentum` here is the share of the new value, 0.1 where Paddle has 0.9
paddle.nn.BatchNorm2D | b.batch_norm | `momentum` here is the share of the new value, 0.1 where Paddle has 0.9
paddle.nn.SyncBatchNorm | b.batch_norm | with `sync_batch_norm=True` of `opscope.train`
paddle.nn.LayerNorm | b.layer_norm |
paddle.nn.GroupNorm | b.group_norm |
paddle.nn.InstanceNorm2D | b.instance_norm |
paddle.nn.LocalResponseNorm | b.lrn |
paddle.nn.Dropout | b.dropout |
paddle.nn.Dropout2D | b.dropout | `channels=True`
paddle.nn.{ReLU ReLU6 LeakyReLU PReLU ELU CELU SELU GELU Silu Mish Sigmoid Tanh Softmax LogSoftmax LogSigmoid Softplus Softsign GLU Hardtanh Hardsigmoid Hardswish} | = |
paddle.nn.Swish | b.silu |
paddle.nn.SimpleRNN | b.simple_rnn | takes packed sequences
paddle.nn.LSTM | b.lstm | takes packed sequences
paddle.nn.GRU | b.gru | takes packed sequences
paddle.nn.RNN | b.recurrent | the step is a `with` block
paddle.nn.LSTMCell | b.lstm_cell |
paddle.nn.GRUCell | b.gru_cell |
paddle.nn.SimpleRNNCell | b.rnn_cell |
paddle.nn.MultiHeadAttention | b.multi_head_attention |
paddle.nn.TransformerEncoderLayer | b.transformer_encoder_layer |
paddle.nn.TransformerEncoder | b.transformer_encoder |
paddle.nn.TransformerDecoderLayer | b.transformer_decoder_layer |
paddle.nn.TransformerDecoder | b.transformer_decoder |
paddle.nn.Upsample | b.interpolate |
paddle.nn.CrossEntropyLoss | b.cross_entropy_loss |
paddle.nn.NLLLoss | b.nll_loss |
paddle.nn.BCEWithLogitsLoss | b.sigmoid_cross_entropy |
paddle.nn.MSELoss | b.squared_error | `b.mean` of it
paddle.nn.L1Loss | b.l1_loss | `b.mean` of it
paddle.nn.SmoothL1Loss | b.smooth_l1_loss | `b.mean` of it
paddle.nn.KLDivLoss | b.kl_div |
paddle.nn.CTCLoss | b.ctc_loss |
paddle.nn.functional.{relu relu6 leaky_relu prelu elu celu selu gelu silu mish sigmoid tanh softmax log_softmax log_sigmoid softplus softsign glu dropout one_hot pad interpolate normalize cosine_similarity conv1d conv2d conv3d max_pool2d avg_pool2d layer_norm batch_norm embedding scaled_dot_product_attention} | = |
paddle.nn.functional.softmax_with_cross_entropy | b.softmax_cross_entropy |
paddle.nn.functional.linear | b.affine |
paddle.nn.initializer.Constant | b.fill_constant | a number as `init`
paddle.nn.initializer.Normal | "normal" |
paddle.nn.initializer.Uniform | "uniform" |
paddle.nn.initializer.XavierUniform | "xavier" |
paddle.nn.initializer.KaimingNormal | "he" |
paddle.nn.initializer.Orthogonal | b.orthogonal_random |
paddle.nn.ClipGradByGlobalNorm | b.add_optimization | `clip_norm=...`
paddle.nn.ClipGradByValue | b.add_optimization | `clip_value=...`
paddle.optimizer.SGD | "sgd" |
paddle.optimizer.Momentum | "momentum", "nesterov" |
paddle.optimizer.Adam | "adam" |
paddle.optimizer.AdamW | "adamw" |
paddle.optimizer.Adamax | "adamax" |
paddle.optimizer.Adagrad | "adagrad" |
paddle.optimizer.Adadelta | "adadelta" |
paddle.optimizer.RMSProp | "rmsprop" |
paddle.optimizer.Lamb | "lamb" |
paddle.optimizer.LBFGS | "lbfgs" | without line search
paddle.optimizer.lr.NoamDecay | b.lr_noam |
paddle.optimizer.lr.StepDecay | b.lr_step_decay |
paddle.optimizer.lr.ExponentialDecay | b.lr_exponential_decay |
paddle.optimizer.lr.InverseTimeDecay | b.lr_inverse_time_decay |
paddle.optimizer.lr.PolynomialDecay | b.lr_polynomial_decay |
paddle.optimizer.lr.PiecewiseDecay | b.lr_piecewise |
paddle.optimizer.lr.CosineAnnealingDecay | b.lr_cosine |
paddle.optimizer.lr.LinearWarmup | b.lr_linear_warmup |
paddle.Model | opscope.NetBuilder |
paddle.Model.prepare | b.backward_from, b.add_optimization |
paddle.Model.fit | opscope.train |
paddle.Model.predict | b.predict |
paddle.Model.summary | opscope summary |
paddle.save | opscope.save |
paddle.load | opscope.load |
paddle.jit.save | opscope.save |
paddle.onnx.export | opscope.to_onnx |
paddle.io.DataLoader | opscope.Minibatches |
paddle.io.TensorDataset | opscope.Minibatches |
paddle.metric.Accuracy | b.accuracy |
paddle.metric.Auc | opscope.metrics.AUC |
paddle.metric.Precision | opscope.metrics.Precision |
paddle.metric.Recall | opscope.metrics.Recall |
paddle.callbacks.EarlyStopping | opscope.EarlyStop |
paddle.callbacks.ModelCheckpoint | opscope.train | `checkpoint=...`
paddle.amp.GradScaler | opscope.LossScale |
paddle.amp.auto_cast | opscope.to_half |
paddle.distributed.launch | opscope launch |
paddle.distributed.all_reduce | b.all_reduce |
paddle.distributed.all_gather | b.all_gather |
paddle.DataParallel | opscope launch |
paddle.seed | opscope.train | `seed=...`
paddle.set_device | opscope.CPUPlace, opscope.GPUPlace | the place of a scope
paddle.no_grad | b.predict |
paddle.grad | b.backward_from |
paddle.{abs acos acosh add argmax argmin argsort asin asinh atan atan2 atanh bernoulli bmm cast ceil clip concat cos cosh cumprod cumsum diag einsum equal erf exp expand expm1 eye flatten flip floor floor_divide gather gather_nd greater_equal isfinite isinf isnan less_equal linspace log log10 log1p log2 logical_and logical_not logical_or logical_xor logsumexp matmul maximum mean meshgrid minimum mod norm not_equal pow put_along_axis reciprocal repeat_interleave reshape roll round rsqrt sign sin sinh sort split sqrt square squeeze stack sum take_along_axis tan tanh tile topk transpose tril triu trunc unsqueeze where arange} | = |
paddle.subtract | b.sub |
paddle.multiply | b.mul |
paddle.divide | b.div |
paddle.max | b.reduce_max |
paddle.min | b.reduce_min |
paddle.prod | b.reduce_prod |
paddle.all | b.reduce_all |
paddle.any | b.reduce_any |
paddle.std | b.reduce_std |
paddle.var | b.reduce_var |
paddle.full | b.fill_constant |
paddle.zeros | b.fill_constant | `value=0.0`
paddle.zeros_like | b.fill_like | `value=0.0`
paddle.rand | b.uniform_random |
paddle.randn | b.gaussian_random |
paddle.scatter | b.scatter_add |
paddle.index_select | b.gather |
paddle.static.Program | opscope.NetDesc | one message; its operators are `opscope.OpDesc`
paddle.static.Executor | b.run | a net runs in a scope; there is no executor beside it
paddle.static.append_backward | b.backward_from |
fluid.Scope | opscope.Scope |
framework::NetOp | opscope.PlainNet | `add_op`, `add_backward_ops`, `infer_shape` as in the design of 2017
framework::RecurrentOp | opscope.RecurrentNet |
framework::LoDTensor | opscope.Sequences |
framework::OpProto | opscope.framework.ir.registry.lookup | the documented class of an operator
"""

_SOURCE: Final = re.compile(r"paddle/operators/(\w+?)_op\.(?:cc|h|cu)\b")


def rows() -> Iterator[Row]:
    """The rows of this table, then the operators of 2017 that ours name as their source."""
    yield from read("Paddle", _ROWS)
    for name in method_types():
        for theirs in dict.fromkeys(_SOURCE.findall(lookup(name).source)):
            yield Row("Paddle", f"paddle/operators/{theirs}_op", f"b.{name}", "")
