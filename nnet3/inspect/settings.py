"""How a request is compiled: passes, mode of the components, shortcut."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..optimize import PASSES, OptimizeOptions


@dataclass(frozen=True)
class CompileOptions:
    """The options of a compilation.

    Attributes:
        passes: the switches of the passes; None: none runs.
        test_mode: batch normalization takes its statistics, and nothing is random; False: each
            component computes in the mode that it is in.
        shortcut: a request for many like sequences is compiled for two of them and expanded.
    """

    passes: OptimizeOptions | None
    test_mode: bool
    shortcut: bool

    def running(self) -> list[str]:
        """The names of the passes that run, in order."""
        if self.passes is None:
            return []
        return [step.name for step in PASSES if step.runs(self.passes)]

    def __str__(self) -> str:
        """The passes that run, then the options that differ from their defaults."""
        lines = [f"passes      {', '.join(self.running()) or 'none'}"]
        if self.passes is not None:
            changed = [
                f"{field.name}={getattr(self.passes, field.name)}"
                for field in fields(self.passes)
                if getattr(self.passes, field.name) != field.default
            ]
            lines.append(f"changed     {', '.join(changed) or 'nothing'}")
        lines.append(f"test mode   {'yes' if self.test_mode else 'as the components are'}")
        lines.append(f"shortcut    {'yes' if self.shortcut else 'no'}")
        return "\n".join(lines)

    def to_kaldi(self) -> str:
        """The options as Kaldi's programs take them, a line each."""
        options = self.passes or OptimizeOptions.none()
        lines = [f"--optimization.optimize={_shown(self.passes is not None and options.optimize)}"]
        for field in fields(options):
            if field.name not in ("optimize", "skip"):
                name = field.name.replace("_", "-")
                lines.append(f"--optimization.{name}={_shown(getattr(options, field.name))}")
        lines.append(f"--use-shortcut={_shown(self.shortcut)}")
        return "\n".join(lines) + "\n"


def _shown(value: bool | int) -> str:
    return str(value).lower()
