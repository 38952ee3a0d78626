"""Every config, NDL, MEL and BrainScript file of a CNTK snapshot: is it read, is its network built?

    python benchmarks/cntk_corpus.py FOLDER [--only TEXT] [--failures] [--check]

Each `.cntk`, `.ndl`, `.mel` and `.bs` file is parsed. Then the commands of each config run as far
as networks go: what builders describe is built and validated, edit scripts change the models of
earlier commands, in memory. The arguments are those of the snapshot's baseline logs, where there
is one; node counts, parameter counts and shapes are compared with those logged. A variable that a
config wants from the command line, and no log has, gets the value of `SUPPLIED`, or a folder.

With `--check` each config goes through `opscope cntk check` instead, with the same arguments.
Errors about files that the snapshot lacks are told apart, and those of `TRUE_ERRORS`, which CNTK's
own source confirms; the exit code is 1 if there are others.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cntk_baselines import Logged, Run, config_files, find_runs, local

from opscope.cntk.actions.checks.checker import Checker
from opscope.cntk.actions.checks.models import Models
from opscope.cntk.actions.checks.report import ERROR, Problem, Report
from opscope.cntk.actions.checks.scripts import parse_sections
from opscope.cntk.brainscript.language.parser import parse_members
from opscope.cntk.config import ConfigParameters, commands, parse_command_line
from opscope.cntk.config.commands import Command
from opscope.cntk.config.files import read_config_text, read_source
from opscope.cntk.mel import edit_section, parse_mel_file
from opscope.cntk.ndl.builder import parse_ndl_file
from opscope.cntk.network.network import Network
from opscope.cntk.programs.check import check_file
from opscope.cntk.run.build import Seeds, build_section_network, builder_of
from opscope.framework.base.errors import FormatError, OpscopeError

# Values of variables that configs take from the command line and that no log tells.
SUPPLIED = {
    "DeviceId": "-1",
    "deviceNumber": "-1",
    "precision": "float",
    "labelDim": "183",
    "featDim": "880",
    "baseFeatDim": "80",
    "RowSliceStart": "800",
    "scaleFactor": "0.1",
    "smoothFactor": "0.1",
    "action": "write",
    "numThreads": "1",
    "minibatchSize": "20",
    "numUttsPerMinibatch": "4",
    "lratePerSample": "0.001",
    "lratePerMB": "0.1",
    "momentum": "0.9",
    "l2RegWeight": "0",
    "dropoutRate": "0",
    "clippingThresholdPerSample": "1",
    "maxEpochs": "3",
    "evaluatePeriod": "100",
    "truncated": "true",
    "featureTransform": "NO_FEATURE_TRANSFORM",
    "phnDim": "45",
    "criterion": "smbr",
    "acwt": "0.1",
    "oneSilenceClass": "true",
    "silPhoneList": "1:2",
}
# Files that shell scripts of the snapshot copy beside a config before they run it.
COPIED = {
    "CNTK2_dnn_ndl_deprecated.cntk": {"model.ndl": "dnn_6layer.ndl"},
    "CNTK2_lstmp_ndl_deprecated.cntk": {"model.ndl": "lstmp-3layer-highway-dropout.ndl"},
    "CNTK2_lstmp_smbr_ndl_deprecated.cntk": {
        "model.ndl": "lstmp-3layer-highway-dropout.ndl",
        "edit.mel": "lstmp-smbr.mel",
    },
    "CNTK2_smbr_ndl_deprecated.cntk": {
        "model.ndl": "dnn_6layer_smbr.ndl",
        "edit.mel": "CNTK2_dnn_smbr.mel",
    },
    "CNTK2_ndl_deprecated.cntk": {"model.ndl": "dnn_6layer.ndl"},
    "CNTK_ndl_deprecated.cntk": {"model.ndl": "dnn_6layer.ndl"},
}
_UNKNOWN = re.compile(
    r"No variable found with the name (\w+)|the variable (\w+) is defined by itself"
    r"|No value given for '(\w+)'"
)
_FILE = re.compile(r"error opening file '(.*?)'|no earlier command makes the model (\S+)")
_PART = re.compile(r"required parameter missing: \S+:train, named in \S+:command")
# What `check` rightly says of the snapshot's configs, and where CNTK says it.
TRUE_ERRORS = {
    r"^<command line>": "a value that the shell's script gives, and this one does not know",
    r"reader type 'KaldiReader'|writer type 'KaldiWriter'": "Source/Readers has no such plug-in any"
    " more",
    r"Use of 'type' parameter is deprecated": "CNTK.cpp:808",
    r"setting Truncated only in reader section": "CNTK.cpp:161",
    r"No value given for": "Config.h:863: the user fills it in",
    r"cropType is one of": "ImageConfigHelper.cpp:144",
    r"'truncated' needs frameMode": "HTKMLFReader.cpp:335; HTKLMFReaderTests.cpp:133 expects it",
    r"You must specify either 'writer'or 'outputPath'": "EvalActions.cpp:264",
    r"missing: \S+:(SGD|reader)$|missing: \S+:\w+_Test\b.* named|No network builder found": "no run"
    " of its own: a part of another config, or of a unit test that takes its reader",
}
SCRATCH = "{scratch}"  # stands for the temporary folder of a run


@dataclass
class Result:
    """What came of one file."""

    path: str
    parsed: str = ""  # what the parser refused, if it did
    built: int = 0
    failures: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # what a network needs and nobody has
    compared: int = 0
    shapes: int = 0
    differences: list[str] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)  # by `check`: kind and text


def parse(path: Path) -> str:
    """What the parser of the file's language says against it; empty if nothing."""
    try:
        if path.suffix == ".bs":
            parse_members(read_source(path), lambda name, near: read_source(near_file(near, name)))
        elif path.suffix == ".ndl":
            parse_ndl_file(read_config_text(path), path.name)
        elif path.suffix == ".mel":
            parse_mel_file(read_config_text(path), path.name)
        else:
            report = Report()
            parse_sections(ConfigParameters(read_config_text(path), path.name), report)
            return report.problems[0][1] if report.problems else ""
    except OpscopeError as error:
        return str(error)
    return ""


def near_file(near: object, name: str) -> Path:
    """The path of an included file, beside the file that includes it."""
    return Path(near.name).parent / name


def load_made(models: Models, name: str | Path) -> Network:
    """A copy of a model that an earlier command made.

    Raises:
        FormatError: none makes it.
    """
    network = models.find(name)
    if network is None:
        raise FormatError(f"no earlier command makes the model {name}")
    return network


def run_config(path: Path, run: Run | None, folder: Path, result: Result) -> None:
    """Build the networks of one config as one run had them."""
    supplied: dict[str, str] = {}
    while True:
        with tempfile.TemporaryDirectory() as scratch:
            attempt = Result(result.path)
            missing = _attempt(path, run, folder, Path(scratch), supplied, attempt)
        if missing is None or missing in supplied or len(supplied) > 50:
            break
        supplied[missing] = supply(missing, path)
    result.built += attempt.built
    result.compared += attempt.compared
    result.shapes += attempt.shapes
    for name in ("failures", "absent", "differences"):
        own = getattr(result, name)
        own += [text for text in getattr(attempt, name) if text not in own]


def check_config(path: Path, run: Run | None, folder: Path, result: Result) -> None:
    """What `check` tells of one config as one run had it: absent files are told apart."""
    supplied: dict[str, str] = {}
    while True:
        with tempfile.TemporaryDirectory() as scratch:
            arguments = prepared(path, run, folder, Path(scratch), supplied)
            main = next(a.partition("=")[2] for a in arguments if a.startswith("configFile="))
            others = [a for a in arguments if a != f"configFile={main}"]
            report = check_file(main, extra=others)
            missing = {m for p in report.errors if (m := missing_variable(p.text)) is not None}
            missing -= supplied.keys()
            if not missing or len(supplied) > 50:
                break
        supplied |= {name: supply(name, path) for name in missing}
    if any(_PART.search(problem.text) for problem in report.errors):
        report.recorded = [p for p in report.recorded if not _PART.search(p.text)]
        check_readers(path, report)
        result.told.append(("part", "no `command`, no section `train`: its readers were checked"))
    for problem in report.recorded:
        kind = _kind(problem)
        text = (kind, problem.text.split("\n")[0].replace(scratch, SCRATCH)[:300])
        if text not in result.told:
            result.told.append(text)


def _kind(problem: Problem) -> str:
    if problem.severity == ERROR and problem.file:
        return "absent file"
    line = problem.text.split("\n")[0]
    if problem.severity == ERROR and any(re.search(known, line) for known in TRUE_ERRORS):
        return "true error"
    return problem.severity


def check_readers(path: Path, report: Report) -> None:
    """Check all readers of a config that is no run of its own: unit tests read them."""
    config = parse_command_line([f"configFile={path}"])
    checker = Checker(report)
    for name in config:
        if config.is_section(name) and ConfigParameters(config.raw(name)).holds("reader"):
            checker.reader(config.section(name), None)


def supply(name: str, path: Path) -> str:
    """The value of a variable that the command line gives: what a script of the snapshot would."""
    if name.lower() == "command":
        config = parse_command_line([f"configFile={path}"])
        sections = [n for n in config if config.is_section(n)]
        return ":".join(n for n in sections if ConfigParameters(config.raw(n)).holds("action"))
    if name.lower() == "lratepersample" and "_smbr_" in path.name:
        return "0.00001"  # train_cntk2_smbr.sh
    known = {key.lower(): value for key, value in SUPPLIED.items()}
    return known.get(name.lower()) or _folder_for(name, path)


def _folder_for(name: str, path: Path) -> str:
    """The value of a variable that names a folder, or a file in it: where the snapshot has such
    files, else in the folder of the run."""
    of_scripts = re.search(r"ndl|mel|config|macro", name, re.IGNORECASE)
    if name.lower() == "ndlfile":
        return str(path.parent / "dnn_6layer.ndl")
    if of_scripts:
        return str(path.parent)
    is_folder = re.search(r"dir|folder|root|path", name, re.IGNORECASE)
    return SCRATCH if is_folder else f"{SCRATCH}/{name}"


def _copy_scripts(path: Path, scratch: Path) -> None:
    """What shell scripts do before a run: scripts beside the config are copied to its folders."""
    for name in ("", "configs", "ndl"):
        (scratch / name).mkdir(exist_ok=True)
        for file in (*path.parent.glob("*.ndl"), *path.parent.glob("*.mel")):
            shutil.copy(file, scratch / name / file.name)
        for target, source in COPIED.get(path.name, {}).items():
            if (path.parent / source).exists():
                shutil.copy(path.parent / source, scratch / name / target)


def prepared(
    path: Path, run: Run | None, folder: Path, scratch: Path, supplied: dict[str, str]
) -> list[str]:
    """The arguments of a run on this machine, whose folders and scripts are there."""
    _copy_scripts(path, scratch)
    files = config_files(run, folder) if run is not None else [path]
    current = local((run.arguments if run is not None else {}).get("currentDirectory", ""), folder)
    os.chdir(current if current is not None and current.is_dir() else _data_folder(path))
    arguments = [f"configFile={file}" for file in files]
    arguments += _arguments(run, path, folder, scratch)
    arguments += [f"{name}={value}" for name, value in supplied.items()]
    return [argument.replace(SCRATCH, str(scratch)) for argument in arguments]


def _data_folder(path: Path) -> Path:
    """Where a test of the snapshot runs: in the folder of its data, if the snapshot has it."""
    cases = path.with_name("testcases.yml")
    found = cases.exists() and re.search(r"^dataDir: *(\S+)", cases.read_text(), re.MULTILINE)
    folder = path.parent / found[1] if found else path.parent
    return folder.resolve() if folder.is_dir() else path.parent


def _attempt(
    path: Path,
    run: Run | None,
    folder: Path,
    scratch: Path,
    supplied: dict[str, str],
    result: Result,
) -> str | None:
    """One try; the name of a variable that is missing, if one is."""
    arguments = prepared(path, run, folder, scratch, supplied)
    try:
        config = parse_command_line(arguments)
        listed = all_commands(config, supplied)
    except OpscopeError as error:
        missing = missing_variable(error)
        if missing is None or missing in supplied:
            result.failures.append(first_line(error))
        return missing
    models, seeds = Models(), Seeds()
    for command in listed:
        try:
            missing = build_command(command, models, seeds, result, run)
        except OpscopeError as error:
            missing = missing_variable(error)
            if missing is None or missing in supplied:
                text = f"{command.name}: {first_line(error)}"
                (result.absent if _is_absent(error, folder) else result.failures).append(text)
                missing = None
        if missing is not None:
            return missing
    return None


def _is_absent(error: OpscopeError, folder: Path) -> bool:
    """Whether an error is about a file that is nowhere in the snapshot."""
    found = _FILE.search(str(error))
    name = re.split(r"[/\\]", next(filter(None, found.groups())))[-1] if found else ""
    return bool(found) and next(folder.rglob(name), None) is None


def missing_variable(error: OpscopeError | str) -> str | None:
    found = _UNKNOWN.search(str(error))
    return next(filter(None, found.groups())) if found else None


def _arguments(run: Run | None, path: Path, folder: Path, scratch: Path) -> list[str]:
    """The `name=value` of a run, with this machine's folders."""
    values = {"RunDir": scratch, "OutputDir": scratch, "DataDir": scratch, "ConfigDir": path.parent}
    out = {name.lower(): f"{name}={value}" for name, value in values.items()}
    for name, value in (run.arguments if run is not None else {}).items():
        lower = name.lower()
        if lower in ("currentdirectory", "stderr"):
            continue
        if re.match(r"[A-Za-z]:[/\\]|/", value):
            value = str(local(value, folder) or scratch / re.split(r"[/\\]", value)[-1])
        if lower not in ("rundir", "outputdir"):
            out[lower] = f"{name}={value}"
    return list(out.values())


def all_commands(config: ConfigParameters, supplied: dict[str, str]) -> list[Command]:
    """The listed commands and behind them the other sections that say what they do."""
    listed: list[Command] = []
    sections = [
        name
        for name in config
        if config.has_value(name)
        and config.raw(name).string.startswith("[")
        and (config.section(name).has("action") or builder_of(config.section(name)))
    ]
    asked = [] if "command" in supplied or "action" in supplied else config.array("command", "")
    here = [str(name) for name in asked if str(name) in config]
    if here:
        config.insert("command", ":".join(here))
        listed = commands(config)
    names = {command.name.lower() for command in listed}
    rest = [name for name in sections if name.lower() not in names]
    if rest:
        config.insert("command", ":".join(rest))
        listed += commands(config)
    return listed


def build_command(
    command: Command, models: Models, seeds: Seeds, result: Result, run: Run | None
) -> None:
    section = command.parameters
    builder = builder_of(section)
    actions = {action.lower() for action in command.actions}
    if "edit" in actions and "editPath" in section:
        edit_section(
            section, seeds.ndl, partial(load_made, models), lambda n, name: models.store(name, n)
        )
        result.built += 1
    elif builder is not None and (actions & {"train", "trainrnn", "adapt", "edit"}):
        path = _model_path(section, "outputModelPath" if "edit" in actions else "modelPath")
        network = models.started(path)  # training goes on with a model that is there
        if network is None:
            network = build_section_network(
                section, seeds, partial(load_made, models), lambda line: None
            ).network
        result.built += 1
        models.store(path, network)
        if run is not None and command.name in run.commands:
            _compare(command.name, network, run.commands[command.name], result)


def _model_path(section: ConfigParameters, key: str) -> str:
    """Where a command writes its model; examples leave it to be filled in."""
    try:
        return section.string(key)
    except FormatError:
        return "model"


def _compare(name: str, network: Network, logged: Logged, result: Result) -> None:
    """Note where a network is not that of the log."""
    below = network.below(network.groups["criterion"][:1])
    trained = sum(math.prod(n.shape) for n in below if n.is_parameter and n.learning_rate)
    pairs = [("nodes", len(network), logged.nodes), ("parameters", trained, logged.parameters)]
    for node, shape in logged.shapes.items():
        found = network.find(node).shape if node in network else None
        pairs.append((node, found, shape))
    result.compared += 1
    result.shapes += len(logged.shapes)
    for what, ours, theirs in pairs:
        if theirs is not None and ours != theirs:
            result.differences.append(f"{name}: {what}: {ours}, logged {theirs}")


def first_line(error: OpscopeError) -> str:
    """An error in one line."""
    return str(error).split("\n")[0][:300]


def check_all(folder: Path, runs: dict[Path, list[Run]], only: str) -> int:
    """Check all files of a snapshot; 1 if there is an error that is not known to be true."""
    totals: Counter[str] = Counter()
    for path in sorted(p for s in ("cntk", "ndl", "mel", "bs") for p in folder.rglob(f"*.{s}")):
        name = str(path.relative_to(folder))
        if only not in name:
            continue
        result = Result(name)
        if path.suffix == ".cntk":
            for run in runs.get(path) or [None]:
                check_config(path, run, folder, result)
        else:
            report = check_file(path, parse_only=True)
            result.told = [(p.severity, p.text.split("\n")[0]) for p in report.recorded]
        kinds = Counter(kind for kind, _ in result.told)
        totals.update({"files": 1, **kinds})
        totals["files with errors"] += kinds[ERROR] > 0
        print(name)
        for kind, text in result.told:
            print(f"    {kind}: {text}")
    print("; ".join(f"{count} {name}" for name, count in totals.items()))
    return 1 if totals[ERROR] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--check", action="store_true", help="what `check` tells of each config")
    parser.add_argument("--failures", action="store_true", help="show only what is not right")
    options = parser.parse_args()
    folder = options.folder.resolve()
    runs = find_runs(folder)
    if options.check:
        return check_all(folder, runs, options.only)
    totals: Counter[str] = Counter()
    start = time.perf_counter()
    for path in sorted(p for s in ("cntk", "ndl", "mel", "bs") for p in folder.rglob(f"*.{s}")):
        name = str(path.relative_to(folder))
        if options.only not in name:
            continue
        result = Result(name, parse(path))
        if path.suffix == ".cntk" and not result.parsed:
            for run in runs.get(path) or [None]:
                run_config(path, run, folder, result)
        totals.update(
            files=1,
            parsed=not result.parsed,
            built=result.built,
            failed=len(result.failures),
            absent=len(result.absent),
            compared=result.compared,
            shapes=result.shapes,
            different=bool(result.differences),
        )
        bad = [result.parsed] if result.parsed else []
        bad += result.failures + [f"differs: {text}" for text in result.differences[:4]]
        bad += [f"not in the snapshot: {text}" for text in result.absent]
        if bad or not options.failures:
            counts = f"{result.built} built" if path.suffix == ".cntk" else ""
            counts += f", {result.compared} as logged" if result.compared else ""
            print(f"{'no ' if result.parsed else 'ok '} {name}  {counts}")
            for text in bad:
                print("      " + text.split("\n")[0])
    whole = totals["built"] + totals["failed"]
    share = 100 * totals["built"] / whole if whole else 0
    print(
        f"{totals['parsed']} of {totals['files']} files parsed; {totals['built']} of {whole} "
        f"networks built ({share:.1f}%), {totals['absent']} more need a file that is absent; "
        f"{totals['compared']} compared with logs ({totals['shapes']} nodes), files with "
        f"differences: {totals['different']}; {time.perf_counter() - start:.0f} s"
    )
    return 0 if totals["parsed"] == totals["files"] else 1


if __name__ == "__main__":
    sys.exit(main())
