"""Metrics that are counted over a whole pass; see `python_api/metrics`."""

from .python_api.metrics import (
    AUC,
    F1,
    Accuracy,
    ConfusionMatrix,
    Mean,
    Measure,
    Metric,
    Precision,
    Recall,
)

__all__ = [
    "AUC",
    "F1",
    "Accuracy",
    "ConfusionMatrix",
    "Mean",
    "Measure",
    "Metric",
    "Precision",
    "Recall",
]
