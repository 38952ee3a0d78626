"""Writes nets of 8-bit integers as ONNX Runtime makes them, for `onnx_files.py` to time.

    python benchmarks/integer_files.py FOLDER
    OPSCOPE_THREADS=1 python benchmarks/onnx_files.py FOLDER

Each net of random weights is quantized with random calibration data: `qdq` and `qop` statically (a
scale for each channel, activations without a sign), `dyn` while it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import nn
from workloads.workload import library

FEEDS = 3


def layers(kind: Any, *sizes: int, **options: Any) -> Iterator[nn.Module]:
    """Layers of these sizes one after another, with rectifiers after all of them."""
    for before, after in zip(sizes[:-1], sizes[1:], strict=True):
        yield kind(before, after, **options)
        yield nn.ReLU()


def separable(channels: int, count: int) -> Iterator[nn.Module]:
    for _ in range(count):
        yield nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        yield nn.ReLU()
        yield nn.Conv2d(channels, channels, 1)
        yield nn.ReLU()


def mean(channels: int, classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


def nets() -> Iterator[tuple[str, nn.Module, tuple[int, ...]]]:
    """Names, modules, and shapes of their inputs."""
    torch.manual_seed(0)
    for rows in (1, 64, 1000):
        yield f"mlp-{rows}", nn.Sequential(*layers(nn.Linear, 512, 512, 512, 10)), (rows, 512)
    for rows in (1, 64):
        yield f"small-{rows}", nn.Sequential(*layers(nn.Linear, 40, 64, 64, 64, 12)), (rows, 40)
    digits: list[nn.Module] = []
    for before, after in ((1, 16), (16, 32)):
        digits += [nn.Conv2d(before, after, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    digits += [nn.Flatten(), nn.Linear(32 * 49, 10)]
    for rows in (1, 16):
        yield f"digits-{rows}", nn.Sequential(*digits), (rows, 1, 28, 28)
    few = layers(nn.Conv2d, 3, 8, 8, 16, kernel_size=3, padding=1)
    yield "few-channels", nn.Sequential(*few), (1, 3, 64, 64)
    words = [nn.Conv2d(1, 64, (10, 4), 2, (4, 1)), nn.ReLU(), *separable(64, 4), *mean(64, 12)]
    yield "keywords", nn.Sequential(*words), (1, 1, 49, 10)
    frames = [*layers(nn.Conv1d, 40, 128, 128, kernel_size=3, padding=2, dilation=2)]
    yield "frames", nn.Sequential(*frames, nn.Conv1d(128, 64, 1)), (1, 40, 200)
    models = library("torchvision").models
    for name in ("mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x0_5", "resnet18"):
        yield name, getattr(models, name)(weights=None), (1, 3, 224, 224)


class Drawn(CalibrationDataReader):
    """Random inputs of a shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._feeds = iter([{"x": torch.randn(shape).numpy()} for _ in range(FEEDS)])

    def get_next(self) -> Any:
        return next(self._feeds, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, module, shape in nets():
        plain, whole = folder / "plain.onnx", folder / "whole.onnx"
        torch.onnx.export(
            *(module.eval(), (torch.zeros(shape),), str(plain)),
            **{"dynamo": False, "input_names": ["x"], "output_names": ["y"], "opset_version": 17},
        )
        quant_pre_process(str(plain), str(whole))
        for kind, form in (("qdq", QuantFormat.QDQ), ("qop", QuantFormat.QOperator)):
            quantize_static(
                *(str(whole), str(folder / f"{name}-{kind}.onnx"), Drawn(shape)),
                quant_format=form,
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
        dynamic = str(folder / f"{name}-dyn.onnx")
        quantize_dynamic(str(whole), dynamic, weight_type=QuantType.QUInt8)
        plain.unlink()
        whole.unlink()
        print(name, flush=True)


if __name__ == "__main__":
    main()
