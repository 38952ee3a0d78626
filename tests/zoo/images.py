"""Images to feed, and what torchvision needs before it is imported.

The C part of torchvision is built for one build of PyTorch alone. Its Python part, which is all
that networks need, asks for two operators of it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
for _name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, _name):
        _OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def images(size: int) -> Callable[[int], list[torch.Tensor]]:
    """Draws images."""
    return lambda batch: [torch.randn(batch, 3, size, size)]
