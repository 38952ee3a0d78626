"""The architectures of the zoo: one row each, with random weights and small inputs."""

from __future__ import annotations

from .measuring import Architecture
from .rows_timm import TIMM
from .rows_torchvision import TORCHVISION
from .rows_transformers import TRANSFORMERS

ARCHITECTURES: list[Architecture] = [*TORCHVISION, *TIMM, *TRANSFORMERS]
"""In the order of the table."""
