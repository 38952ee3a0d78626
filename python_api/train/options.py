"""The arguments of `train` that need no net to be checked."""

from __future__ import annotations

import dataclasses
import os

from ...framework.base.dtypes import is_whole
from ...framework.base.errors import OpscopeError
from ...framework.base.files.atomic import PathLike, check_writable
from ...framework.files.checkpoint import checkpoint_path

WEIGHTS = "weights"
"""Value of `resume`: go on with a net that was changed."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Numbers and names of files, checked when they are given.

    Attributes:
        leads: whether this process writes the files, as it does unless another rank does.
        since: an older checkpoint is not resumed, in seconds since 1970.
    """

    epochs: int
    checkpoint: PathLike | None
    checkpoint_every: int
    checkpoint_batches: int
    resume: bool | str
    log_csv: PathLike | None
    plot: PathLike | None
    leads: bool = True
    since: float = 0.0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("checkpoint_every", 1), ("checkpoint_batches", 0)):
            value = getattr(self, name)
            if not is_whole(value) or value < least:
                raise OpscopeError(f"train: {name} wants a number from {least} on, not {value!r}")
        if self.resume not in (False, True, WEIGHTS):
            raise OpscopeError(
                f"train: resume is True, False or {WEIGHTS!r}, not {self.resume!r}; the file is"
                " named by checkpoint=PREFIX"
            )
        if self.resume and self.checkpoint is None:
            raise OpscopeError(
                f"train: resume={self.resume!r} needs checkpoint=PREFIX to resume from"
            )
        for name in ("checkpoint", "log_csv", "plot"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, (str, os.PathLike))) or value == "":
                raise OpscopeError(f"train: {name} is the name of a file, not {value!r}")
        if self.leads:
            self._check_files()

    def _check_files(self) -> None:
        if self.checkpoint is not None:
            check_writable(checkpoint_path(self.checkpoint))
        if self.log_csv is not None:
            check_writable(self.log_csv)
        if self.plot is not None:
            from ...framework.training.plot import require_matplotlib

            require_matplotlib()
            check_writable(self.plot)
