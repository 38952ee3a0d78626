"""Source of the classes and functions that recurrent layers, windows of rows and images need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..helpers import HELPERS, STEPS

SOURCES: Final[dict[str, str]] = HELPERS | {
    "over_time": '''def over_time(step, widths, rows, delay=1, backward=False):
    """Run a recurrent layer: rows, a list of [N, C, T], to the list of what its steps give.

    A step takes and gives states [M, width] and rows [M, C]. A layer that reads itself `delay`
    rows back is that many sequences that know nothing of each other: they run side by side.
    """
    n, t = rows[0].shape[0], rows[0].shape[2]
    rows = [x.flip(2) if backward else x for x in rows]
    rows = [x.permute(2, 0, 1) for x in rows]
    if delay > 1:  # [steps, delay * N, C]; a step more, since torch.export takes one for a constant
        times = torch.arange(t, device=rows[0].device)
        steps = torch.arange(0, t + delay, delay, device=times.device)
        blocks = steps[:, None] + torch.arange(delay, device=times.device)
        rows = [F.pad(x, (0, 0, 0, 0, 0, 2 * delay - 1)) for x in rows]
        rows = [x[blocks].flatten(1, 2) for x in rows]
    states = [rows[0].new_zeros(delay * n, width) for width in widths]
'''
    + STEPS
    + """    if delay > 1:
        found = [x.unflatten(1, (delay, n))[times // delay, times % delay] for x in found]
    found = [x.permute(1, 2, 0) for x in found]
    return [x.flip(2) if backward else x for x in found]
""",
    "RecurrentLinear": '''class RecurrentLinear(nn.Module):
    """weight_ih x + weight_hh h + bias, where x is known before a loop and h in its steps.

    `inputs` computes all of it but for h, x [N, C, T]; `forward` adds the rest, h [M, C].
    """

    def __init__(self, x_dim, h_dim, out_dim, bias=True):
        super().__init__()
        self.weight_ih = nn.Parameter(torch.zeros(out_dim, x_dim))
        self.weight_hh = nn.Parameter(torch.zeros(out_dim, h_dim))
        self.bias = nn.Parameter(torch.zeros(out_dim)) if bias else None

    def inputs(self, x):
        return F.conv1d(x, self.weight_ih[:, :, None], self.bias)

    def forward(self, inputs, h):
        return inputs + F.linear(h, self.weight_hh)
''',
    "column": '''def column(values, x):
    """Values [C] as [C, 1, ...], so that they meet the columns of x [N, C, ...]."""
    return values.reshape(-1, *[1] * (x.dim() - 2))
''',
    "LstmCell": '''class LstmCell(nn.Module):
    """i, f, g, o before their nonlinearities and the cell before -> the cell and the output.

    The gates see the cell through `peepholes`, those of i, f and o. With dropout three more columns
    are factors of these.
    """

    def __init__(self, cells, dropout=False):
        super().__init__()
        self.sizes = [cells] * 5 + [1, 1, 1] * dropout
        self.peepholes = nn.Parameter(torch.zeros(3, cells))

    def forward(self, x):
        i, f, g, o, before, *masks = x.split(self.sizes, 1)
        i = torch.sigmoid(i + column(self.peepholes[0], x) * before)
        f = torch.sigmoid(f + column(self.peepholes[1], x) * before)
        if masks:
            i, f = i * masks[0], f * masks[1]
        cell = f * before + i * torch.tanh(g)
        o = torch.sigmoid(o + column(self.peepholes[2], x) * cell)
        if masks:
            o = o * masks[2]
        return torch.cat([cell, o * torch.tanh(cell)], 1)
''',
    "GruCell": '''class GruCell(nn.Module):
    """z, r, the input's part of h and the cell before -> h and the cell.

    The reset gate r works on the state before `weight` does, other than in nn.GRU. Where the state
    is a projection, its columns follow.
    """

    def __init__(self, cells, recurrent=None):
        super().__init__()
        self.cells, self.recurrent = cells, recurrent or cells
        self.weight = nn.Parameter(torch.zeros(cells, self.recurrent))

    def forward(self, x):
        sizes = [self.cells, self.recurrent, self.cells, self.cells]
        if self.recurrent != self.cells:
            sizes.append(self.recurrent)
        z, r, part, before, *state = x.split(sizes, 1)
        state = r * (state[0] if state else before)
        h = torch.tanh(part + F.linear(state.movedim(1, -1), self.weight).movedim(-1, 1))
        return torch.cat([h, h + z * (before - h)], 1)
''',
    "OutputGruCell": '''class OutputGruCell(nn.Module):
    """z, the input's part of h and the cell before -> h and the cell; no reset gate."""

    def __init__(self, cells):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(cells))

    def forward(self, x):
        z, part, before = x.chunk(3, 1)
        h = torch.tanh(part + column(self.weight, x) * before)
        return torch.cat([h, h + z * (before - h)], 1)
''',
    "Constant": '''class Constant(nn.Module):
    """The same values in every row, whatever the input x [N, C, ...] holds."""

    def __init__(self, dim):
        super().__init__()
        self.value = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return column(self.value, x).expand(x.shape[0], -1, *x.shape[2:])
''',
    "DropoutMask": '''class DropoutMask(nn.Module):
    """Kaldi's DropoutMaskComponent: a mask in place of ones [N, dim, T].

    In training of zeros and ones (zeros of the first two columns exclude each other), or uniform
    between 1 - 2p and 1 + 2p; in evaluation what is expected of it.
    """

    def __init__(self, dim, p, continuous=False):
        super().__init__()
        self.p, self.continuous = p, continuous
        self.exclusive = not continuous and dim in (2, 3)

    def forward(self, ones):
        if not self.training or self.p == 0.0:
            return ones if self.continuous else (1.0 - self.p) * ones
        random = torch.rand_like(ones)
        if self.continuous:
            return 1.0 - 2.0 * self.p + 4.0 * self.p * random
        if self.exclusive:
            random = torch.cat([random[:, :1], 1.0 - random[:, :1], random[:, 2:]], 1)
        return (random >= self.p).to(ones.dtype)
''',
    "TapsConv2d": '''class TapsConv2d(nn.Module):
    """A convolution with weights at some places of its kernel alone; `weight` [out, in, places]."""

    def __init__(self, in_dim, out_dim, kernel_size, places, stride=1, dilation=1, padding=0):
        super().__init__()
        self.size, self.options = kernel_size, (stride, padding, dilation)
        self.places = [h * kernel_size[1] + t for h, t in places]
        self.weight = nn.Parameter(torch.zeros(out_dim, in_dim, len(places)))
        self.bias = nn.Parameter(torch.zeros(out_dim))

    def forward(self, x):
        kernel = self.weight.new_zeros(*self.weight.shape[:2], self.size[0] * self.size[1])
        places = torch.tensor(self.places, device=x.device)
        kernel = kernel.index_copy(2, places, self.weight).unflatten(2, self.size)
        return F.conv2d(x, kernel, self.bias, *self.options)
''',
    "RestrictedAttention": '''class RestrictedAttention(nn.Module):
    """Attention of each row to some places around it.

    `forward` takes the rows at each place, a list of [N, C, T]; C holds for each head a key, a
    value, a query, and a score for each place. It gives the mean of the values, weighted.
    """

    def __init__(self, heads, key_dim, value_dim, left, right, key_scale, output_context=False):
        super().__init__()
        self.heads, self.left, self.key_scale = heads, left, key_scale
        self.sizes = [key_dim, value_dim, key_dim, left + 1 + right]
        self.output_context = output_context

    def forward(self, places):
        places = [x.unflatten(1, (self.heads, -1)).split(self.sizes, 2) for x in places]
        _, _, query, scores = places[self.left]
        query = self.key_scale * query
        products = torch.cat([(query * key).sum(2, keepdim=True) for key, *_ in places], 2)
        weights = torch.softmax(products + scores, 2)
        values = torch.stack([value for _, value, *_ in places], 2)
        mean = (weights[:, :, :, None] * values).sum(2)
        if self.output_context:
            mean = torch.cat([mean, weights], 2)
        return mean.flatten(1, 2)
''',
    "window_sums": '''def window_sums(x, begins, ends, first, step):
    """Sums of the rows of windows, as doubles, and how many rows these have.

    Rows x [N, C, T] are at times first, first + step, ...; windows from `begins` to before `ends`.
    """
    total = F.pad(x.double().cumsum(2), (1, 0))
    begins, ends = (((t - first) // step).clamp(0, x.shape[2]) for t in (begins, ends))
    return total[:, :, ends] - total[:, :, begins], (ends - begins).double()
''',
    "StatisticsExtraction": '''class StatisticsExtraction(nn.Module):
    """For each period of `period` frames: how many rows it has, their sum, that of squares.

    Doubles: deviations are small differences of large sums.
    """

    def __init__(self, period, variance=True):
        super().__init__()
        self.period, self.variance = period, variance

    def forward(self, x, times, first, step):
        x = x.double()
        if self.variance:
            x = torch.cat([x, x.square()], 1)
        sums, counts = window_sums(x, times, times + self.period, first, step)
        return torch.cat([counts.expand(x.shape[0], 1, -1), sums], 1)
''',
    "StatisticsPooling": '''class StatisticsPooling(nn.Module):
    """Means (and standard deviations) of windows, from what a StatisticsExtraction gives; doubles.

    `logs` columns with the logarithm of the count come first.
    """

    def __init__(self, left, right, period, logs=0, deviations=False, variance_floor=0.0):
        super().__init__()
        self.left, self.behind, self.logs = left, right + period, logs
        self.deviations, self.variance_floor = deviations, variance_floor

    def forward(self, x, times, first, step):
        sums, _ = window_sums(x, times - self.left, times + self.behind, first, step)
        count, mean = sums[:, :1], sums[:, 1:] / sums[:, :1]
        if self.deviations:
            mean, square = mean.chunk(2, 1)
            variance = (square - mean.square()).clamp(min=self.variance_floor)
            mean = torch.cat([mean, variance.sqrt()], 1)
        if self.logs:
            mean = torch.cat([count.log().expand(-1, self.logs, -1), mean], 1)
        return mean
''',
    "ImageConv": '''class ImageConv(nn.Conv2d):
    """A convolution of the image in each row of [N, C, T]; an image has sizes x, y and z."""

    def __init__(self, shape, filters, kernel_size, stride=1, y_fastest=False):
        super().__init__(shape[2], filters, kernel_size, stride)
        self.shape, self.y_fastest = shape, y_fastest

    def forward(self, rows):
        x, y, z = self.shape
        images = rows.transpose(1, 2).flatten(0, 1)
        if self.y_fastest:
            images = images.unflatten(1, (x, z, y)).transpose(1, 2)
        else:
            images = images.unflatten(1, (x, y, z)).permute(0, 3, 1, 2)
        found = super().forward(images).permute(0, 2, 3, 1).flatten(1)
        return found.unflatten(0, (rows.shape[0], rows.shape[2])).transpose(1, 2)
''',
    "ImageMaxPool": '''class ImageMaxPool(nn.MaxPool3d):
    """Maxima of blocks of the image in each row of [N, C, T]; an image has sizes x, y and z."""

    def __init__(self, shape, kernel_size, stride):
        super().__init__(kernel_size, stride)
        self.shape = shape

    def forward(self, rows):
        images = rows.transpose(1, 2).flatten(0, 1).unflatten(1, self.shape)[:, None]
        found = super().forward(images).flatten(1)
        return found.unflatten(0, (rows.shape[0], rows.shape[2])).transpose(1, 2)
''',
}
NAMES: Final = tuple(SOURCES)
"""Names that a module's source may hold."""


def with_what_they_use(names: Iterable[str]) -> set[str]:
    """The names of sources, and those that these use."""
    found: set[str] = set()
    queue = [each for name in names for each in name.split()]
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += [other for other in SOURCES if f"{other}(" in SOURCES[name] and other != name]
    return found
