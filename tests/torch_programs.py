"""Small PyTorch modules and what draws their inputs, for tests of programs of torch.export.

Import it after torch has been looked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


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


class Unseen(nn.Module):
    """Parts under `no_grad`, one between, and a tensor that is changed in place beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3))

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            y = x.sin() * self.w
            with torch.enable_grad():
                z = y * self.w
            y = y + z
        changed = x.clone()
        changed[:, 0] += 1
        return x * y + z + self.w * changed


class Blocks(nn.Module):
    """Graphs that operators call: a choice, a loop over rows, blocks cast or made again."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        layer = self.layer
        x, y = torch.cond(
            x.sum() > 0, lambda a: (layer(a), a.sin()), lambda a: (a * 2, a.cos()), (x,)
        )
        total, rows = scan(lambda c, a: (c + a, c * layer(a)), torch.ones(3), x)
        with torch.autocast("cpu", enabled=False):
            plain = layer(x).sin()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            short = (x + y).sin()
        again = checkpoint(lambda a: layer(a).tanh(), x, use_reentrant=False)
        return total, rows, plain, short, again


class Tied(nn.Module):
    """A table that looks words up and tells them again."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.out = nn.Linear(6, 11)
        self.out.weight = self.words.weight

    def forward(self, ids: Any) -> Any:
        return {"hidden": self.words(ids), "scores": self.out(self.words(ids))}


class FourierLayer(nn.Module):
    """Multiplies low frequencies of an image by complex weights, as Fourier neural operators do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 3, 4, 3, dtype=torch.cfloat))

    def forward(self, x: Any) -> Any:
        spectrum = torch.fft.rfft2(x)
        low = torch.zeros(len(x), 3, 8, 4, dtype=torch.cfloat)
        low[:, :, :4, :3] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :4, :3], self.weight)
        return torch.fft.irfft2(low, s=(8, 6))


def complex_parts(x: Any, y: Any) -> Any:
    """What does with both parts of complex numbers the same; y are real."""
    z = torch.view_as_complex(x.unflatten(-1, (3, 2)))
    moved = z.permute(0, 2, 1).transpose(0, 1).unsqueeze(-1).squeeze(-1)
    joined = torch.cat([z, z[:, :1], y.expand(len(z), 4, 3) + 0j], 1)
    chosen = torch.where(y > 0, z, 2 - 3j), z.masked_fill(y > 0, 1.5), z[:, torch.tensor([2, 0])]
    chosen += torch.where(y > 0, 0.5, z), torch.where(y > 0, 1 + 2j, 0.5), y * (2 + 0j)
    results = (
        z * y, z * 2.5, z * 1j, y * 1j, z * z.conj(), z + y, z - 1, 1 - z, torch.add(z, z, alpha=3),
        -z, z.sum(-1), z.sum(), z.mean(0), z.cumsum(1), z @ z.mT, z @ (y.mT + 0j), F.pad(z, (1, 2)),
        z.flip(0).roll(1, -1), z[:, -1, 1:], *z.split(2, 1), moved, joined, *chosen,
        z[:, :0], z.reshape(-1, 2, 6), torch.ones_like(z), torch.exp(z), z.to(torch.complex128),
    )  # fmt: skip
    numbers = z.real.to(torch.cfloat) + torch.complex(z.imag, z.real), z.contiguous()
    return *map(torch.view_as_real, (*results, *numbers)), z.abs().square(), z[:, 1:].imag


def complex_quotients(x: Any, y: Any) -> Any:
    z = torch.view_as_complex(x.unflatten(-1, (3, 2))) + (4 + 4j)
    quotients = z / y.add(9), z / (2 - 1j), y / z, z / z.mean(), 1 / z, 2j / z, y / (2 + 0j)
    real = y.angle(), torch.tensor([-0.0, torch.nan]).angle(), torch.tensor([-2, 3]).angle()
    return *map(torch.view_as_real, quotients), z.angle(), *real, *torch.unsafe_chunk(y, 2)


class Spectrogram(nn.Module):
    """Magnitudes of a signal, and the signal out of magnitudes and phases."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(8))

    def forward(self, x: Any) -> Any:
        spectrum = torch.stft(x, 8, 4, window=self.window, return_complex=True)
        loud = spectrum + 3
        power = torch.polar(loud.abs(), loud.angle()) - 3
        return spectrum.abs().square().log1p(), torch.istft(power, 8, 4, window=self.window)


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
        x.abs()**0.3, x.detach() // 0.4, x % 0.7, torch.maximum(x, y), torch.fmod(x, 0.6),
        torch.add(x, y, alpha=0.5),
        torch.addcmul(x, x, y, value=0.3), torch.lerp(x, y, 0.4), torch.clamp(x, min=-0.5),
        torch.clamp(x, -0.2, 0.4), torch.atan2(x, y), torch.div(x, 0.3, rounding_mode="trunc"))),
        [x(-1, 4), x(-1, 4)]),
    "whole_numbers": (lambda: Fn(lambda i: (i + 1, i * i, i // 3, i % 3, i / 2, i.float() * 0.5,
        i.sum(), i.clamp(1, 4), i > 2, i.cumsum(1))), [ids(9, -1, 4)]),
    "powers": (lambda: Fn(lambda x, i: (x**0, x**1, x**3, x**4, x**5, (x * x + 1)**-0.5,
        (x * x + 1)**-1, (x * x + 1)**-2, (x * x + 1)**0.5, i**0, i**1, i**2, i**3, i**5,
        (i + 1)**0.5)), [x(-1, 4), ids(9, -1, 4)]),
    "comparisons": (lambda: Fn(lambda x, y: (x > y, (x <= 0.1) & (y != x), ~(x == y) | (x < 0),
        torch.where(x > 0, x, y), torch.where(x > 0, x, 0.0), x.masked_fill(y < 0, -1e9),
        torch.isnan(x), torch.logical_xor(x > 0, y > 0))), [x(-1, 4), x(-1, 4)]),
    "reductions": (lambda: Fn(lambda x: (x.sum(), x.mean(1), x.amax((1, 2), keepdim=True), x.var(2),
        x.std(unbiased=False), x.prod(1), torch.logsumexp(x, 2), x.max(1)[0], x.min(2).indices,
        x.norm(dim=1), x.argmax(-1), (x > 0).any(1), (x > 0).all(), x.max(), x.argmin(),
        F.normalize(x, dim=1), F.cosine_similarity(x, x.flip(1), 2),
        torch.var_mean(x, 1))), [x(-1, 4, 3)]),
    "shapes": (lambda: Fn(lambda x: (x.view(x.shape[0], 2, 2, -1), x.permute(2, 0, 1), x.flatten(1),
        x.unsqueeze(1).squeeze(1), x.transpose(0, 1).reshape(4, -1), x.mT,
        x.swapaxes(0, -1), x.swapdims(1, 2), x.movedim(0, 2),
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
    "functions_of_whole": (lambda: Fn(lambda i: (torch.sign(i - 3), torch.sgn(i - 3),
        F.relu(i - 3), i.isnan(), i.isinf(), i.isfinite(), -i, (i - 3).abs(), i.square())),
        [ids(9, -1, 4)]),
    "weight_norm": (lambda: Fn(lambda a, b, x: (a(x), b(x), torch._weight_norm(x, x[:1, :1], -1)),
        nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 6, 3, groups=2), dim=2),
        nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 2, 3), dim=None)), [x(-1, 4, 7)]),
    "no_gradients": (lambda: Unseen(), [x(-1, 3)]),
    "embedding": (lambda: nn.Embedding(9, 4, padding_idx=2), [ids(9, -1, -2)]),
    "bags": (lambda: Fn(lambda w, i: (*(F.embedding_bag(i, w.weight, mode=mode) for mode in (
        "sum", "mean", "max")), F.embedding_bag(i.flatten(), w.weight, torch.tensor([0, 2, 2, 9]),
        per_sample_weights=w.weight[:, 0].repeat(2)[:12].softmax(0), mode="sum", padding_idx=3,
        include_last_offset=True)), nn.Embedding(9, 4)), [ids(9, 3, 4)]),
    "sampling": (lambda: Fn(lambda x, t: (F.grid_sample(x, F.affine_grid(t, [2, 2, 4, 5])),
        F.grid_sample(x, t[:, None, :, :2], "bicubic", "reflection", True),
        F.grid_sample(x, 2 * t[:, :, None, 1:], "bilinear", "border"))),
        [x(2, 2, 6, 5), x(2, 2, 3)]),
    "resizing": (lambda: Fn(lambda x: (F.interpolate(x, (5, 9), mode="bicubic"), F.interpolate(
        x, (4, 3), mode="bilinear", antialias=True), F.interpolate(x, (5, 3), mode="bicubic",
        antialias=True), F.interpolate(x, scale_factor=1.7, mode="bicubic", align_corners=True),
        F.interpolate(x, (5, 9), mode="nearest-exact"))), [x(-1, 2, 7, 6)]),
    "windows": (lambda: Fn(lambda x: (F.unfold(x, (2, 3), (1, 2), 1, 2), x.unfold(3, 3, 2),
        F.fold(F.unfold(x, 2), (6, 7), 2), F.max_pool2d(x, 2, dilation=2), F.max_pool2d(
        x, 3, 2, 1, return_indices=True), F.avg_pool2d(x, 2, divisor_override=3))),
        [x(3, 3, 6, 7)]),
    "entries": (lambda: Fn(lambda x, i: (x[:, i[0, :2], i[1, :2] - 3], x[i[0, :2], :, i[0, :2]],
        torch.index_put(x, (i[0, :3], i[1, :3]), x[0, 0], True), x.diagonal(1, 1, 2),
        torch.index_put(x, (x > 1,), torch.tensor(0.5)), x.masked_scatter(x > 0, x.flip(0)),
        x.scatter_reduce(1, i[:, :, None], x[:, :2, :1], "mean", include_self=False),
        x.scatter(2, i[:, :, None], 2.0), x.as_strided((2, 3), (5, 2), 1),
        torch.slice_scatter(x, x[:, ::2] * 2, 1, 0, 4, 2))), [x(3, 4, 5), ids(3, 3, 2)]),
    "orders": (lambda: Fn(lambda x, y: (x.median(), *x.median(1), *x.kthvalue(2, 0), torch.cdist(
        x, y), torch.pdist(x, 1), torch.bucketize(x, y[0].sort().values, right=True),
        torch.searchsorted(y.sort(1).values, x, out_int32=True))), [x(3, 5), x(3, 5)]),
    "forms": (lambda: Fn(lambda x: (F.dropout(x * 2, 0.5, False, True), x.moveaxis(0, 1),
        x.isposinf(), torch.broadcast_tensors(x, x[:1]), torch.permute_copy(x, (1, 0)),
        torch.multiply(x, x),
        (x / 0).nan_to_num(1.0, 2.0, 3.0), F.alpha_dropout(x, 0.5, False), torch.hstack([x, x]),
        x.logit(0.3), torch.diff(x), torch.ops.aten._unsafe_index_put(x, [torch.arange(2)], x[:2]),
        F.pad(x[:, None], (1, 1), mode="circular"), x.round(decimals=1),
        x.clone().fill_(2.0), torch.trapezoid(x), torch.logaddexp(x, x.flip(1)))), [x(3, 4)]),
    "whole_products": (lambda: Fn(lambda i, j: (i @ j, F.linear(i, j.T, j[0]), torch.einsum(
        "ij,jk->k", i, j), torch.addmm(j, i, j, alpha=2, beta=3), torch.outer(i[0], j[0]),
        torch.outer(i[0] > 1, j[0] > 1), torch.addcmul(i, i, j, value=3), i ** j, 3 ** (i * 10),
        (i + 2**31) @ (j + 2**33), (i.int() + 2**20) @ (j.int() + 2**20), i.int() ** 25,
        torch.add(i, j, alpha=2))), [ids(5, 4, 4), ids(5, 4, 4)]),
    "two_of_all_kinds": (lambda: Fn(lambda x, y, i: (torch.copysign(x, y), torch.copysign(
        i, y), torch.signbit(F.relu(x) / -3), torch.signbit(-i), torch.fmax(x, (y - 1).log()),
        torch.fmin((x - 1).log(), y), torch.fmax(i, i.T), torch.maximum(x > 0, y > 0),
        torch.clamp_max(x > 0, y > 0), torch.max(x > 0, y > 0), torch.sign(x > 0),
        torch.sign((x - 1).log()), torch.sgn(i)[0])), [x(4, 4), x(4, 4), ids(9, 4, 4)]),
    "without_axes": (lambda: Fn(lambda x, i: (x.logsumexp(0), x.max(0), x.min(0).indices, x.max(),
        x.topk(1), (i > 1).sum(), i.count_nonzero(), x.sum(-1), x.norm(dim=0), x.argmax(0),
        x.softmax(0), x.log_softmax(-1), x.sort(0), x.argsort(0), x.squeeze(0),
        torch.cat([x[None][:0], i[None][:0]]), x[None, None].squeeze(dim=()))),
        [lambda *_: torch.tensor(200.0), ids(4)]),
    "single_losses": (lambda: Fn(lambda x, i: (F.cross_entropy(x[0], i, torch.arange(1.0, 6)),
        F.nll_loss(x.log_softmax(1)[0], i, torch.arange(1.0, 6)), F.cross_entropy(x[0], i),
        F.binary_cross_entropy_with_logits(x, x.flip(0).sigmoid(), pos_weight=torch.arange(5.0)),
        F.softplus(x, 3.0, 0.2))), [x(-1, 5), ids(5)]),
    "parts_and_borders": (lambda: Fn(lambda x: (*torch.tensor_split(x, (1, 4, -3), 1),
        torch.diagonal_scatter(x, x[0, :, :3], 1, 0, 2), torch.roll(x, 7), torch.addbmm(
        x[0, :, :3], x[:, :, :4], x.mT[:, :4, :].mT[:, :4, :3], alpha=0.5),
        F.pad(x, (-2, 3), mode="replicate"), F.pad(x, (2, -3), mode="reflect"),
        torch.take_along_dim(x, torch.tensor([0, 7])), x[:, :0].unflatten(1, (2, 0)),
        x.unflatten(1, (2, 2))[:, :, :, :0].flatten(2))), [x(3, 4, 6)]),
    "bags_from_the_end": (lambda: Fn(lambda w, i: tuple(F.embedding_bag(
        i, w, mode=mode, padding_idx=-2) for mode in ("sum", "mean", "max"))),
        [x(5, 4), ids(5, 3, 4)]),
    "bits": (lambda: Fn(lambda i: (i & 3, i | 4, i ^ 5, ~i, torch.isin(i, i[0, :2]),
        i << 2, i.bitwise_right_shift(1), torch.masked_select(i[0, 0], i[0, 0] >= 0))),
             [ids(9, 3, 4)]),
    "transforms": (lambda: Fn(lambda x: (torch.fft.fft2(x).real, torch.fft.rfft(x).abs(),
        torch.fft.irfft(torch.fft.rfft(x, norm="ortho") * torch.fft.rfft(x.flip(1)), n=6),
        torch.view_as_real(torch.fft.fft(x, dim=1)))), [x(-1, 4, 6)]),
    "complex_parts": (lambda: Fn(complex_parts), [x(-1, 4, 6), x(4, 3)]),
    "complex_quotients": (lambda: Fn(complex_quotients), [x(-1, 4, 6), x(4, 3)]),
    "spectrogram": (Spectrogram, [x(-1, 32)]),
    "fourier_layer": (FourierLayer, [x(-1, 2, 8, 6)]),
    "blocks": (Blocks, [x(4, 3)]),
}  # fmt: skip
