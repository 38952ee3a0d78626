"""Source of what modules of CNTK's networks are made of."""

from __future__ import annotations

from typing import Final

from ..helpers import STEPS

SOURCES: Final[dict[str, str]] = {
    "BatchNorm": '''class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation of samples [..., C], or by channels of images [..., C, places]."""

    def forward(self, x, channels_first=False):
        rows = x.flatten(0, -3 if channels_first else -2)
        return super().forward(rows).reshape(x.shape)
''',
    "over_time": '''def over_time(step, states, rows, backward=False):
    """Run a loop over T: rows, a list of [N, T, ...], to the list of what its steps give.

    A step takes and gives states [N, ...] and rows [N, ...].
    """
    rows = [(x.flip(1) if backward else x).transpose(0, 1) for x in rows]
'''
    + STEPS
    + """    found = [x.transpose(0, 1) for x in found]
    return [x.flip(1) if backward else x for x in found]
""",
    "delayed": '''def delayed(x, steps, start):
    """x [N, T, ...] as it was `steps` rows before, or after where below 0; else `start`."""
    edge = torch.as_tensor(start, dtype=x.dtype, device=x.device)
    edge = edge.expand(x.shape[0], abs(steps), *x.shape[2:])
    if steps > 0:
        return torch.cat([edge, x], 1)[:, : x.shape[1]]
    return torch.cat([x, edge], 1)[:, -steps:]
''',
}
"""Name -> class or function."""

MODEL: Final = '''"""{title}

Written by opscope. Layers have the names of the network's parameters, with _ for
other signs, and values those of its nodes. A sample of CNTK's shape [a x b] is [..., b, a].
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

{helpers}
class CntkModel(nn.Module):
    """{arguments}

    A network of {parameters} parameters.
    """

    def __init__(self):
        super().__init__()
{modules}

    def forward({signature}):
{forward}


def load(folder):
    """The model with the weights in a folder, in evaluation mode."""
    model = CntkModel()
    model.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    return model.eval()


def save(model, folder):
    """Write the weights into a folder, from which `opscope from-torch` takes them."""
    state = {{name: each.detach().cpu().contiguous() for name, each in model.state_dict().items()}}
    save_file(state, Path(folder) / "model.safetensors", metadata={{"format": "pt"}})
'''
