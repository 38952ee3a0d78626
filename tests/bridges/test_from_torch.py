"""Programs of torch.export run here as they do in PyTorch, as one net for sizes that vary, too."""

from __future__ import annotations

import functools
import operator
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import opscope
from opscope import FormatError, NetBuilder, OpscopeError, ShapeError, from_torch

torch = pytest.importorskip("torch", reason="torch is not installed")
nn, F = torch.nn, torch.nn.functional
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("torch.export is older than 2.6", allow_module_level=True)


class Fn(nn.Module):
    """A function, beside layers it may use."""

    def __init__(self, function: Callable[..., Any], *layers: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self._function = function

    def forward(self, *args: Any) -> Any:
        return self._function(*self.layers, *args)


class Residual(nn.Module):
    """A small convolutional net with a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.a = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.b = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.short = nn.Conv2d(8, 16, 1, stride=2)
        self.out = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.stem(x))
        y = F.relu(self.bn(self.a(x)), inplace=True)
        y = F.relu(self.b(y) + self.short(x))
        return self.out(F.adaptive_avg_pool2d(y, 1).flatten(1))


class Tagger(nn.Module):
    """Words to tags by an LSTM both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 6, padding_idx=0)
        self.lstm = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(10, 4)

    def forward(self, words: Any) -> Any:
        return F.log_softmax(self.tags(self.lstm(self.words(words))[0]), -1)


class Words(nn.Module):
    """A small language model: positions, a mask and a first token of sizes that vary."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, 8), nn.Embedding(30, 8)
        self.first = nn.Parameter(torch.randn(1, 1, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, ids: Any) -> Any:
        rows, count = ids.shape
        hidden = self.words(ids) + self.places(torch.arange(count))
        hidden = torch.cat([self.first.expand(rows, -1, -1), hidden], 1)[:, :-1]
        mask = torch.full((count, count), float("-inf")).triu(1)
        seen = torch.ones(count, dtype=torch.bool)
        hidden = self.layer(hidden, src_mask=mask) * seen[:, None] + hidden.new_zeros(rows, 1, 8)
        return hidden @ self.words.weight.T


class Places(nn.Module):
    """Places from a table that the state dict does not hold, and numbers set in a part."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(1, 12, 4), persistent=False)
        self.scale = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x: Any) -> Any:
        y = x + self.table[:, : x.shape[1]] * self.scale
        y[:, :, 0] = 0.5
        y[..., 2:] = x[..., :2]
        return y * torch.tensor(2.0)


class Tied(nn.Module):
    """A table that looks words up and tells them again."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.out = nn.Linear(6, 11)
        self.out.weight = self.words.weight

    def forward(self, ids: Any) -> Any:
        return {"hidden": self.words(ids), "scores": self.out(self.words(ids))}


def mlp() -> Any:
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.2),
                         nn.Linear(16, 3))  # fmt: skip


def x(*dims: int) -> Callable[[int, int], Any]:
    """Draws an array: -1 is the batch, -2 time."""
    return lambda n, t: torch.randn([n if d == -1 else t if d == -2 else d for d in dims])


def ids(most: int, *dims: int) -> Callable[[int, int], Any]:
    return lambda n, t: torch.randint(
        0, most, [n if d == -1 else t if d == -2 else d for d in dims]
    )


E = nn.TransformerEncoderLayer
CASES: dict[str, tuple[Any, list[Any]]] = {
    "mlp": (mlp, [x(-1, 6)]),
    "mlp_of_time": (mlp, [x(-1, -2, 6)]),
    "residual": (Residual, [x(-1, 3, 8, 10)]),
    "encoder": (lambda: E(8, 2, 12, batch_first=True), [x(-1, -2, 8)]),
    "encoder_norm_first": (lambda: E(8, 2, 12, norm_first=True, activation="gelu"), [x(-2, -1, 8)]),
    "decoder": (lambda: nn.TransformerDecoderLayer(8, 2, 12, batch_first=True),
                [x(-1, -2, 8), x(-1, 4, 8)]),
    "tagger": (Tagger, [ids(20, -1, 5)]),
    "tied": (Tied, [ids(11, -1, -2)]),
    "table": (Places, [x(-1, -2, 4)]),
    "words": (Words, [ids(20, -1, -2)]),
    "gru": (lambda: nn.GRU(3, 4, 2, bidirectional=True), [x(6, 3, 3)]),
    "lstm_projection": (lambda: nn.LSTM(3, 5, proj_size=2), [x(4, 2, 3)]),
    "lstm_state": (lambda: nn.LSTM(3, 5, batch_first=True), [x(-1, 4, 3)]),
    "rnn": (lambda: nn.RNN(3, 4, nonlinearity="relu", batch_first=True), [x(-1, 5, 3)]),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=2, dilation=2), [x(-1, 4, -2)]),
    "conv1d_same": (lambda: nn.Conv1d(4, 6, 4, padding="same"), [x(-1, 4, -2)]),
    "conv_depthwise": (lambda: nn.Conv1d(4, 8, 5, groups=4, stride=2), [x(-1, 4, 12)]),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), [x(-1, 2, 4, 5, 3)]),
    "conv_transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), [x(-1, 3, 4, 5)]),
    "conv_transposed1d": (lambda: nn.ConvTranspose1d(4, 6, 4, 2, groups=2), [x(-1, 4, 5)]),
    "conv_unbatched": (lambda: nn.Conv2d(3, 4, 3), [x(3, 6, 5)]),
    "batch_norm": (lambda: nn.BatchNorm1d(5), [x(-1, 5, -2)]),
    "group_norm": (lambda: nn.GroupNorm(2, 6), [x(-1, 6, 4)]),
    "instance_norm": (lambda: nn.InstanceNorm2d(3, affine=True), [x(-1, 3, 4, 5)]),
    "rms_norm": (lambda: nn.RMSNorm(6), [x(-1, -2, 6)]),
    "pools": (lambda: Fn(lambda x: (F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2, ceil_mode=True),
                                    F.adaptive_max_pool2d(x, (2, 3)))), [x(-1, 3, 7, 9)]),
    "adaptive_pools": (lambda: Fn(lambda x: (F.adaptive_avg_pool1d(x, 4), F.max_pool1d(x, 2))),
                       [x(-1, 3, 10)]),
    "activations": (lambda: Fn(lambda x: torch.stack([
        F.elu(x), F.selu(x), F.celu(x, 0.7), F.silu(x), F.mish(x), F.softplus(x), F.hardswish(x),
        F.hardsigmoid(x), F.hardtanh(x), F.relu6(3 * x), F.leaky_relu(x, 0.2), F.softsign(x),
        F.logsigmoid(x), F.tanhshrink(x), F.softshrink(x, 0.3), F.hardshrink(x, 0.3),
        F.threshold(x, 0.1, -2.0), F.gelu(x, approximate="tanh")])), [x(-1, 6)]),
    "prelu_glu": (lambda: Fn(lambda p, x: F.glu(p(x), 1), nn.PReLU(4)), [x(-1, 4, 3)]),
    "functions": (lambda: Fn(lambda x: torch.cat([
        x.exp(), (x.abs() + 1).log(), x.sin().cos(), x.erf(), x.square().sqrt(), x.sign(),
        x.floor() + x.ceil() - x.round() * x.trunc(), x.expm1(), x.abs().log1p(), x.atan(),
        x.reciprocal(), (x * x + 1).rsqrt(), x.neg()], 1)), [x(-1, 4)]),
    "arithmetic": (lambda: Fn(lambda x, y: (x + 2 * y - 1, 3 - x / (y.abs() + 1), x**2,
        x.abs()**0.3, x // 0.4, x % 0.7, torch.maximum(x, y), torch.fmod(x, 0.6),
        torch.add(x, y, alpha=0.5),
        torch.addcmul(x, x, y, value=0.3), torch.lerp(x, y, 0.4), torch.clamp(x, min=-0.5),
        torch.clamp(x, -0.2, 0.4), torch.atan2(x, y), torch.div(x, 0.3, rounding_mode="trunc"))),
        [x(-1, 4), x(-1, 4)]),
    "whole_numbers": (lambda: Fn(lambda i: (i + 1, i * i, i // 3, i % 3, i / 2, i.float() * 0.5,
        i.sum(), i.clamp(1, 4), i > 2, i.cumsum(1))), [ids(9, -1, 4)]),
    "comparisons": (lambda: Fn(lambda x, y: (x > y, (x <= 0.1) & (y != x), ~(x == y) | (x < 0),
        torch.where(x > 0, x, y), torch.where(x > 0, x, 0.0), x.masked_fill(y < 0, -1e9),
        torch.isnan(x), torch.logical_xor(x > 0, y > 0))), [x(-1, 4), x(-1, 4)]),
    "reductions": (lambda: Fn(lambda x: (x.sum(), x.mean(1), x.amax((1, 2), keepdim=True), x.var(2),
        x.std(unbiased=False), x.prod(1), torch.logsumexp(x, 2), x.max(1)[0], x.min(2).indices,
        x.norm(dim=1), x.argmax(-1), (x > 0).any(1), (x > 0).all(), x.max(), x.argmin(),
        F.normalize(x, dim=1), F.cosine_similarity(x, x.flip(1), 2),
        torch.var_mean(x, 1))), [x(-1, 4, 3)]),
    "shapes": (lambda: Fn(lambda x: (x.view(x.shape[0], 2, 2, -1), x.permute(2, 0, 1), x.flatten(1),
        x.unsqueeze(1).squeeze(1), x.transpose(0, 1).reshape(4, -1), x.mT, x.movedim(0, 2),
        x.unflatten(1, (2, 2)), x.repeat(1, 2, 1), x.repeat_interleave(2, 2),
        x.expand(2, -1, -1, -1), x.flip(1), x.roll(1, 2), torch.tril(x),
        x[:, None].expand(-1, 3, -1, -1))),
        [x(-1, 4, 6)]),
    "cutting": (lambda: Fn(lambda x: (x[:, 1:3], x[..., -1], x[:, ::2], x[0], *x.split(3, 1),
        *x.chunk(2, 2), *x.unbind(2), x.narrow(1, 1, 2), x[:, -2:], x[:, :, [0, 2, 1]],
        F.pad(x, (1, 2)), F.pad(x, (1, 1), mode="reflect"), F.pad(x, (2, 0), mode="replicate"),
        F.pad(x, (-1, 1, 0, 2), value=3.0))), [x(-1, 5, 3)]),
    "joining": (lambda: Fn(lambda x, y: (torch.cat([x, y], 1), torch.stack([x, y], 2),
        torch.cat([x, y.new_zeros(2, 4)], 0))), [x(-1, 4), x(-1, 4)]),
    "choosing": (lambda: Fn(lambda x, i: (x.gather(1, i), x.index_select(1, i[0]), x.topk(2, 1)[0],
        x.topk(2, 1, largest=False).indices, x.sort(1, descending=True)[0], x.argsort(1),
        torch.take_along_dim(x, i, 1), x.cumsum(1), x.cumprod(1), x[:, i[0]],
        F.one_hot(i, 5).float(), x.scatter_add(1, i[:, :1], x[:, :1]))), [x(3, 5), ids(5, 3, 4)]),
    "places": (lambda: Fn(lambda x: (x[torch.arange(3), torch.tensor([1, 0, 2])],
        x + torch.arange(5) * 0.5, torch.ones(3, 5).triu() * x, torch.linspace(0, 1, 5) - x)),
        [x(3, 5)]),
    "products": (lambda: Fn(lambda x, y: (x @ y.mT, torch.einsum("btk,bsk->bts", x, y),
        torch.bmm(x, y.transpose(1, 2)), x @ y[0].T, torch.baddbmm(x @ y.mT, x, y.mT, alpha=0.5))),
        [x(-1, 4, 3), x(-1, 5, 3)]),
    "matrices": (lambda: Fn(lambda x, y: (torch.mm(x, y), torch.addmm(y[0], x, y, beta=0.5),
        x @ y[:, 0], torch.outer(x[:, 0], y[0]))), [x(3, 4), x(4, 5)]),
    "bilinear": (lambda: nn.Bilinear(3, 4, 5), [x(-1, 3), x(-1, 4)]),
    "attention": (lambda: Fn(lambda q, k: (F.scaled_dot_product_attention(q, k, k, is_causal=True),
        F.scaled_dot_product_attention(q, k, k, q[0, 0] @ k[0, 0].T, scale=0.3))),
        [x(-1, 2, -2, 4), x(-1, 2, -2, 4)]),
    "attention_weights": (lambda: Fn(lambda a, x: a(x, x, x), nn.MultiheadAttention(
        8, 2, batch_first=True)), [x(-1, -2, 8)]),
    "masked_attention": (lambda: Fn(lambda a, x: a(x, x, x, attn_mask=torch.ones(5, 5).tril() == 0,
        need_weights=False)[0], nn.MultiheadAttention(8, 2, batch_first=True)), [x(-1, 5, 8)]),
    "interpolate": (lambda: Fn(lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(
        x, size=(5, 7), mode="bilinear"), F.interpolate(x, scale_factor=1.5, mode="bilinear",
        align_corners=True), F.pixel_shuffle(x, 2))), [x(-1, 4, 4, 6)]),
    "softmax": (lambda: Fn(lambda x: (x.softmax(1), x.log_softmax(-1), F.softmin(x, 1))),
                [x(-1, 4, 3)]),
    "losses": (lambda: Fn(lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y, reduction="sum"),
        F.smooth_l1_loss(x, y), F.huber_loss(x, y, delta=0.5), F.kl_div(x, y.softmax(1),
        reduction="batchmean"), F.binary_cross_entropy_with_logits(x, y.sigmoid()),
        F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), F.cross_entropy(x, y.softmax(1)))),
        [x(-1, 4), x(-1, 4)]),
    "class_losses": (lambda: Fn(lambda x, i: (F.cross_entropy(x, i),
        F.nll_loss(x.log_softmax(1), i),
        F.cross_entropy(x, i, torch.tensor([1.0, 2.0, 0.5, 3.0])), F.cross_entropy(
        x, i, label_smoothing=0.1), F.cross_entropy(x, i, ignore_index=1, reduction="none"),
        F.nll_loss(x.log_softmax(1), i, torch.tensor([1.0, 2.0, 0.5, 3.0]), ignore_index=2))),
        [x(-1, 4), ids(4, -1)]),
    "embedding": (lambda: nn.Embedding(9, 4, padding_idx=2), [ids(9, -1, -2)]),
}  # fmt: skip


def export(module: Any, inputs: list[Any], *, dynamic: Any = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module, tuple(inputs), dynamic_shapes=dynamic)


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [one for each in value for one in flat(each)]
    return [value.numpy()]


def dims_of(draws: list[Any]) -> tuple[Any, ...]:
    """What may vary: dimensions whose size follows the batch or the time."""
    one, other = ([draw(*sizes).shape for draw in draws] for sizes in ((3, 7), (4, 8)))
    auto = torch.export.Dim.AUTO
    return tuple(
        {k: auto for k, (p, q) in enumerate(zip(a, b, strict=True)) if p != q}
        for a, b in zip(one, other, strict=True)
    )


@functools.cache
def loaded(name: str) -> tuple[Any, list[Any], Any, Any]:
    """The module, what draws its inputs, the program, and the program here."""
    make, draws = CASES[name]
    torch.manual_seed(0)
    module = make().eval()
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 2.0)
    inputs = [draw(3, 7) for draw in draws]
    dynamic = dims_of(draws)
    if isinstance(module, Fn):
        dynamic = (dynamic,)
    program = export(module, inputs, dynamic=dynamic)
    return module, draws, program, from_torch(program)


def assert_same(found: dict[str, Any], wanted: Any) -> None:
    wanted = flat(wanted)
    assert len(found) == len(wanted)
    for name, array in zip(found, wanted, strict=True):
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        np.testing.assert_allclose(found[name], array, atol=1e-5, rtol=1e-5, err_msg=name)


def fed(model: Any, inputs: list[Any]) -> dict[str, Any]:
    return dict(zip((info.name for info in model.inputs), (i.numpy() for i in inputs), strict=True))


def varies(model: Any) -> bool:
    return any(isinstance(dim, str) for info in model.inputs for dim in info.shape or ())


@pytest.mark.parametrize("name", CASES)
def test_outputs(name: str) -> None:
    module, draws, program, model = loaded(name)
    assert model.parameters.keys() <= set(program.state_dict)
    inputs = [draw(3, 7) for draw in draws]
    sizes = [(3, 7)] + ([(5, 7)] if varies(model) else [])
    for size in sizes:
        inputs = [draw(*size) for draw in draws]
        with torch.no_grad():
            wanted = module(*inputs)
        assert_same(model.run(fed(model, inputs)), wanted)
    assert model.is_one_net(fed(model, inputs))


FIXED = {"losses"}
"""Cases in which a size that varies is a number of the computation."""


@pytest.mark.parametrize("name", CASES)
def test_one_net(name: str, tmp_path: Any) -> None:
    """The net of all sizes that vary, saved and loaded."""
    module, draws, _, model = loaded(name)
    shapes = {}
    if name in FIXED:
        with pytest.raises(ShapeError, match="cannot vary: it is part of the operator 'div'"):
            model.op_list()
        shapes = {
            info.name: draw(3, 7).shape for info, draw in zip(model.inputs, draws, strict=True)
        }
    model.save(tmp_path / "net", shapes)
    net = opscope.load(tmp_path / "net")
    for size in [(3, 7)] + ([(6, 7)] if varies(model) and not shapes else []):
        inputs = [draw(*size) for draw in draws]
        with torch.no_grad():
            wanted = module(*inputs)
        found = net.predict(fed(model, inputs))
        assert_same({info.name: found[info.name] for info in model.outputs}, wanted)


@pytest.mark.parametrize("name", ["residual", "encoder", "class_losses", "cutting"])
def test_decomposed_programs(name: str) -> None:
    """Programs in core operators give the same."""
    make, draws = CASES[name]
    module, inputs = make().eval(), [draw(3, 7) for draw in draws]
    model = from_torch(export(module, inputs).run_decompositions())
    with torch.no_grad():
        assert_same(model.run(fed(model, inputs)), module(*inputs))


# -- training --------------------------------------------------------------------------------------


def trained_there(module: Any, batches: list[tuple[Any, Any]], rate: float) -> list[float]:
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    losses = []
    for x, label in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(module(x).flatten(0, -2), label.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained_here(model: Any, batches: list[tuple[Any, Any]], rate: float) -> list[float]:
    b = NetBuilder.from_desc(model.op_list())
    label = b.input("label", [-1] * batches[0][1].ndim, "int64")
    loss = b.mean(b.softmax_cross_entropy(b.var("output"), label), name="loss")
    b.backward_from(loss)
    b.add_optimization(rate, "sgd")
    name = model.inputs[0].name
    return [
        float(
            b.run(model.scope, feed={name: x.numpy(), "label": y.numpy()}, fetch=["loss"])["loss"]
        )
        for x, y in batches
    ]


@pytest.mark.parametrize("name", ["mlp", "residual", "tagger", "encoder", "batch_norm"])
def test_training(name: str) -> None:
    """Five steps give the losses, parameters and statistics that they give in PyTorch."""
    torch.manual_seed(0)
    if name == "batch_norm":
        module = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
        ).train()
        draw = x(-1, 6)
    else:
        make, (draw,) = CASES[name]
        module = make().eval()
    first = draw(4, 6)
    program = export(module, [first], dynamic=({0: torch.export.Dim.AUTO},))
    model = from_torch(program)
    batches = []
    for rows in (4, 3, 6, 4, 5):
        given = draw(rows, 6)
        shape = module.eval()(given).shape
        batches.append((given, torch.randint(0, shape[-1], shape[:-1])))
    module.train(name == "batch_norm")
    ours = trained_here(model, batches, 0.1)
    np.testing.assert_allclose(ours, trained_there(module, batches, 0.1), rtol=2e-5)
    state = module.state_dict()
    for key, array in {**model.parameters, **model.buffers}.items():
        np.testing.assert_allclose(array, state[key].numpy(), atol=2e-5, err_msg=key)
    module.eval()
    with torch.no_grad():
        assert_same(model.run({model.inputs[0].name: first.numpy()}), module(first))


def test_frozen_parameters_stay() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).eval()
    module[0].requires_grad_(False)
    model = from_torch(export(module, [torch.randn(2, 3)]))
    assert set(model.parameters) == {"1.weight", "1.bias"}
    assert set(model.buffers) == {"0.weight", "0.bias"}
    before = model.buffers["0.weight"]
    trained_here(model, [(torch.randn(2, 3), torch.tensor([0, 1]))] * 2, 0.5)
    np.testing.assert_array_equal(model.buffers["0.weight"], before)


def test_dropout_of_training() -> None:
    """Exported in training form it drops in training alone."""
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train()
    model = from_torch(export(module, [torch.randn(2, 4)]))
    assert "dropout" in [op.type for op in model.op_list().ops]
    given = torch.randn(2, 4)
    with torch.no_grad():
        assert_same(model.run({"input": given.numpy()}), module.eval()(given))


def test_tied_weights() -> None:
    _, _, program, model = loaded("tied")
    names = {"words.weight", "out.weight"}
    assert names <= set(program.state_dict)
    assert len(names & set(model.parameters)) == 1
    assert list(model.run({model.inputs[0].name: np.zeros((2, 3), np.int64)})) == [
        "hidden",
        "scores",
    ]


# -- shapes ----------------------------------------------------------------------------------------


def test_time_and_batch_vary() -> None:
    module, _, _, model = loaded("encoder")
    net = model.op_list()
    spec = next(var for var in net.vars if var.name == model.inputs[0].name)
    assert spec.shape == (-1, -1, 8)
    assert {op.type for op in net.ops} >= {"scaled_dot_product_attention", "layer_norm", "matmul"}
    b = NetBuilder.from_desc(net)
    for rows, steps in ((1, 2), (5, 13)):
        given = torch.randn(rows, steps, 8)
        found = b.run(model.scope, feed={model.inputs[0].name: given.numpy()}, fetch=["output"])
        with torch.no_grad():
            np.testing.assert_allclose(found["output"], module(given).numpy(), atol=1e-5)


def test_shapes_given() -> None:
    model = from_torch(export(mlp().eval(), [torch.randn(3, 6)], dynamic=({0: torch.export.Dim(
        "rows", min=2, max=9)},)))  # fmt: skip
    name = model.inputs[0].name
    assert model.op_list({name: (4, 6)}).vars[0].shape == (4, 6)
    assert model.op_list({name: (-1, 6)}).vars[0].shape == (-1, 6)
    for shape, text in (((4, 7), "not"), ((4,), "not"), ((10, 6), "range 2 to 9")):
        with pytest.raises(ShapeError, match=text):
            model.op_list({name: shape})
    with pytest.raises(ShapeError, match="fed was"):
        model.run({name: np.zeros((3, 7), np.float32)})


# -- what is refused -------------------------------------------------------------------------------


class Strange(nn.Module):
    """Operators of which nothing here computes any."""

    def forward(self, x: Any) -> Any:
        return torch.linalg.svdvals(x), torch.nonzero(x), torch.fft.rfft(x)


def test_unknown_operators_are_named_at_once() -> None:
    with pytest.raises(FormatError) as told:
        from_torch(export(Strange(), [torch.randn(3, 3)]))
    text = str(told.value)
    for name in ("svd", "aten.nonzero.default: node 'nonzero'", "fft"):
        assert name in text
    line = Strange.forward.__code__.co_firstlineno + 1
    assert text.count(f"test_from_torch.py:{line}") == 3


def test_arguments_that_are_not_supported() -> None:
    program = export(Fn(lambda x: F.max_pool1d(x, 2, dilation=2)), [torch.randn(1, 2, 8)])
    with pytest.raises(FormatError, match=r"max_pool1d.*test_from_torch.py:\d+.*dilated"):
        from_torch(program).run({"args_0": np.zeros((1, 2, 8), np.float32)})


def test_changed_buffers_are_refused() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.count.add_(x)
            return self.count * 2

    with pytest.raises(FormatError, match="buffer 'count' is changed"):
        from_torch(export(Counts(), [torch.randn(3)]))


def test_what_is_no_program() -> None:
    for given, text in (
        ("model.pt2", "torch.export.load"),
        (nn.Linear(2, 2), "export it first"),
        (operator, "module is no ExportedProgram"),
    ):
        with pytest.raises(OpscopeError, match=text):
            from_torch(given)


def test_changes_in_place() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        y[:, 0].add_(1)
        return y.mul_(3)

    given = torch.randn(2, 3)
    model = from_torch(export(Fn(function), [given]))
    assert_same(model.run({"args_0": given.numpy()}), function(given))


def test_torch_is_not_imported() -> None:
    code = (
        "import sys, opscope; from opscope.bridges.torch.importing import program;"
        " opscope.from_torch; sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
