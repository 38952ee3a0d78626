"""CNTK's baseline logs: the command lines that were run, and what was logged about the networks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

# "MPI Rank 0: ", then a time, in front of a line.
_PREFIX = re.compile(r"^(?:MPI Rank (\d+): )?(?:\d\d/\d\d/\d{4} \d\d:\d\d:\d\d: ?)?", re.MULTILINE)
_SHAPE = re.compile(r"Validating --> (\S+) = .* -> \[([^\]]*)\]")


@dataclass
class Logged:
    """What a log says about the network of one command."""

    nodes: int | None = None
    parameters: int | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass
class Run:
    """One run of CNTK in a log: its config files, further arguments, and the commands' networks."""

    log: Path
    configs: list[str]
    arguments: dict[str, str]
    commands: dict[str, Logged]


def read_log(path: Path) -> list[Run]:
    """The runs of a baseline log; of several ranks the first counts."""
    text = path.read_text(encoding="utf-8", errors="replace").replace("\r", "")
    ranks = {match.group(1) for match in _PREFIX.finditer(text) if match.group(1)}
    lines = []
    for line in text.split("\n"):
        match = _PREFIX.match(line)
        if match.group(1) in (None, "0") or len(ranks) < 2:
            lines.append(line[match.end() :])
    starts = [n for n, line in enumerate(lines) if re.search(r"\s\sconfigFile=", line)]
    runs: list[Run] = []
    for start, end in zip(starts, [*starts, len(lines)][1:], strict=True):
        words = [word.strip() for word in re.split(r"\s\s+", lines[start]) if "=" in word]
        pairs = [tuple(word.split("=", 1)) for word in words]
        configs = [name for key, value in pairs if key == "configFile" for name in value.split("+")]
        arguments = {key: value for key, value in pairs if key != "configFile"}
        found = _commands("\n".join(lines[start:end]))
        if runs and (runs[-1].configs, runs[-1].arguments) == (configs, arguments):
            runs[-1].commands = found or runs[-1].commands
        else:
            runs.append(Run(path, configs, arguments, found))
    return runs


def _commands(text: str) -> dict[str, Logged]:
    parts = re.split(
        r"^# (\S+) command \((?:train|edit|adapt|trainRNN) action\).*", text, flags=re.M
    )
    found: dict[str, Logged] = {}
    for name, part in zip(parts[1::2], parts[2::2], strict=True):
        part = re.split(r"^# \S+ command \(", part, flags=re.M)[0]
        nodes = re.search(r"Model (?:has|with) (\d+) nodes", part)
        parameters = re.search(r"Training (\d+) parameters", part)
        shapes = {}
        for node, dims in _SHAPE.findall(part):
            words = [d for d in dims.split(" x ") if d and not d.startswith("*")]
            if all(d.isdigit() and d != "0" for d in words):  # 0: not known in the first pass
                shapes[node] = tuple(map(int, words))
        found[name] = Logged(
            int(nodes.group(1)) if nodes else None,
            int(parameters.group(1)) if parameters else None,
            shapes,
        )
    return found


def find_runs(folder: Path) -> dict[Path, list[Run]]:
    """All runs of the baseline logs below `folder`, by the last config file they name."""
    runs: dict[Path, list[Run]] = {}
    for path in sorted(folder.rglob("baseline*.txt")):
        for run in read_log(path):
            files = config_files(run, folder)
            if not files:
                continue
            known = runs.setdefault(files[-1], [])
            same = [other for other in known if _plain(other) == _plain(run)]
            if not same:
                known.append(run)
            for other in same:
                other.commands = {**run.commands, **other.commands}
    return runs


def config_files(run: Run, folder: Path) -> list[Path]:
    """The config files of a run in the snapshot; none if one is not there."""
    files: list[Path] = []
    for name in run.configs:
        file = local(name, folder)
        if file is None and files:
            file = files[-1].parent / name
        if file is None or not file.is_file():
            return []
        files.append(file)
    return files


def _plain(run: Run) -> dict[str, str]:
    """The arguments that change the network: no folders and no devices."""
    skip = ("dir", "directory", "deviceid", "stderr", "timestamping", "numcputhreads")
    return {k: v for k, v in run.arguments.items() if not k.lower().endswith(skip)}


def local(path: str, folder: Path) -> Path | None:
    """Where a path of the machine of a log is below `folder`."""
    parts = re.split(r"[/\\]+", path)
    for top in ("Tests", "Examples"):
        if top in parts:
            return folder.joinpath(*parts[len(parts) - 1 - parts[::-1].index(top) :])
    return None
