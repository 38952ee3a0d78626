"""Train a small residual network on handwritten digits; train.py does the same with opscope.

python examples/residual/pytorch.py [--epochs 12]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    """Two convolutions beside a shortcut, which is a convolution where the shape changes."""

    def __init__(self, channels, filters, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(filters)
        self.shortcut = nn.Identity()
        if stride > 1:
            conv = nn.Conv2d(channels, filters, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(filters))

    def forward(self, x):
        out = self.conv2(torch.relu(self.norm1(self.conv1(x))))
        return torch.relu(self.norm2(out) + self.shortcut(x))


def build():
    stem = [nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(
        *stem,
        *(Block(16, 16), Block(16, 16)),
        *(Block(16, 32, stride=2), Block(32, 32)),
        *(Block(32, 64, stride=2), Block(64, 64)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    epochs = parser.parse_args().epochs
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = torch.tensor((digits.images / 16).astype(np.float32)[order, None])
    labels = torch.tensor(digits.target[order])
    torch.manual_seed(0)
    data = DataLoader(TensorDataset(images[:1437], labels[:1437]), 32, shuffle=True)
    held_out = DataLoader(TensorDataset(images[1437:], labels[1437:]), 32)
    net = build()
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(data))
    start = time.perf_counter()
    for epoch in range(epochs):
        net.train()
        for image, label in data:
            loss = nn.functional.cross_entropy(net(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        net.eval()
        with torch.no_grad():
            right = sum((net(image).argmax(1) == label).sum().item() for image, label in held_out)
        accuracy = right / len(held_out.dataset)
        print(f"epoch {epoch + 1}/{epochs}  loss {loss.item():.4f}  accuracy {accuracy:.4f}")
    print(f"test accuracy {accuracy:.4f} after {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
