"""The same transformer encoder in PyTorch, for comparison.

python examples/transformer/pytorch.py [--epochs 15]
"""

import argparse

import torch
from data import load
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(args.seed)
train_set, test_set = (
    TensorDataset(torch.tensor(part["rows"]), torch.tensor(part["label"])) for part in load()
)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 48)
        self.positions = nn.Parameter(0.01 * torch.randn(8, 48))
        layer = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.output = nn.Linear(48, 10)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.output(self.encoder(self.embed(rows) + self.positions).mean(1))


def accuracy_of(model: nn.Module, rows: torch.Tensor, label: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        return float((model(rows).argmax(1) == label).float().mean())


model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
minibatches = DataLoader(train_set, 32, shuffle=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(minibatches))
criterion = nn.CrossEntropyLoss()
for epoch in range(args.epochs):
    model.train()
    total = 0.0
    for rows, label in minibatches:
        optimizer.zero_grad()
        loss = criterion(model(rows), label)
        loss.backward()
        optimizer.step()
        schedule.step()
        total += float(loss.detach()) * len(label)
    accuracy = accuracy_of(model, *test_set.tensors)
    print(f"epoch {epoch + 1}: loss {total / len(train_set):.4f} eval_accuracy {accuracy:.4f}")
print(f"test accuracy {accuracy_of(model, *test_set.tensors):.4f}")
