"""Source of the classes and functions that recurrent layers, windows of rows and images need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..helpers import HELPERS
from ..op_list.sources import SOURCES as OF_OPERATORS

SOURCES: Final[dict[str, str]] = (
    HELPERS
    | OF_OPERATORS
    | {
        "RecurrentLinear": '''class RecurrentLinear(nn.Module):
    """weight_ih x + weight_hh h + bias, where x is known before a loop and h in its steps.

    `inputs` computes all of it except h, x [N, C, T]; `forward` adds the rest, h [M, C].
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
    }
)
NAMES: Final = tuple(SOURCES)
"""Names that a module's source may hold."""


def with_what_they_use(names: Iterable[str]) -> set[str]:
    """The names of sources, and those that these use."""
    needed: set[str] = set()
    queue = [each for name in names for each in name.split()]
    while queue:
        name = queue.pop()
        if name not in needed:
            needed.add(name)
            queue += [other for other in SOURCES if f"{other}(" in SOURCES[name] and other != name]
    return needed
