"""Source of the classes that PyTorch has no module for; a model has those that it needs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

STEPS: Final = """    if torch.compiler.is_exporting():  # one operator for any T
        from torch._higher_order_ops.scan import scan

        def copied(states, rows):
            states, found = step(states, rows)
            return [x.clone() for x in states], [x.clone() for x in found]

        _, found = scan(copied, states, rows)
    else:
        found = []
        for each in zip(*rows):
            states, given = step(states, each)
            found.append(given)
        found = [torch.stack(each) for each in zip(*found)]
"""
"""The middle of functions that run `step` over `rows`, times first, from `states` on: `found`."""

HELPERS: Final[dict[str, str]] = {
    "ScaleOffset": '''class ScaleOffset(nn.Module):
    """x * scale + offset for each column, x [N, C, ...]; they repeat for blocks of `dim`."""

    def __init__(self, dim, scale=True, offset=True, smallest=0.0):
        super().__init__()
        self.dim, self.smallest = dim, smallest
        self.scale = nn.Parameter(torch.ones(dim)) if scale else None
        self.offset = nn.Parameter(torch.zeros(dim)) if offset else None

    def forward(self, x):
        y, shape = x.unflatten(1, (-1, self.dim)), (-1, *[1] * (x.dim() - 2))
        if self.scale is not None:
            scale = self.scale
            if self.smallest:  # scales keep this distance from 0
                side = torch.where(scale >= 0, self.smallest, -self.smallest)
                scale = torch.where(scale.abs() < self.smallest, side, scale)
            y = y * scale.reshape(shape)
        if self.offset is not None:
            y = y + self.offset.reshape(shape)
        return y.flatten(1, 2)
''',
    "PlainDropout": '''class PlainDropout(nn.Module):
    """Kaldi's DropoutComponent: training does not scale what stays; evaluation scales by 1 - p."""

    def __init__(self, p, per_frame=False):
        super().__init__()
        self.p, self.per_frame = p, per_frame

    def forward(self, x):
        if not self.training:
            return (1.0 - self.p) * x
        like = x[:, :1] if self.per_frame else x
        return x * (torch.rand_like(like) >= self.p).to(x.dtype)
''',
    "SharedDropout": '''class SharedDropout(nn.Module):
    """Kaldi's GeneralDropoutComponent: a mask for all frames, or for `period` rows each."""

    def __init__(self, p, block_dim, period=0, continuous=False):
        super().__init__()
        self.p, self.block_dim, self.period = p, block_dim, period
        self.continuous = continuous

    def forward(self, x):
        if not self.training or self.p == 0.0:
            return x
        blocks = x.unflatten(1, (-1, self.block_dim))
        count = -(-x.shape[2] // self.period) if self.period else 1
        mask = torch.rand(x.shape[0], 1, self.block_dim, count, dtype=x.dtype, device=x.device)
        if self.continuous:
            mask = 1.0 - 2.0 * self.p + 4.0 * self.p * mask
        else:
            mask = (mask >= self.p).to(x.dtype) / (1.0 - self.p)
        if self.period:
            mask = mask.repeat_interleave(self.period, 3)[..., : x.shape[2]]
        return (blocks * mask).flatten(1, 2)
''',
}

_MODEL: Final = '''"""{title}

Written by opscope. {about}
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

{helpers}
class {model}(nn.Module):
    """{details}
    """

    def __init__(self):
        super().__init__()
{modules}

{methods}    def forward({signature}):
{forward}


def load(folder):
    """The model with the weights in a folder, in evaluation mode."""
    model = {model}()
    model.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    return model.eval()


def save(model, folder):
    """Write the weights into a folder{back}."""
    state = {{name: each.detach().cpu().contiguous() for name, each in model.state_dict().items()}}
    save_file(state, Path(folder) / "model.safetensors", metadata={{"format": "pt"}})
'''


def model_source(
    *, helpers: Iterable[str], methods: str = "", returns: bool = True, **parts: str
) -> str:
    """The text of `model.py`.

    Args:
        helpers: source of functions and classes. methods: of the class, beside `forward`.
        returns: whether `opscope from-torch` takes its weights.
        parts: `title`, `about`: the first comment; `model`: the name of the class; `details`: its
            comment; `modules`, `signature`, `forward`: its source.
    """
    listed = "".join(f"\n{each}\n" for each in helpers)
    back = ", from which `opscope from-torch` takes them" if returns else ""
    return _MODEL.format(helpers=listed, methods=methods, back=back, **parts)


_CHECK: Final = '''"""Runs the model in this folder on recorded inputs: are its outputs opscope's?

    python check.py

After training they no longer are.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

FOLDER = Path(__file__).resolve().parent
BOUND = 1e-5  # of values above 1 relative to them

sys.path.insert(0, str(FOLDER))
from model import load  # noqa: E402


def main():
    model, recorded = load(FOLDER), load_file(FOLDER / "check.safetensors")
    cases = sorted({name.split(".", 1)[0] for name in recorded})
    bad = 0
    for case in cases:
        given = [recorded[f"{case}.{name}"]@axis@ for name in ARGUMENTS]
        with torch.no_grad():
            found = model(*given)
        found = found if isinstance(found, dict) else {OUTPUTS[0]: found}
        for name in OUTPUTS:
            wanted, here = recorded[f"{case}.output.{name}"], found[name]@first@
            if wanted.shape != here.shape:
                raise SystemExit(f"{name}: {tuple(here.shape)}, not {tuple(wanted.shape)}")
            worst = float((here - wanted).abs().max())
            good = worst <= BOUND * max(1.0, float(wanted.abs().max()))
            bad += not good
            print(f"{name}: {len(wanted)} rows, largest difference {worst:.1e}, {WORDS[good]}")
    return 1 if bad else 0


ARGUMENTS = @arguments@
OUTPUTS = @outputs@
WORDS = {True: "equal", False: "NOT EQUAL"}

if __name__ == "__main__":
    sys.exit(main())
'''


def check_source(arguments: Sequence[str], outputs: Sequence[str], whole: bool = False) -> str:
    """The text of `check.py`.

    Args:
        whole: whether what is recorded has the axis N.
    """
    source = _CHECK.replace("@arguments@", json.dumps(list(arguments)))
    source = source.replace("@outputs@", json.dumps(list(outputs)))
    axis, first = ("", "") if whole else ("[None]", "[0]")
    return source.replace("@axis@", axis).replace("@first@", first)
