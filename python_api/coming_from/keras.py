# ruff: noqa: E501  (an entry is a line)
"""Keras' names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .rows import Row, read

_ROWS: Final = """
keras.Model | opscope.NetBuilder |
keras.Sequential | opscope.NetBuilder | call one layer after the other; each takes the variable of the one before
keras.Input | b.input | the shape includes the batch: `[-1, 784]`
keras.Model.compile | b.backward_from, b.add_optimization |
keras.Model.fit | opscope.train |
keras.Model.evaluate | b.predict | `evaluate=data` of `opscope.train` measures after each epoch
keras.Model.predict | b.predict |
keras.Model.predict_on_batch | b.run |
keras.Model.train_on_batch | b.run | `need_backward=True`
keras.Model.summary | opscope summary | `b.summary()` in Python
keras.Model.save | opscope.save |
keras.Model.save_weights | opscope.save |
keras.Model.load_weights | opscope.load_parameters |
keras.Model.get_weights | opscope.Scope.numpy |
keras.Model.trainable_weights | b.net | `b.net.vars`
keras.Model.export | opscope.to_onnx |
keras.saving.load_model | opscope.load |
keras.utils.plot_model | opscope view |
keras.utils.set_random_seed | opscope.train | `seed=...`
keras.utils.to_categorical | b.one_hot | losses take whole numbers, so that it is rarely needed
keras.utils.PyDataset | opscope.Minibatches |
keras.preprocessing.sequence.pad_sequences | b.sequence_pad | rarely needed: layers over sequences take ragged batches
keras.mixed_precision.set_global_policy | opscope.to_half |
keras.mixed_precision.LossScaleOptimizer | opscope.LossScale |
keras.layers.Dense | b.fc | `units` is `size`
keras.layers.Embedding | b.embedding |
keras.layers.Flatten | b.flatten |
keras.layers.Reshape | b.reshape | the shape includes the batch
keras.layers.Permute | b.transpose | axes count from 0 and include the batch
keras.layers.RepeatVector | b.repeat_interleave |
keras.layers.Lambda | b.add_op | operators of the net; a new operator is a function and a table entry
keras.layers.Masking | opscope.Sequences | ragged batches need no mask
keras.layers.Activation | b.relu | a method of `b`, or `activation="relu"` of a layer
keras.layers.{ReLU ELU PReLU LeakyReLU Softmax} | = |
keras.layers.Conv1D | b.conv1d | [N, C, L]: channels come first
keras.layers.Conv2D | b.conv2d | [N, C, H, W]: channels come first
keras.layers.Conv3D | b.conv3d | channels come first
keras.layers.Conv1DTranspose | b.conv_transpose1d |
keras.layers.Conv2DTranspose | b.conv_transpose2d |
keras.layers.Conv3DTranspose | b.conv_transpose3d |
keras.layers.DepthwiseConv2D | b.conv2d | `groups` is the number of channels
keras.layers.SeparableConv2D | b.conv2d | two of them: `groups` is the number of channels, then `kernel=1`
keras.layers.MaxPooling1D | b.max_pool1d |
keras.layers.MaxPooling2D | b.max_pool2d |
keras.layers.MaxPooling3D | b.max_pool3d |
keras.layers.AveragePooling1D | b.avg_pool1d |
keras.layers.AveragePooling2D | b.avg_pool2d |
keras.layers.AveragePooling3D | b.avg_pool3d |
keras.layers.GlobalAveragePooling2D | b.global_avg_pool | spatial axes stay, with size 1
keras.layers.GlobalMaxPooling2D | b.global_max_pool | spatial axes stay, with size 1
keras.layers.ZeroPadding2D | b.pad |
keras.layers.Cropping2D | b.slice |
keras.layers.UpSampling2D | b.interpolate |
keras.layers.Resizing | b.interpolate |
keras.layers.BatchNormalization | b.batch_norm | `momentum` here is the share of the new value, 0.1 where Keras has 0.9
keras.layers.LayerNormalization | b.layer_norm |
keras.layers.GroupNormalization | b.group_norm |
keras.layers.RMSNormalization | b.rms_norm |
keras.layers.UnitNormalization | b.normalize |
keras.layers.Dropout | b.dropout |
keras.layers.SpatialDropout2D | b.dropout | `channels=True`
keras.layers.SimpleRNN | b.simple_rnn | takes packed sequences
keras.layers.LSTM | b.lstm | takes packed sequences; returns the outputs and the last states
keras.layers.GRU | b.gru | takes packed sequences
keras.layers.SimpleRNNCell | b.rnn_cell |
keras.layers.LSTMCell | b.lstm_cell |
keras.layers.GRUCell | b.gru_cell |
keras.layers.RNN | b.recurrent | the step is a `with` block
keras.layers.Bidirectional | b.lstm | `bidirectional=True`
keras.layers.TimeDistributed | b.fc | layers take any number of leading axes
keras.layers.MultiHeadAttention | b.multi_head_attention |
keras.layers.Attention | b.attention |
keras.layers.Add | b.add |
keras.layers.Subtract | b.sub |
keras.layers.Multiply | b.mul |
keras.layers.Average | b.mean |
keras.layers.Maximum | b.maximum |
keras.layers.Minimum | b.minimum |
keras.layers.Concatenate | b.concat |
keras.layers.Dot | b.matmul |
keras.layers.EinsumDense | b.einsum |
keras.activations.{relu relu6 sigmoid softmax log_softmax softplus softsign tanh selu elu celu mish silu glu leaky_relu hard_sigmoid hard_tanh log_sigmoid} | = |
keras.activations.gelu | b.gelu |
keras.activations.hard_silu | b.hard_swish |
keras.activations.exponential | b.exp |
keras.activations.linear | b.assign |
keras.losses.SparseCategoricalCrossentropy | b.cross_entropy_loss | of scores: `from_logits=True`
keras.losses.CategoricalCrossentropy | b.cross_entropy_loss | labels are whole numbers, or distributions
keras.losses.BinaryCrossentropy | b.sigmoid_cross_entropy | of scores: `from_logits=True`
keras.losses.BinaryFocalCrossentropy | b.sigmoid_focal_loss |
keras.losses.CategoricalFocalCrossentropy | b.softmax_focal_loss |
keras.losses.MeanSquaredError | b.squared_error | `b.mean` of it
keras.losses.MeanAbsoluteError | b.l1_loss | `b.mean` of it
keras.losses.Huber | b.huber_loss | `b.mean` of it
keras.losses.KLDivergence | b.kl_div |
keras.losses.Hinge | b.hinge_loss | labels are 0 and 1
keras.losses.CosineSimilarity | b.cosine_similarity | with the other sign
keras.losses.CTC | b.ctc_loss |
keras.metrics.Accuracy | b.accuracy | `opscope.metrics.Accuracy` counts over a whole pass
keras.metrics.SparseTopKCategoricalAccuracy | b.accuracy | `k=5`
keras.metrics.AUC | opscope.metrics.AUC |
keras.metrics.Precision | opscope.metrics.Precision |
keras.metrics.Recall | opscope.metrics.Recall |
keras.metrics.F1Score | opscope.metrics.F1 |
keras.metrics.Mean | opscope.metrics.Mean |
keras.metrics.Metric | opscope.Metric |
keras.optimizers.SGD | "sgd" | `"momentum"` and `"nesterov"` are optimizers of their own
keras.optimizers.Adam | "adam" |
keras.optimizers.AdamW | "adamw" |
keras.optimizers.Adamax | "adamax" |
keras.optimizers.Nadam | "nadam" |
keras.optimizers.Adagrad | "adagrad" |
keras.optimizers.Adadelta | "adadelta" |
keras.optimizers.RMSprop | "rmsprop" |
keras.optimizers.Lion | "lion" |
keras.optimizers.Lamb | "lamb" |
keras.optimizers.schedules.ExponentialDecay | b.lr_exponential_decay |
keras.optimizers.schedules.CosineDecay | b.lr_cosine |
keras.optimizers.schedules.PolynomialDecay | b.lr_polynomial_decay |
keras.optimizers.schedules.InverseTimeDecay | b.lr_inverse_time_decay |
keras.optimizers.schedules.PiecewiseConstantDecay | b.lr_piecewise |
keras.initializers.Zeros | "zeros" |
keras.initializers.Ones | "ones" |
keras.initializers.RandomUniform | "uniform" |
keras.initializers.RandomNormal | "normal" |
keras.initializers.GlorotUniform | "xavier" |
keras.initializers.HeNormal | "he" |
keras.initializers.Orthogonal | b.orthogonal_random |
keras.initializers.Constant | b.fill_constant | a number as `init`
keras.callbacks.Callback | opscope.Callback | `on_step` and `on_epoch`
keras.callbacks.History | opscope.History |
keras.callbacks.EarlyStopping | opscope.EarlyStop |
keras.callbacks.ModelCheckpoint | opscope.train | `checkpoint=...`
keras.callbacks.BackupAndRestore | opscope.train | `checkpoint=...` and `resume=True`
keras.callbacks.CSVLogger | opscope.train | `log_csv=...`
keras.callbacks.TerminateOnNaN | opscope.NotFiniteError | raised with the operator's name
keras.ops.{abs add argmax argmin argsort arange ceil clip concatenate cos cosh cumprod cumsum diag einsum equal erf exp expm1 eye floor flip greater greater_equal isfinite isinf isnan less less_equal linspace log log10 log1p log2 logical_and logical_not logical_or logical_xor logsumexp matmul maximum mean meshgrid minimum mod not_equal one_hot pad reciprocal repeat reshape roll round rsqrt sign sin sinh sort split sqrt square squeeze stack stop_gradient sum tan tanh tile transpose tril triu trunc where} | = |
keras.ops.{prod max min any all std var} | = |
keras.ops.take | b.gather |
keras.ops.take_along_axis | b.take_along_axis |
keras.ops.expand_dims | b.unsqueeze |
keras.ops.broadcast_to | b.expand |
keras.ops.cast | b.cast |
keras.ops.zeros | b.fill_constant |
keras.ops.full_like | b.fill_like |
keras.ops.top_k | b.top_k |
keras.ops.scatter_update | b.scatter_nd |
keras.ops.norm | b.norm |
keras.ops.normalize | b.normalize |
keras.ops.image.resize | b.interpolate |
keras.random.uniform | b.uniform_random |
keras.random.normal | b.gaussian_random |
keras.random.dropout | b.dropout |
"""


def rows() -> Iterator[Row]:
    """The rows of this table."""
    return read("Keras", _ROWS)
