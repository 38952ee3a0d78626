"""Every config of a CNTK snapshot, run on made data: do its trainings run, does the loss fall?

    python benchmarks/cntk_training.py SNAPSHOT [--only TEXT] [--every N] [--limit SECONDS]
        [--json FILE]

For each config the data of all its readers are made (`cntk_made_data`), and its commands run by
`opscope cntk` with the arguments of the baseline log, where there is one. Changed are folders, the
device, and the length of trainings: a few epochs over some dozens of samples, in small minibatches.
A config that holds nothing but readers, for unit tests, trains a linear network on each of them;
so does a label file, with which the snapshot's examples train. The table has the criterion of each
training in the first epoch and in the last; the exit code is 1 where one does not fall, or a
command fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from cntk_baselines import Run, find_runs
from cntk_corpus import (
    TRUE_ERRORS,
    Result,
    all_commands,
    build_command,
    missing_variable,
    prepared,
    supply,
)
from cntk_made_data import MadeData, make, sentences, streams_of, writer_lists

from opscope.cntk.actions.checks.models import Models
from opscope.cntk.actions.command_line import run_config as run_commands
from opscope.cntk.actions.common import Run as Job
from opscope.cntk.actions.common import reader_of
from opscope.cntk.config import ConfigParameters, parse_command_line
from opscope.cntk.config.commands import Command, commands
from opscope.cntk.models.open_model import open_model
from opscope.cntk.network.network import Network
from opscope.cntk.readers.base.htk_files import write_htk
from opscope.cntk.readers.base.minibatches import minibatches
from opscope.cntk.readers.htk.mlf import read_mlf, read_states
from opscope.cntk.run.build import Seeds, builder_of
from opscope.framework.base.errors import OpscopeError

SAMPLES = 24

PARTS = {
    "PennTreebank/AdditionalFiles/RNNLM/CPU/global.cntk": "fnnlm.cntk",
    "PennTreebank/AdditionalFiles/RNNLM/GPU/global.cntk": "fnnlm.cntk",
    "TIMIT/config/globals.cntk": "TIMIT_TrainSimpleNetwork.cntk",
    "Miscellaneous/SLU/Config/globals.cntk": "rnnlu.cntk",
    "Image/AlexNet/AlexNetCommon.cntk": "AlexNet.cntk",
    "Image/AlexNet/AlexNetComposite.cntk": "AlexNetCommon.cntk",
    "LM/RNNLM/CPU/global.cntk": "rnnlm.cntk",
    "Text/SLU/globals.cntk": "rnnlu.cntk",
}
"""Configs that are parts of others, and such a one in the same folder: both run as one."""

LABELS = ".mlf.cntk"
"""The ending of label files, which are no configs."""

_SIMPLE = ("TIMIT_TrainSimpleNetwork.cntk", "modelPath")
_DNN = ("CNTK2_dnn_ndl_deprecated.cntk", "modelPath")
MODELS = {
    "TIMIT_CrossValidateSimpleNetwork.cntk": _SIMPLE,
    "TIMIT_EvalSimpleNetwork.cntk": _SIMPLE,
    "TIMIT_WriteBottleneck.cntk": ("TIMIT_TrainAutoEncoder_ndl_deprecated.cntk", "modelPath"),
    "TIMIT_WriteScaledLogLike.cntk": _SIMPLE,
    "AMI/cntk_config/Align.cntk": _DNN,
    "CNTK2_write.cntk": _DNN,
    "CNTK2_smbr_ndl_deprecated.cntk": (_DNN[0], "oldModel"),
    "CNTK2_lstmp_smbr_ndl_deprecated.cntk": ("CNTK2_lstmp_ndl_deprecated.cntk", "oldModel"),
    "ModelExport/Model0/0.cntk": ("../../Speech/DNN/cntk.cntk", "modelPath"),
    "ModelExport/Model1/1.cntk": ("../../Speech/DNN/cntk.cntk", "modelPath"),
    "fastrcnn.cntk": (
        "../../../../Tests/EndToEndTests/Image/AlexNet/AlexNetCommon.cntk",  # whose nodes it names
        "../../../../../PretrainedModels/AlexNet.model",
    ),
}
"""Configs that begin with a model: the one that trains it, which runs before, and the parameter of
their first command, or the path, where they look for it."""

_NETWORK = (
    "SimpleNetworkBuilder=[ trainingCriterion=CrossEntropyWithSoftmax ; layerTypes=Sigmoid ;"
    " evalCriterion=ClassificationError ; applyMeanVarNorm=true ; layerSizes=%s ]"
)
_FILLED_IN = {  # Config.h, ParseValue, refuses a name without a value: the user fills it in
    r"^(ExpFolder|DataFolder)=.*": r"\1=$RunDir$",
    r"^stderr=[ \t]*(#.*)?$": "",
    r"\b(scpFile|mlfFile|modelPath)=[ \t]*(#.*)?$": r"\1=$RunDir$/\1",
    # The snapshot lacks these networks: ones of the same layers take their places.
    r"NDLNetworkBuilder=\[\s*networkDescription=\S*simpleDNN_2layers.ndl\s*\]": _NETWORK
    % "1845:512*2:183",
    r"NDLNetworkBuilder=\[\s*networkDescription=\S*LSTM_1layer.ndl\s*\]": _NETWORK
    % "123:300:183 ; rnnType=LSTM ; recurrentLayer=1",
}
MENDED = {
    "RNNLM/": {r"^type\s*=": "precision="},  # CNTK.cpp, wmainOldCNTKConfig, refuses `type`
    # ImageConfigHelper.cpp, ParseCropType, knows no such crop.
    "BN-Inception.cntk": {
        r'\bcropType *= *"Random"': "cropType = RandomSide",
        r"\bcropRatio\b": "sideRatio",
    },
    # The network that is trained, and run on the same file, has fewer regions than are read for it.
    "fastrcnn.cntk": {
        r"^NumTestROIs = 2000": "NumTestROIs = $NumTrainROIs$",
        r"^TestROIDim = 4000": "TestROIDim = $TrainROIDim$",
        r"^TestROILabelDim = 22000": "TestROILabelDim = $TrainROILabelDim$",
    },
    "TIMIT/CPU/": _FILLED_IN,
    "TIMIT/GPU/": _FILLED_IN,
}
"""Lines that CNTK refuses, by a part of the paths of configs, and what stands there instead."""

RISES = {"sequenceTrain"}
"""Commands whose criterion learning raises: SequenceWithSoftmax tells the numerator less the
denominator (CNTK's gammacalculation.h, line 212); it rises in CNTK's recorded log of it as well."""

_TRAIN = {"train", "trainrnn", "adapt"}
_BANNER = re.compile(r"^# (\S+) command \((\w+) action\).*", re.MULTILINE)
_EPOCH = re.compile(r"Finished Epoch\[ *(\d+) of \d+\]: \[Training\] (\S+) = (\S+) \* (\d+)")
_UTTERANCES = 8  # of a label file
_MOST = 80  # variables that the command line gives


@dataclass(frozen=True)
class Way:
    """How a training is shortened.

    Attributes:
        epochs: how many. own: whether minibatches have the config's own size, and are not smaller.
        rate: share of the config's learning rates.
    """

    epochs: int
    own: bool = True
    rate: float = 1.0


WAYS = Way(3, own=False), Way(8), Way(8, rate=0.1)
"""Each is tried where the loss does not fall in the one before: rates of a minibatch are made for
larger ones than ours, and for more data."""
COSTLY = Way(3, rate=0.1)
"""The second way with costly samples, of which there are few."""


@dataclass
class Training:
    """What a command did.

    Attributes:
        criterion: its name; first, last: its value in the first epoch and in the last one.
        epochs: how many. samples: of an epoch.
    """

    command: str
    action: str
    criterion: str = ""
    first: float = float("nan")
    last: float = float("nan")
    epochs: int = 0
    samples: int = 0

    @property
    def learned(self) -> bool:
        """Whether the criterion fell, or rose where it is to rise."""
        change = self.last - self.first
        return change > 0 if self.command in RISES else change < 0


@dataclass
class Row:
    """A config: its commands, and what went wrong."""

    config: str
    seconds: float = 0.0
    commands: list[Training] = field(default_factory=list)
    error: str = ""
    refused: str = ""  # why CNTK fails here as well, if it does

    @property
    def trained(self) -> list[Training]:
        """The commands that trained."""
        return [one for one in self.commands if one.action.lower() in _TRAIN]

    @property
    def good(self) -> bool:
        """Whether all ran, and each criterion fell; one that is no number did not."""
        return not self.error and all(one.learned for one in self.trained)


class Tree:
    """A copy of a snapshot in which configs run, one after the other."""

    def __init__(self, snapshot: Path, folder: Path) -> None:
        self.snapshot = snapshot
        self.folder = folder
        for part in snapshot.iterdir():
            if part.is_dir() and next(part.rglob("*.cntk"), None):
                shutil.copytree(part, folder / part.name, symlinks=True)
        for path in folder.rglob("*.cntk"):
            for part, changes in MENDED.items():
                for pattern, text in changes.items() if part in str(path) else ():
                    path.write_text(re.sub(pattern, text, path.read_text(), flags=re.MULTILINE))
        self._start = time.time_ns()

    def clean(self) -> None:
        """Take back what a run has written."""
        for top, _, names in os.walk(self.folder):
            for name in names:
                path = Path(top, name)
                if path.lstat().st_ctime_ns <= self._start:
                    continue
                path.unlink()
                source = self.snapshot / path.relative_to(self.folder)
                if source.exists():  # data that were made in its place
                    shutil.copy2(source, path)
        self._start = time.time_ns()


class _KeptModels(Models):
    """All networks that commands make."""

    def __init__(self) -> None:
        super().__init__()
        self.networks: list[Network] = []

    def find(self, name: str | Path) -> Network | None:
        """See `Models.find`; or that of a file, which another config has made."""
        network = super().find(name)
        if network is None and Path(name).is_file():
            network = open_model(name, "float").network
        return network

    def store(self, name: str | Path, network: Network) -> None:
        """See `Models.store`."""
        self.networks.append(network)
        super().store(name, network)


@dataclass
class Trial:
    """One config that runs.

    Args:
        path: of the config, in the tree.
        way: of its trainings.
        run: of a baseline log, whose arguments are taken; None: there is none.
        tree: the copy of the snapshot.
        scratch: for what is made and written.
    """

    path: Path
    way: Way
    run: Run | None
    tree: Path
    scratch: Path
    listed: list[Command] = field(default_factory=list, init=False)
    supplied: dict[str, str] = field(default_factory=dict, init=False)

    def arguments(self) -> list[str]:
        """Make all data; the words of the command line.

        Raises:
            OpscopeError: the config is wrong, or there are no data for a reader.
        """
        if self.path.name.endswith(LABELS):
            words = self._label_words()
            return words + self._changes(
                commands(parse_command_line(words)), MadeData({}, self.scratch)
            )
        supplied = self.supplied
        while True:
            words = prepared(self.path, self.run, self.tree, self.scratch, supplied)
            other = next((PARTS[part] for part in PARTS if str(self.path).endswith(part)), "")
            if other:
                words[0] += f"+{self.path.parent / other}"
            try:
                config = parse_command_line(words)
                self.listed = self._commands(config, supplied)
                made = self._make(self.listed)
                return words + self._changes(self.listed, made)
            except OpscopeError as error:
                self._supply(error)

    def _supply(self, error: OpscopeError) -> None:
        """Give the variable that an error misses; raise any other error."""
        missing = missing_variable(error)
        if missing is None or missing in self.supplied or len(self.supplied) > _MOST:
            raise error
        self.supplied[missing] = supply(missing, self.path)

    def perform(self, say: Callable[[str], None]) -> None:
        """Make all data, bring models, and run the commands."""
        while True:
            words = self.arguments()
            for part, (other, key) in MODELS.items():
                if str(self.path).endswith(part):
                    self.bring_model(other, key)
                    words = self.arguments()
            try:
                run_commands(*words, run=Job(say=say))
                return
            except OpscopeError as error:
                self._supply(error)

    def bring_model(self, other: str, key: str) -> None:
        """Train the model of another config, and put it where this one looks for it.

        Args:
            other: the other config, from the folder of this one.
            key: see `MODELS`.
        """
        target = Path(key if "/" in key else self.listed[0].parameters.string(key)).absolute()
        path = (self.path.parent / other).resolve()
        # Its own folder: a model of the same name would be that of a finished training.
        trial = Trial(path, Way(1, own=False), None, self.tree, self.scratch / "before")
        trial.perform(lambda text: None)
        trained = [one for one in trial.listed if is_training(one)]
        model = Path(trained[-1].parameters.string("modelPath")).absolute()
        target.parent.mkdir(parents=True, exist_ok=True)
        if model != target:
            shutil.copy(model, target)

    def _label_words(self) -> list[str]:
        """A config that trains with a label file, and made features for some of its utterances."""
        text = self.path.read_text()
        numbered = re.search(r"^\d+ \d+ \w+ \d+$", text, re.MULTILINE) is not None
        listed = self.path.with_name("TIMIT.statelist")
        names = None if numbered else read_states(listed)
        numbers = None if names is None else {name: at for at, name in enumerate(names)}
        states = read_mlf(self.path, numbers)
        states = dict(list(states.items())[:: -(-len(states) // _UTTERANCES)])
        dim = 1 + max(int(frames.max()) for frames in states.values())
        made = MadeData({}, self.scratch)
        lines = []
        for name, frames in states.items():
            rows = [made.row("features", 20, state) for state in frames.tolist()]
            write_htk(self.scratch / f"{name}.htk", np.array(rows))
            lines.append(f"{name}.htk={self.scratch / name}.htk\n")
        scp = self.scratch / "made.scp"
        scp.write_text("".join(lines))
        labels = f"mlfFile={self.path} ; labelDim={dim if names is None else len(names)}"
        if names is not None:
            labels += f" ; labelMappingFile={listed}"
        streams = f"features=[dim=20 ; scpFile={scp}] ; labels=[{labels}]"
        return [f"Labels=[reader=[readerType=HTKMLFReader ; {streams}]]", "command=Labels"]

    def _commands(self, config: ConfigParameters, supplied: dict[str, str]) -> list[Command]:
        """Those that the config lists, and all other trainings; else the sections of readers."""
        asked: set[str] = set()
        if "command" in config and not {"command", "action"} & supplied.keys():
            asked = {str(name).lower() for name in config.array("command", "")}
        listed = all_commands(config, supplied)
        chosen = [
            one
            for one in listed
            if one.name.lower() in asked
            or (is_training(one) and one.parameters.holds("action"))
            or one.parameters.holds("oldModel")  # makes the model that the training begins with
        ]
        if "action" in supplied:  # a user chooses one, with a network that suits it
            chosen = chosen[:1]
        return (
            chosen
            or [one for one in listed if one.parameters.holds("action")]
            or [
                Command(name, ("train",), config.section(name))
                for name in config
                if config.is_section(name) and ConfigParameters(config.raw(name)).holds("reader")
            ]
        )

    def _make(self, listed: list[Command]) -> MadeData:
        models, seeds = _KeptModels(), Seeds()
        for command in listed:
            try:
                build_command(command, models, seeds, Result(""), None)
            except OpscopeError as error:  # the run will tell
                if missing_variable(error) is not None:
                    raise
        made = MadeData(streams_of(models.networks), self.scratch, SAMPLES)
        for command in listed:
            section = command.parameters
            if "writeWordAndClass" in command.actions:
                sentences(made, section.string("inputFile"), section.int("vocabSize"))
            for name in ("reader", "cvReader"):
                if name in section and section.string(name, ""):
                    make(made, section.section(name))
        for command in listed:
            if command.parameters.has("writer"):
                writer_lists(made, command.parameters.section("writer"))
        return made

    def _changes(self, listed: list[Command], made: MadeData) -> list[str]:
        """What makes the trainings short, and networks where there are none."""
        words = [f"command={':'.join(command.name for command in listed)}"]
        words += ["deviceId=-1", "timestamping=false"]
        way = COSTLY if self.way.own and made.costly else self.way
        for command in listed:
            section = command.parameters
            parts = ["deviceId=-1"]
            name = "optimizer" if "optimizer" in section else "SGD"
            if builder_of(section) is None and (is_training(command) or not has_model(command)):
                parts.append(linear_network(section))
                if is_training(command):
                    model = self.scratch / f"{command.name}.model"
                    parts += ["action=train", f"modelPath={model}"]
                else:
                    parts.append(f"outputPath={self.scratch / 'written'}")
            if is_training(command):
                size = 1 << 20 if way.own else made.minibatch
                if name in section:
                    size = min([size, *section.section(name).array("minibatchSize", "32").ints()])
                short = f"{name}=[maxEpochs={way.epochs};epochSize=0;minibatchSize={size}]"
                if way.rate < 1:
                    short = short.replace("]", f"{_slower(section.section(name), way.rate)}]")
                if "reader" in section and section.section("reader").has("truncated"):
                    # CNTK wants it to be said outside of the reader as well.
                    value = section.section("reader").string("truncated")
                    short = short.replace("]", f";truncated={value}]")
                (words if name in section and not section.holds(name) else parts).append(short)
            if any(action.lower() == "bnstat" for action in command.actions):
                # All that is below a node runs in each of its minibatches, for up to 155 nodes.
                parts += ["minibatchSize=1", "itersPerNode=1"]
            words.append(f"{command.name}=[{';'.join(parts)}]")
        return words


def _slower(section: ConfigParameters, share: float) -> str:
    """Settings of SGD with a share of a section's learning rates."""
    parts = []
    for key in ("learningRatesPerMB", "learningRatesPerSample"):
        if key in section:
            rates = ":".join(f"{rate * share:g}" for rate in section.array(key).floats())
            parts.append(f";{key}={rates}")
    return "".join(parts)


def is_training(command: Command) -> bool:
    """Whether one of a command's actions trains."""
    return bool(_TRAIN & {action.lower() for action in command.actions})


def has_model(command: Command) -> bool:
    """Whether a command names a model, or reads none."""
    return "modelPath" in command.parameters or "write" not in command.actions


def linear_network(section: ConfigParameters) -> str:
    """The builder of a linear network on the streams of a section's reader, and its training.

    The last sparse stream is told by the others; without one, the last of several; a single stream
    tells a one.
    """
    with reader_of(section) as reader:
        streams = reader.streams
        batch = next(iter(minibatches(reader, SAMPLES)))
    target = next((one for one in reversed(streams) if one.sparse), streams[-1])
    inputs = [one for one in streams if one is not target] or [target]
    width = target.dim if len(streams) > 1 else 1
    lines = []
    square = 0.0  # of the length of an input
    for one in streams:
        lines.append(f"{one.name} = {'SparseInput' if one.sparse else 'Input'} ({one.dim})")
    for one in inputs:
        samples = batch.streams[one.name]
        square += float(np.square(samples.values).sum()) / max(int(samples.begin[-1]), 1)
    terms = [f"ParameterTensor {{({width}:{one.dim})}} * {one.name}" for one in inputs]
    lines.append(f"z = {' + '.join(terms)} + ParameterTensor {{{width}}}")
    criterion = "ReduceSum ((z - 1) .* (z - 1))"
    if len(streams) > 1:
        operation = "CrossEntropyWithSoftmax" if target.sparse else "SquareError"
        criterion = f"{operation} ({target.name}, z)"
    lines.append(f"ce = {criterion}")
    features = ":".join(one.name for one in inputs)
    lines.append(f"featureNodes = ({features}) ; criterionNodes = (ce) ; outputNodes = (z)")
    sgd = f"SGD = [ learningRatesPerSample = {0.1 / max(square, 1):g} ]"
    return f"BrainScriptNetworkBuilder = [ {' ; '.join(lines)} ] ; {sgd}"


def commands_of(log: str) -> list[Training]:
    """What the commands of a log did."""
    parts = _BANNER.split(log)
    done: dict[tuple[str, str], Training] = {}  # of the last try
    for command, action, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        training = Training(command, action)
        epochs = _EPOCH.findall(text)
        if epochs:
            training.criterion = epochs[0][1]
            training.first = float(epochs[0][2].rstrip("%"))
            training.last = float(epochs[-1][2].rstrip("%"))
            training.epochs = len(epochs)
            training.samples = int(epochs[0][3])
        done[command, action] = training
    return list(done.values())


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """A block that fails with a TimeoutError after so many seconds of processor time: what others
    compute meanwhile does not count."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError(f"not done in {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def no_output() -> Iterator[None]:
    """A block whose standard output is lost: configs write tables of Kaldi there."""
    sys.stdout.flush()
    kept = os.dup(1)
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def try_config(path: Path, run: Run | None, tree: Tree, limit: float, *, show: bool = False) -> Row:
    """Make the data of a config and run its commands, in one of `WAYS` after the other.

    Args:
        limit: seconds of processor time.
        show: whether the log is printed.
    """
    start = time.process_time()
    for way in WAYS:
        row = Row(str(path.relative_to(tree.folder)))
        log: list[str] = []
        with tempfile.TemporaryDirectory() as temporary:
            scratch = Path(temporary, "run")  # within: "$RunDir$\\file" is a file beside it
            scratch.mkdir()
            try:
                with alarm(limit), no_output():
                    Trial(path, way, run, tree.folder, scratch).perform(log.append)
            except (OpscopeError, TimeoutError) as error:
                row.error = str(error).splitlines()[0].replace(temporary, "")
            except Exception as error:  # a defect of ours: others are OpscopeErrors
                row.error = f"defect: {type(error).__name__}: {error}"
                traceback.print_exc()
        reasons = (
            why
            for known, why in TRUE_ERRORS.items()
            if re.search(known, row.error) and not row.error.startswith("<command line>")
        )
        row.refused = next(reasons, "") if row.error else ""
        if show:
            print("".join(log))
        row.commands = commands_of("".join(log))
        if not row.error and any(not one.criterion for one in row.trained):
            row.error = "no epoch in the log"
        tree.clean()
        if row.good or (row.error and "not a number" not in row.error):
            break
    row.seconds = round(time.process_time() - start, 1)
    return row


def told(row: Row) -> str:
    """A line of a table for a config."""
    losses = "; ".join(
        f"{one.command} {one.criterion} {one.first:.5g} → {one.last:.5g}" for one in row.trained
    )
    end = "ok" if row.good else row.error or "the loss does not fall"
    if row.refused:
        end = f"refused, as CNTK does ({row.refused}): {end}"
    epochs = max((one.epochs for one in row.trained), default=0)
    return f"| {row.config} | {epochs} | {losses or '—'} | {row.seconds:g} | {end} |"


def main() -> int:
    """Run the configs, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("snapshot", type=Path)
    parser.add_argument("--only", default="", help="a pattern in the paths of configs")
    parser.add_argument("--every", type=int, default=1, help="each so-many-th config")
    parser.add_argument("--limit", type=float, default=300.0, help="processor seconds of a config")
    parser.add_argument("--json", type=Path, help="a file for the table")
    parser.add_argument("--show", action="store_true", help="show command lines and logs")
    options = parser.parse_args()
    snapshot = options.snapshot.resolve()
    here = Path.cwd()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        tree = Tree(snapshot, Path(temporary).resolve())
        runs = find_runs(tree.folder)
        paths = sorted(tree.folder.rglob("*.cntk"))
        print("| config | epochs | trainings | seconds | |\n|---|---|---|---|---|")
        for path in paths[:: options.every]:
            if not re.search(options.only, str(path.relative_to(tree.folder))):
                continue
            run = (runs.get(path) or [None])[0]
            row = try_config(path, run, tree, options.limit, show=options.show)
            rows.append(row)
            print(told(row), flush=True)
            os.chdir(here)
    good = sum(row.good for row in rows)
    refused = sum(bool(row.refused) for row in rows)
    trained = sum(len(row.trained) for row in rows)
    print(
        f"{good} of {len(rows)} configs ran, and all their {trained} trainings learned; {refused}"
        " are refused as CNTK refuses them"
    )
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0 if good + refused == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
