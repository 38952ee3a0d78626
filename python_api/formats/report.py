"""What a conversion is given, and what it tells: `Options`, `Job`, `ConversionReport`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from ...bridges.onnx.export.checking import error_of
from ...framework.base.errors import OpscopeError, RunError

BOUND = 1e-4
"""The largest error that a conversion may have where no other one is given."""
VALUES = ".values.safetensors"
"""What the file with the numbers of generated code is called, after the stem of its name; a saved
net `NAME.pb` beside `NAME.py` has `NAME.safetensors`."""


@dataclass(frozen=True)
class Options:
    """What some conversions take; see `convert`."""

    outputs: tuple[str, ...] = ()
    context: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    transition_model: str | None = None
    text: bool = False
    frame_subsampling_factor: int | None = None
    shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    original: str | None = None
    states: str | None = None
    bound: float = BOUND

    def check(self, taken: Sequence[str], what: str) -> None:
        """Refuse what is given and has no effect.

        Raises:
            OpscopeError: an option is set that the conversion does not take.
        """
        usual = Options()
        for each in fields(self):
            name = each.name
            if name not in (*taken, "bound") and getattr(self, name) != getattr(usual, name):
                shown = "output" if name == "outputs" else name.replace("_", "-")
                raise OpscopeError(f"--{shown.removesuffix('s')} has no meaning for {what}")


@dataclass
class ConversionReport:
    """What `convert` has done; `print` shows it.

    Attributes:
        source, target: paths. was, became: what the files are, for people.
        lost: what the target does not hold.
        error: the largest one of all outputs, of values above 1 relative to them; of data of all
            values. None where nothing could be computed: `note` says why.
        cases: how many random inputs were computed.
        facts: about what was written: inputs, contexts, what to set elsewhere.
        note: how it was checked.
    """

    source: str
    target: str
    was: str = ""
    became: str = ""
    lost: list[str] = field(default_factory=list)
    error: float | None = None
    cases: int = 0
    facts: list[str] = field(default_factory=list)
    note: str = ""

    def __str__(self) -> str:
        lines = [f"{self.target}: {self.became}, from {self.source} ({self.was})", *self.facts]
        lines += [f"lost: {text}" for text in self.lost]
        if self.error is None:
            return "\n".join([*lines, f"not checked: {self.note}"])
        on = f" on {self.cases} random input{'s' * (self.cases != 1)}" if self.cases else ""
        note = f" ({self.note})" if self.note else ""
        return "\n".join([*lines, f"checked: maximum error {self.error:.3g}{on}{note}"])


@dataclass
class Job:
    """A conversion that is under way.

    Attributes:
        report: what is reported of it. options: what was asked for.
        value: the source, read. kind: of the source, see `bridges.recognize.kinds`.
    """

    report: ConversionReport
    options: Options
    value: object
    kind: str

    @property
    def target(self) -> str:
        """The path to write."""
        return self.report.target

    def lose(self, *texts: str) -> None:
        """Note what is lost; empty texts are nothing."""
        self.report.lost += [text for text in texts if text and text not in self.report.lost]

    def compare(self, name: str, actual: np.ndarray, wanted: np.ndarray) -> None:
        """Compare values of the converted model with the source.

        Raises:
            RunError: they differ by more than the bound, or in shape.
        """
        actual, wanted = np.asarray(actual), np.asarray(wanted)
        if actual.shape != wanted.shape:
            raise RunError(
                f"{self.report.target}: not written: {name!r} would be {list(actual.shape)}, in"
                f" {self.report.source} it is {list(wanted.shape)}"
            )
        worst = float(error_of(actual, wanted).max()) if wanted.size else 0.0
        if not worst <= self.options.bound:
            raise RunError(
                f"{self.report.target}: not written: {name!r} would differ by {worst:.3g} from"
                f" {self.report.source}; at most {self.options.bound:g} is allowed"
            )
        self.report.error = max(self.report.error or 0.0, worst)
