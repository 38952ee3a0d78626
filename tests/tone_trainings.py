"""A second training on tones, after the first one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from opscope.speech import train
from opscope.speech.scoring.edits import ErrorCounts
from spoken_tones import SMALL

SECOND_PASS = {"ivectors": 5, "tdnnf_width": 32, "tdnnf_epochs": 6, "chunks": "60,45"}


def refine(
    trained: Path, name: str, log: Callable[[str], None], **more: float
) -> ErrorCounts | None:
    """Train on from `trained` to a model of two passes, in folders of this name."""
    work = trained / f"{name}.work"
    if not work.exists():
        shutil.copytree(trained / "model.work", work)
    data = trained / "data"
    options = {**SMALL, **SECOND_PASS, **more}
    return train(data, trained / name, lexicon=str(data / "lexicon.txt"), log=log, **options)
