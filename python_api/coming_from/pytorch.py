# ruff: noqa: E501  (an entry is a line)
"""PyTorch's names; operators come from `operators/names.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...operators.names import Name, table
from .rows import Row, read

_ROWS: Final = """
nn.Module | opscope.NetBuilder | a net is a list of operators; a Python function that calls `b` takes the place of a class
nn.Module.forward | b.run | `fetch=[...]` names the variables to read
nn.Module.train | opscope.train | a run with `need_backward=True` is in the training phase
nn.Module.eval | b.predict | runs in the test phase
nn.Module.parameters | b.net | `b.net.vars`; `b.summary()` prints shapes and counts
nn.Module.state_dict | opscope.Scope | a scope holds the values of variables by name
nn.Module.load_state_dict | opscope.load_parameters |
nn.Module.requires_grad_ | b.parameter | `trainable=False` of a layer keeps its parameters
nn.Module.register_buffer | b.state |
nn.Module.register_forward_hook | opscope.framework.base.context.Hook | `hooks=[...]` of `opscope.train` and of `b.run`
nn.Parameter | b.parameter |
nn.Sequential | b.fc | call one layer after the other; each takes the variable of the one before
nn.Linear | b.fc | weights are [inputs, outputs], the transpose of PyTorch's
nn.Bilinear | b.einsum |
nn.Identity | b.assign |
nn.Flatten | b.flatten |
nn.Unflatten | b.reshape |
nn.Embedding | b.embedding |
nn.EmbeddingBag | b.sequence_pool | of the rows that `b.embedding` gives
nn.Conv1d | b.conv1d | `filters` is out_channels; the channels of x are known
nn.Conv2d | b.conv2d | `filters` is out_channels; `padding="same"` works with any stride
nn.Conv3d | b.conv3d |
nn.ConvTranspose1d | b.conv_transpose1d |
nn.ConvTranspose2d | b.conv_transpose2d |
nn.ConvTranspose3d | b.conv_transpose3d |
nn.MaxPool1d | b.max_pool1d |
nn.MaxPool2d | b.max_pool2d |
nn.MaxPool3d | b.max_pool3d |
nn.AvgPool1d | b.avg_pool1d |
nn.AvgPool2d | b.avg_pool2d |
nn.AvgPool3d | b.avg_pool3d |
nn.AdaptiveAvgPool1d | b.adaptive_avg_pool1d |
nn.AdaptiveAvgPool2d | b.adaptive_avg_pool2d |
nn.AdaptiveAvgPool3d | b.adaptive_avg_pool3d |
nn.AdaptiveMaxPool1d | b.adaptive_max_pool1d |
nn.AdaptiveMaxPool2d | b.adaptive_max_pool2d |
nn.AdaptiveMaxPool3d | b.adaptive_max_pool3d |
nn.BatchNorm1d | b.batch_norm |
nn.BatchNorm2d | b.batch_norm |
nn.BatchNorm3d | b.batch_norm |
nn.SyncBatchNorm | b.batch_norm | with `sync_batch_norm=True` of `opscope.train`
nn.LayerNorm | b.layer_norm |
nn.GroupNorm | b.group_norm |
nn.InstanceNorm2d | b.instance_norm |
nn.RMSNorm | b.rms_norm |
nn.LocalResponseNorm | b.lrn |
nn.Dropout | b.dropout |
nn.Dropout2d | b.dropout | `channels=True`
nn.{ReLU ReLU6 LeakyReLU PReLU ELU CELU SELU SiLU Mish Sigmoid Tanh Softplus Softsign GLU GELU} | = |
nn.Hardtanh | b.hard_tanh |
nn.Hardsigmoid | b.hard_sigmoid | its slope is the attribute `alpha`: 1 / 6 in PyTorch, 0.2 here
nn.Hardswish | b.hard_swish |
nn.LogSigmoid | b.log_sigmoid |
nn.Softmax | b.softmax | `dim` is `axis`
nn.LogSoftmax | b.log_softmax | `dim` is `axis`
nn.RNN | b.simple_rnn | takes packed sequences; `b.sequence_unpad` makes them of a padded batch
nn.LSTM | b.lstm | takes packed sequences; returns the outputs and the last states
nn.GRU | b.gru | takes packed sequences
nn.RNNCell | b.rnn_cell | within the block of `b.recurrent`
nn.LSTMCell | b.lstm_cell | within the block of `b.recurrent`
nn.GRUCell | b.gru_cell | within the block of `b.recurrent`
nn.MultiheadAttention | b.multi_head_attention |
nn.TransformerEncoderLayer | b.transformer_encoder_layer |
nn.TransformerEncoder | b.transformer_encoder |
nn.TransformerDecoderLayer | b.transformer_decoder_layer |
nn.TransformerDecoder | b.transformer_decoder |
nn.Upsample | b.interpolate |
nn.CosineSimilarity | b.cosine_similarity |
nn.ZeroPad2d | b.pad |
nn.CrossEntropyLoss | b.cross_entropy_loss | of scores, not of probabilities; `b.softmax_cross_entropy` keeps a loss for each row
nn.NLLLoss | b.nll_loss | one loss for each row; `b.mean` of it is PyTorch's default
nn.BCEWithLogitsLoss | b.sigmoid_cross_entropy | one loss for each element; `b.mean` of it is PyTorch's default
nn.BCELoss | b.sigmoid_cross_entropy | takes the scores before the sigmoid
nn.MSELoss | b.squared_error | one loss for each element; `b.mean` of it is PyTorch's default
nn.L1Loss | b.l1_loss | one loss for each element; `b.mean` of it is PyTorch's default
nn.SmoothL1Loss | b.smooth_l1_loss | one loss for each element
nn.HuberLoss | b.huber_loss | one loss for each element
nn.KLDivLoss | b.kl_div | one loss for each element
nn.CTCLoss | b.ctc_loss | takes scores; `per_label=True` divides as the mean of PyTorch does
nn.DataParallel | opscope launch | a process for each device
nn.parallel.DistributedDataParallel | opscope launch | `opscope.train` shares the minibatches of such a run
nn.utils.clip_grad_norm_ | b.add_optimization | `clip_norm=...`
nn.utils.clip_grad_value_ | b.add_optimization | `clip_value=...`
nn.utils.rnn.pack_padded_sequence | b.sequence_unpad |
nn.utils.rnn.pad_packed_sequence | b.sequence_pad |
nn.utils.rnn.pack_sequence | opscope.Sequences |
nn.init.zeros_ | "zeros" | `init=` of a layer
nn.init.ones_ | "ones" | `init=` of a layer
nn.init.constant_ | b.fill_constant | `init=0.5` of a layer: a number fills
nn.init.uniform_ | "uniform" | `init=("uniform", {"low": -0.1, "high": 0.1})`
nn.init.normal_ | "normal" | `init=("normal", {"std": 0.02})`
nn.init.xavier_uniform_ | "xavier" |
nn.init.kaiming_normal_ | "he" |
nn.init.orthogonal_ | b.orthogonal_random | `init="orthogonal_random"`
nn.functional.one_hot | b.one_hot |
F.interpolate | b.interpolate |
F.normalize | b.normalize |
F.cosine_similarity | b.cosine_similarity |
F.binary_cross_entropy_with_logits | b.sigmoid_cross_entropy | one loss for each element
F.cross_entropy | b.cross_entropy_loss |
F.dropout | b.dropout |
optim.SGD | "sgd" | `"momentum"` and `"nesterov"` are optimizers of their own
optim.Adam | "adam" |
optim.AdamW | "adamw" |
optim.Adamax | "adamax" |
optim.NAdam | "nadam" |
optim.RAdam | "radam" |
optim.Adagrad | "adagrad" |
optim.Adadelta | "adadelta" |
optim.RMSprop | "rmsprop" |
optim.LBFGS | "lbfgs" | without line search
optim.Optimizer.zero_grad | b.backward_from | not needed: each run computes new gradients
optim.Optimizer.step | b.run | updates are operators of the net; `need_backward=True` runs them
optim.lr_scheduler.StepLR | b.lr_step_decay | steps, not epochs, are counted
optim.lr_scheduler.MultiStepLR | b.lr_piecewise |
optim.lr_scheduler.ExponentialLR | b.lr_exponential_decay |
optim.lr_scheduler.CosineAnnealingLR | b.lr_cosine |
optim.lr_scheduler.LinearLR | b.lr_linear_warmup |
optim.lr_scheduler.PolynomialLR | b.lr_polynomial_decay |
optim.lr_scheduler.ConstantLR | b.lr_constant |
Tensor.backward | b.backward_from | appends gradient operators, once, before the first run
Tensor.grad | b.gradient | the name of the variable that holds a gradient
Tensor.detach | b.stop_gradient |
Tensor.to | b.cast | for a dtype; a scope has the place: `opscope.Scope(opscope.GPUPlace(0))`
Tensor.cuda | opscope.GPUPlace | the place of a scope
Tensor.numpy | opscope.Scope.numpy |
Tensor.view | b.reshape |
Tensor.size | b.shape_of | of a variable when the net runs; `b.net.vars` has what is known before
Tensor.repeat | b.tile |
Tensor.masked_fill | b.where |
torch.manual_seed | opscope.OpContext | `seed=` of `opscope.train` and of `b.run`
torch.no_grad | b.predict | `need_backward=False` of `b.run` does the same
torch.set_num_threads | opscope.set_threads |
torch.device | opscope.CPUPlace, opscope.GPUPlace |
torch.save | opscope.save | writes NAME.pb and NAME.safetensors; nothing is pickled
torch.load | opscope.load |
torch.export.export | opscope.from_torch | the exported program becomes a net here
torch.onnx.export | opscope.to_onnx |
torch.compile | b.run | not needed: a net is compiled at its first run
torch.autocast | opscope.to_half |
torch.amp.GradScaler | opscope.LossScale |
torch.autograd.grad | b.backward_from |
torch.utils.data.DataLoader | opscope.Minibatches | arrays by name; any iterable of dictionaries works too
torch.utils.data.TensorDataset | opscope.Minibatches |
torch.profiler.profile | opscope.profile |
torch.jit.save | opscope.save |
torch.quantization.quantize_dynamic | opscope.quantize |
torch.stack | b.stack |
torch.squeeze | b.squeeze |
torch.unsqueeze | b.unsqueeze |
torch.flatten | b.flatten |
torch.tile | b.tile |
torch.flip | b.flip |
torch.roll | b.roll |
torch.repeat_interleave | b.repeat_interleave |
torch.gather | b.take_along_axis | `b.gather` is PyTorch's index_select
torch.scatter | b.put_along_axis |
torch.index_add | b.scatter_add |
torch.sort | b.sort |
torch.argsort | b.argsort |
torch.std | b.reduce_std |
torch.var | b.reduce_var |
torch.tril | b.tril |
torch.triu | b.triu |
torch.diag | b.diag |
torch.eye | b.eye |
torch.arange | b.arange |
torch.linspace | b.linspace |
torch.meshgrid | b.meshgrid |
torch.zeros | b.fill_constant | `value=0.0`
torch.full | b.fill_constant |
torch.zeros_like | b.fill_like | `value=0.0`
torch.full_like | b.fill_like |
torch.rand | b.uniform_random |
torch.randn | b.gaussian_random |
torch.rand_like | b.rand_like |
torch.randn_like | b.randn_like |
torch.bernoulli | b.bernoulli |
torch.broadcast_to | b.expand |
torch.linalg.norm | b.norm |
torch.distributed.all_reduce | b.all_reduce |
torch.distributed.all_gather | b.all_gather |
torch.distributed.broadcast | b.broadcast |
"""

_METHODS: Final = frozenset({"to"})
"""Names of the table of operators that are methods of tensors alone."""


def rows() -> Iterator[Row]:
    """The rows of this table, then those that `operators/names.py` gives and this lacks."""
    written = list(read("PyTorch", _ROWS))
    yield from written
    known = {row.theirs for row in written}
    for op_type, names in table().items():
        found = names.get("torch")
        if found is not None and found.read and (theirs := _written(found)) not in known:
            yield Row("PyTorch", theirs, f"b.{op_type}", _note(found))


def _written(name: Name) -> str:
    """An operator as a program of PyTorch has it: infix signs are called by their function."""
    if "." in name.name:
        return name.name
    word = name.read[0]
    return f"{'Tensor' if word in _METHODS else 'torch'}.{word}"


def _note(name: Name) -> str:
    if not name.is_plain:
        return "its arguments differ"
    renamed = [f"`{theirs}` is `{ours}`" for theirs, ours in name.attrs.items() if theirs != ours]
    return ", ".join([*renamed, *(f"`{key}={value!r}`" for key, value in name.fixed.items())])
