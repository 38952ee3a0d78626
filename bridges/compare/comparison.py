"""What came of a comparison: rows, the first divergence, a table, a plot."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...framework.base.files.atomic import PathLike
from ...framework.base.untrusted.values import plain
from .plot import Bar, svg_of, write

SAME, DIFFERS, SCALED, MADE_UP = "same", "differs", "scaled", "made up for"

_COLORS = {SAME: "same", DIFFERS: "differs", SCALED: "made", MADE_UP: "made"}
_SHOWN = 6
_LARGEST = 1e30  # pages hold no infinity


@dataclass(frozen=True)
class LayerRow:
    """A layer that both models have.

    Attributes:
        name, other_name: of the layer in the first model and in the other.
        kind: its type in the first model.
        shapes: in both.
        error: the largest, `|first - other| / max(1, |first|)`; infinity where shapes or places of
            NaN differ. mean_error: of all elements.
        place, values: where the largest is in the first model, and both numbers there.
        matched: by what the pair was found: "name", "values" or "place".
        state: SAME; DIFFERS; MADE_UP, it differs, and all that comes of it is the same again; or,
            of models whose graphs differ, as where a conversion folded a batch normalization into
            the layer before: SCALED, its columns are the other's columns times positive numbers.
    """

    name: str
    other_name: str
    kind: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    error: float
    mean_error: float
    place: tuple[int, ...]
    values: tuple[float, float]
    matched: str
    state: str

    @property
    def title(self) -> str:
        """Its name, or both names."""
        mine, other = plain(self.name), plain(self.other_name)
        return mine if mine == other else f"{mine} / {other}"

    def sentence(self) -> str:
        """All of it in a line."""
        shapes = " and ".join(str(list(shape)) for shape in self.shapes)
        head = f"{self.title} ({plain(self.kind)}) {shapes}"
        numbers = f" at {list(self.place)}: {self.values[0]:.7g}, {self.values[1]:.7g}"
        where = numbers if self.place else ""
        return f"{head}; error {self.error:.3g}, mean {self.mean_error:.3g}{where}"


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison; `str` is a table and a sentence.

    Attributes:
        titles: of both models, with runtimes and dtypes where these differ.
        rows: layers that both have, in the order of the first model.
        only: layers of the first alone, and of the other alone.
        tolerance: an error above it counts. inputs: what was fed. notes: what else is to be said.
    """

    titles: tuple[str, str]
    rows: list[LayerRow]
    only: tuple[list[str], list[str]]
    tolerance: float
    inputs: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def first_divergence(self) -> LayerRow | None:
        """The first layer that differs; None: there is none."""
        return next((row for row in self.rows if row.state == DIFFERS), None)

    @property
    def same(self) -> bool:
        """Whether no layer differs."""
        return self.first_divergence is None

    @property
    def largest(self) -> float:
        """The largest error of layers that are neither scaled nor made up for."""
        return max((row.error for row in self.rows if row.state in (SAME, DIFFERS)), default=0.0)

    def numbers(self) -> dict[str, float]:
        """The error of each layer by its name in the first model, as `opscope.view(model,
        numbers=...)` takes it; infinity is written as a large number."""
        return {row.name: min(row.error, _LARGEST) for row in self.rows}

    def table(self) -> str:
        """A line for each layer that both have."""
        lines = [["layer", "error", "mean", "shape", "", ""]]
        for row in self.rows:
            mine, other = ("x".join(map(str, shape)) or "one" for shape in row.shapes)
            mark = "" if row.state == SAME else row.state
            if row is self.first_divergence:
                mark = "<- first divergence"
            by = "" if row.matched == "name" else f"by {row.matched}"
            shape = mine if mine == other else f"{mine}, {other}"
            numbers = f"{row.error:.2g}", f"{row.mean_error:.2g}"
            lines.append([row.title, *numbers, shape, by, mark])
        widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
        padded = (
            "  ".join(f"{c:{w}}" for c, w in zip(line, widths, strict=True)) for line in lines
        )
        return "\n".join(line.rstrip() for line in padded)

    def summary(self) -> str:
        """What was compared, and where the models part ways."""
        lines = [f"{self.titles[0]} and {self.titles[1]}: {self.inputs}"]
        for title, names in zip(self.titles, self.only, strict=True):
            if names:
                lines.append(f"only in {title}: {_listed(list(map(plain, names)))}")
        lines += self.notes
        for state, text in ((SCALED, "columns are scaled in"), (MADE_UP, "made up for later:")):
            names = [row.title for row in self.rows if row.state == state]
            if names:
                lines.append(f"{text} {_listed(names)}")
        first = self.first_divergence
        if first is None:
            lines.append(
                f"no layer differs by more than {self.tolerance:g}; the largest error is"
                f" {self.largest:.2g}"
            )
            return "\n".join(lines)
        where = f" at {list(first.place)}" if first.place else ""
        values = (
            ""
            if np.isnan(first.values).all()
            else f": {first.values[0]:.7g}, {first.values[1]:.7g}"
        )
        lines.append(
            f"they part ways at {first.title}: an error of {first.error:.2g}{where}{values}"
        )
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{self.table()}\n\n{self.summary()}"

    def plot(self, path: PathLike | None = None) -> str:
        """A picture of the errors, layer by layer; it needs nothing but a browser.

        Args:
            path: where it is written: `.svg`, or `.html` with the summary.

        Returns:
            The picture as SVG.

        Raises:
            VariableError: the path ends with something else. SaveError: it cannot be written.
        """
        first = self.first_divergence
        where = f"they part ways at {first.title}" if first else "no layer differs"
        folded = any(row.state in (SCALED, MADE_UP) for row in self.rows)
        text = f"{self.inputs}; largest error of each layer; {where}"
        title = " and ".join(self.titles)
        subtitle = f"{text}; gray: folded" if folded else text
        bars = [
            Bar(row.title, row.error, _COLORS[row.state], row.sentence(), row is first)
            for row in self.rows
        ]
        svg = svg_of(title, subtitle, bars, self.tolerance)
        if path is not None:
            write(path, svg, title, str(self))
        return svg

    def _repr_html_(self) -> str:
        return self.plot()


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
