"""Architectures of torchvision."""

from __future__ import annotations

from .images import images  # before torchvision

# isort: split
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torchvision import models
from torchvision.models.maxvit import MaxVit
from torchvision.models.swin_transformer import (
    PatchMergingV2,
    SwinTransformer,
    SwinTransformerBlockV2,
)

from .measuring import Architecture


class Parts(nn.Module):
    """A module whose result is a dict of tensors."""

    def __init__(self, module: nn.Module, *names: str) -> None:
        super().__init__()
        self.module, self.names = module, names

    def forward(self, x: torch.Tensor) -> Any:
        found = self.module(x)
        return tuple(found[name] for name in self.names)


def plain(name: str, size: int = 64, **options: Any) -> Architecture:
    """A function of `torchvision.models`."""
    options = {"num_classes": 10} | options
    build = getattr(models, name)
    return Architecture(name, "torchvision", lambda: build(weights=None, **options), images(size))


def segmenting(name: str, *outputs: str, **options: Any) -> Architecture:
    """A function of `torchvision.models.segmentation`."""
    build = getattr(models.segmentation, name)

    def make() -> nn.Module:
        module = build(weights=None, weights_backbone=None, num_classes=4, **options)
        return Parts(module, *outputs)

    return Architecture(name, "torchvision", make, images(64))


def moving(name: str) -> Architecture:
    """A function of `torchvision.models.video`, on clips of 16 images."""
    build = getattr(models.video, name)

    def draw(batch: int) -> list[torch.Tensor]:
        return [torch.randn(batch, 3, 16, 32, 32)]

    return Architecture(name, "torchvision", lambda: build(weights=None, num_classes=10), draw)


def _features(build: Callable[..., Any], size: int) -> nn.Module:
    """The convolutions alone: the linear layers have more than a hundred million weights."""
    return nn.Sequential(build(weights=None).features, nn.Flatten(), nn.Linear(size, 10))


def _vit() -> nn.Module:
    return models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10)


def _swin() -> nn.Module:
    return SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10)


def _swin_v2() -> nn.Module:
    return SwinTransformer(
        [4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10,
        block=SwinTransformerBlockV2, downsample_layer=PatchMergingV2,
    )  # fmt: skip


def _maxvit() -> nn.Module:
    return MaxVit((64, 64), 16, 4, [16, 32], [1, 1], 8, stochastic_depth_prob=0.0, num_classes=10)


TORCHVISION = [
    Architecture("alexnet", "torchvision", lambda: _features(models.alexnet, 9216), images(224)),
    Architecture("vgg11_bn", "torchvision", lambda: _features(models.vgg11_bn, 512), images(32)),
    plain("resnet18"),
    plain("resnext50_32x4d"),
    plain("wide_resnet50_2", 32),
    plain("densenet121"),
    plain("googlenet", aux_logits=False, init_weights=False),
    plain("inception_v3", 80, aux_logits=False, init_weights=False),
    plain("mobilenet_v2"),
    plain("mobilenet_v3_small"),
    plain("mobilenet_v3_large"),
    plain("mnasnet0_5"),
    plain("shufflenet_v2_x0_5"),
    plain("squeezenet1_1"),
    plain("efficientnet_b0"),
    plain("efficientnet_v2_s", 32),
    plain("regnet_y_400mf"),
    plain("regnet_x_400mf"),
    plain("convnext_tiny"),
    Architecture("vit", "torchvision", _vit, images(32)),
    Architecture("swin", "torchvision", _swin, images(32)),
    Architecture("swin_v2", "torchvision", _swin_v2, images(32)),
    Architecture("maxvit", "torchvision", _maxvit, images(64)),
    segmenting("fcn_resnet50", "out", "aux", aux_loss=True),
    segmenting("deeplabv3_mobilenet_v3_large", "out"),
    segmenting("lraspp_mobilenet_v3_large", "out"),
    moving("r3d_18"),
]
