"""Extending CNTK: readers and writers, configuration, computation nodes, NDL, training."""

# ruff: noqa: E501  a row of the table is a line
from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from conformance.claims.claim import Claim, Document, fails, near, parameters
from opscope.cntk import CntkNet, Minibatch, Network, Samples
from opscope.cntk.brainscript.networks import duplicate
from opscope.cntk.config import ConfigArray, commands, load_array, load_into, parse_config
from opscope.cntk.config.commands import ACTIONS
from opscope.cntk.models.v1 import format_model, parse_model
from opscope.cntk.ndl import build_ndl_section, parse_ndl
from opscope.cntk.ndl.evaluate import Evaluator
from opscope.cntk.ndl.macros import Macros
from opscope.cntk.network.catalog import kind, ndl_function, ndl_names, operations
from opscope.cntk.network.initialize import initialize
from opscope.cntk.network.nodes.node import Kind, Node
from opscope.cntk.readers import catalog
from opscope.cntk.readers.base.data import Stream
from opscope.cntk.readers.base.minibatches import minibatches
from opscope.cntk.readers.base.reader import DataReader
from opscope.cntk.readers.base.writer import DataWriter
from opscope.cntk.readers.catalog import READERS, WRITERS, create_reader, create_writer
from opscope.cntk.sgd.files import ModelFiles
from opscope.cntk.sgd.options import SgdOptions
from opscope.cntk.sgd.trainer import Trainer
from opscope.framework.base.errors import FormatError

C = Claim
CONFIG = "Source/Common/Include/Config.h"
ROWS = 10
TABLE = [(i, i * 0.5, i % 3) for i in range(ROWS)]
_FOLDER = tempfile.TemporaryDirectory()


@cache
def folder() -> Path:
    """Small data files, as UCIFastReader and CNTKTextFormatReader read them."""
    path = Path(_FOLDER.name)
    (path / "rows.txt").write_text("".join(f"{a} {b} {c}\n" for a, b, c in TABLE))
    (path / "labels.txt").write_text("0\n1\n2\n")
    (path / "two.ctf").write_text("0 |x 1 2 |y 1 0\n0 |x 3 4 |y 0 1\n1 |x 5 6 |y 1 0\n")
    (path / "more.cntk").write_text("size = 7\nname = other\n")
    (path / "list.txt").write_text("0.5\n0.25*2\n[ a = 1 ]\n")
    return path


def reader(more: str = "") -> DataReader:
    """A reader of single samples with labels."""
    at = folder()
    section = f"""readerType = UCIFastReader ; file = "{at}/rows.txt" ; randomize = none ; {more}
        features = [ start = 0 ; dim = 2 ]
        labels = [ start = 2 ; dim = 1 ; labelDim = 3 ; labelType = Category
            labelMappingFile = "{at}/labels.txt" ]"""
    return create_reader(parse_config(section))


def sequences() -> DataReader:
    """A reader of two sequences, of two samples and of one."""
    section = f"""readerType = CNTKTextFormatReader ; file = "{folder()}/two.ctf" ; randomize = false
        input = [ x = [ dim = 2 ; format = dense ] ; y = [ dim = 2 ; format = dense ] ]"""
    return create_reader(parse_config(section))


def counts(size: int, epoch: int = 0, epoch_size: int | None = None, more: str = "") -> list[int]:
    """How many samples each minibatch of an epoch has."""
    with reader(more) as source:
        source.start_minibatch_loop(size, epoch, epoch_size)
        return [minibatch.samples for minibatch in iter(source.get_minibatch, None)]


def first(size: int = 4, more: str = "", source: DataReader | None = None) -> Any:
    """The first minibatch, as arrays by the names of nodes."""
    with source or reader(more) as opened:
        opened.start_minibatch_loop(size, 0)
        minibatch = opened.get_minibatch()
        assert minibatch is not None
        dims = {stream.name: stream.dim for stream in opened.streams}
        return {name: part.dense(dims[name]) for name, part in minibatch.streams.items()}


class Noise(DataReader):
    """A reader of one's own: ones."""

    def __init__(self, config: Any) -> None:
        self.streams = [Stream("features", config.size("dim"))]

    def start_minibatch_loop(self, size: int, epoch: int, epoch_size: int | None = None) -> None:
        self._size, self._left = size, epoch_size or 5

    def get_minibatch(self) -> Minibatch | None:
        count = min(self._size, self._left)
        self._left -= count
        rows = np.ones((count, self.streams[0].dim), np.float32)
        return Minibatch({"features": Samples(np.arange(count + 1), rows)}) if count else None


class Keep(DataWriter):
    """A writer of one's own: it keeps what it is given."""

    def __init__(self, config: Any) -> None:
        self.names = [config.string("node")]
        self.kept: list[Any] = []
        self.closed = False

    def save_data(self, values: Any) -> None:
        self.kept.append({name: part.values.copy() for name, part in values.items()})

    def close(self) -> None:
        self.closed = True


def with_plugins(function: Callable[[], Any]) -> Any:
    """What a function gives while `Noise` and `Keep` are known to configs."""
    for made, maker in ((READERS, Noise), (WRITERS, Keep)):
        if maker.__name__ not in made.names():
            made.plugins.add(maker.__name__, maker)  # pyright: ignore[reportArgumentType]
    return function()


def own_reader() -> list[int]:
    with create_reader(parse_config("readerType = Noise ; dim = 3")) as source:
        return [minibatch.samples for minibatch in minibatches(source, 2, 0)]


def own_writer() -> Any:
    with create_writer(parse_config("writerType = Keep ; node = z")) as writer:
        writer.save_data({"z": Samples(np.array([0, 2]), np.ones((2, 3), np.float32))})
    return writer


def after(function: Callable[[DataReader], Any], source: Callable[[], DataReader] = reader) -> Any:
    """What a function says of a reader after its first minibatch."""
    with source() as opened:
        opened.start_minibatch_loop(ROWS, 0)
        opened.get_minibatch()
        return function(opened)


def mapping(given: dict[int, str] | None = None) -> dict[int, str]:
    with reader() as source:
        if given is not None:
            source.set_label_mapping("labels", given)
        return dict(source.label_mapping("labels"))


# -- configuration


def config(text: str) -> Any:
    return parse_config(text)


def words(text: str) -> list[str]:
    return config(f"a = {text}").array("a").strings()


def section(text: str) -> dict[str, str]:
    part = config(f"a = {text}").section("a")
    return {name: str(part[name]) for name in part.names()}


def merged(name: str, new: str, text: str) -> Any:
    """A config in which a name was given another value."""
    whole = config(text)
    whole.insert(name, new)
    return whole


def loaded() -> Any:
    whole = config("size = 1\nkept = yes")
    load_into(whole, folder() / "more.cntk")
    return whole


LISTING = """
    command = A:B
    A = [ action = train ; SGD = [ maxEpochs = 3 ; learningRatesPerMB = 0.5:0.25*2 ; modelPath = m ]
          reader = [ file = r ] ; NDLNetworkBuilder = [ run = Net ] ]
    B = [ action = test:eval ]
"""


# -- nodes


def batch(**rows: Any) -> Minibatch:
    """A minibatch of single samples."""
    begin = {name: np.arange(len(values) + 1) for name, values in rows.items()}
    return Minibatch({name: Samples(begin[name], values) for name, values in rows.items()})


def scaled(value: float = 2.0) -> Any:
    """scale * x, as a network that runs, and its minibatch."""
    net = Network("scaled")
    x = net.add("InputValue", "x", shape=3)
    factor = net.add(
        "LearnableParameter", "f", shape=(1,), attributes={"init": "fixedValue", "value": value}
    )
    out = net.add("ElementTimes", "scaled", [factor, x])
    net.add("SumElements", "total", [out], tags=["criterion"])
    net.validate()
    initialize(net)
    return CntkNet(net), batch(x=X)


X = np.float32([[1, 2, 3], [4, 5, 6]])


def forward() -> Any:
    net, minibatch = scaled()
    return net.forward(minibatch, ["scaled"])["scaled"].data


def gradient() -> Any:
    net, minibatch = scaled()
    net.forward_backward(minibatch, "total")
    return net.gradient("f")


def in_a_loop() -> bool:
    """Whether a factor inside a loop has the value of the same sum, step by step."""
    built = ndl(
        "f = Parameter(1, init=fixedValue, value=0.5) ; past = PastValue(3, h) ; h = Plus(x, Scale(f, past)) ; s = SumElements(h, tag=criterion)"
    ).network
    initialize(built)
    data = CntkNet(built).forward(Minibatch({"x": Samples(np.array([0, 2]), X)}), ["h"])["h"].data
    return near(data, [X[0], X[1] + 0.5 * (X[0] + 0.5 * 0.1)], 1e-4) or near(
        data, [X[0] + 0.05, X[1] + 0.5 * (X[0] + 0.05)], 1e-4
    )


def ndl(body: str, more: str = "") -> Any:
    """The network of NDL statements beside an input x of 3."""
    text = (
        f"NDLNetworkBuilder = [ run = Net ; {more}\n Net = [ x = Input(3, tag=feature) ; {body} ] ]"
    )
    return build_ndl_section(parse_config(text).section("NDLNetworkBuilder"))


def node_of(body: str, name: str) -> Node:
    return ndl(body).network.find(name)


def bad(body: str, message: str) -> Callable[[], bool]:
    return lambda: fails(lambda: ndl(body), message)


def evaluated(text: str, connect: bool = False) -> Network:
    """The network after the first evaluation of a script, or after the second."""
    evaluator = Evaluator(Network(), Macros())
    evaluator.run(parse_ndl(text))
    if connect:
        evaluator.connect()
    return evaluator.network


LOOP = "past = PastValue(3, h) ; h = Tanh(Plus(x, past)) ; s = SumElements(h, tag=criterion)"
MACRO = "Layer(in, out, dim) { W = Parameter(out, dim) ; t = Times(W, in) ; y = Sigmoid(t) }"


def statements(text: str) -> list[str]:
    return [type(statement).__name__ for statement in parse_ndl(text)]


def twice(second: str) -> None:
    macros = Macros()
    for text in (MACRO, second):
        for macro in parse_ndl(f"[ {text} ]").macros:
            macros.define(macro)


# -- training

TRAIN = """
SGD = [ maxEpochs = 4 ; minibatchSize = 5 ; learningRatesPerSample = 0.05 ; {sgd} ]
Train = [ NDLNetworkBuilder = [ run = Net ] ]
Net = [ features = Input(2, tag=feature) ; labels = Input(3, tag=label)
    norm = PerDimMeanVarNormalization(features, Mean(features), InvStdDev(features))
    W = Parameter(3, 2, init=uniform) ; b = Parameter(3, init=fixedValue, value=0)
    z = Plus(Times(W, Dropout(norm)), b)
    ce = CrossEntropyWithSoftmax(labels, z, tag=criterion) ; err = ErrorPrediction(labels, z, tag=eval) ]
"""


@cache
def trained(sgd: str = "") -> dict[str, Any]:
    """A training of four epochs: lines of the log, files, losses by epoch, the network."""
    whole = parse_config(TRAIN.format(sgd=sgd))
    network = build_ndl_section(whole.section("Train").section("NDLNetworkBuilder")).network
    lines: list[str] = []
    net = CntkNet(network)
    with tempfile.TemporaryDirectory() as name, reader() as source:
        files = ModelFiles(Path(name) / "m.dnn", 4)
        before = {p: net.get(p).copy() for p in net.parameters()}
        options = SgdOptions.of(whole.section("SGD"))
        Trainer(net, options, source, None, files, say=lines.append).train()
        written = sorted(path.name for path in Path(name).glob("m.dnn*"))
    text = "".join(lines)
    return {"text": text, "files": written, "net": net, "before": before, "network": network}


def losses(sgd: str = "") -> list[float]:
    lines = [line for line in trained(sgd)["text"].split("\n") if "Finished Epoch" in line]
    return [float(line.split("ce = ")[1].split()[0]) for line in lines]


def moments() -> bool:
    """Whether the node that normalizes knows the mean of the features after training."""
    network = trained()["network"]
    mean = next(n for n in network.nodes.values() if n.operation == "Mean")
    return near(np.ravel(mean.value), np.array(TABLE)[:, :2].mean(0), 1e-4)


def sgd_default(name: str, wanted: Any) -> Callable[[], bool]:
    """A check of a field of SgdOptions where a config says nothing of it."""
    text = "maxEpochs = 1 ; learningRatesPerMB = 0.1"
    return lambda: getattr(SgdOptions.of(parse_config(text)), name) == wanted


CLAIMS = [
    # -- the parts
    C(113, "Readers, networks and training are apart: a network has no reader", lambda: isinstance(CntkNet(ndl("y = Tanh(x)").network), CntkNet)),
    C(116, "Nodes and readers are plugged in", lambda: with_plugins(own_reader) == [2, 2, 1]),
    C(121, "A network holds its nodes", lambda: sorted(ndl("y = Tanh(x)").network.nodes) == ["x", "y"]),
    C(123, "and computes forward", lambda: near(forward(), 2 * X)),
    C(123, "and gradients", lambda: near(gradient(), [X.sum()])),
    C(125, "Networks are built by builders of a config", lambda: "Times" in simple("Sigmoid", "2:4:3") and "y" in ndl("y = Tanh(x)").network),
    C(127, "SimpleNetworkBuilder makes fully connected layers", lambda: simple("Sigmoid", "2:4:3").count("Times") == 2),
    C(138, "It makes simple recurrent networks", lambda: "PastValue" in simple("Sigmoid", "2:4:3", "rnnType = SIMPLERNN ; recurrentLayer = 1")),
    C(148, "and LSTMs", lambda: simple("Sigmoid", "2:4:3", "rnnType = LSTM ; recurrentLayer = 1").count("PastValue") >= 2),
    C(158, "NDLNetworkBuilder builds any network of nodes", lambda: node_of("y = Tanh(x)", "y").operation == "Tanh"),
    C(188, "IDataReader is the interface of data", lambda: issubclass(type(reader()), DataReader)),
    C(190, "UCIFastReader", lambda: "UCIFastReader" in READERS.names()),
    C(190, "BinaryReader", lambda: "BinaryReader" in READERS.names()),
    C(191, "HTKMLFReader", lambda: "HTKMLFReader" in READERS.names()),
    C(192, "SequenceReader reads data of language models: LMSequenceReader", lambda: "LMSequenceReader" in READERS.names()),
    C(193, "LUSequenceReader", lambda: "LUSequenceReader" in READERS.names()),
    C(196, "One's own reader will do as well", lambda: with_plugins(own_reader) == [2, 2, 1]),
    C(200, "SGD is a learner", lambda: losses()[-1] < losses()[0]),
    C(201, "It reads features and labels through a reader", lambda: sorted(first()) == ["features", "labels"]),
    C(202, "It evaluates and computes gradients", lambda: len(losses()) == 4),
    C(203, "It updates the model", lambda: all(not near(trained()["net"].get(p), v) for p, v in trained()["before"].items())),
    C(205, "Momentum", sgd_default("learner", "momentum_sgd")),
    C(205, "AdaGrad", lambda: SgdOptions.of(parse_config("maxEpochs = 1 ; learningRatesPerMB = 1 ; gradUpdateType = adagrad")).learner == "adagrad"),
    C(206, "A gradient checker", lambda: SgdOptions.of(parse_config("maxEpochs = 1 ; learningRatesPerMB = 1 ; gradientcheck = true ; precision = double")).check_gradients is True),
    C(206, "It is off by default", sgd_default("check_gradients", False)),
    # -- readers and writers
    C(294, "IDataReader and IDataWriter are the two interfaces", lambda: DataReader.__abstractmethods__ == {"start_minibatch_loop", "get_minibatch"}),
    C(295, "Readers lie in libraries that are loaded when needed", lambda: catalog.READERS.own["HTKMLFReader"] == ("htk.reader", "htk_mlf_reader"), absent="there are no DLLs: a reader is a Python module, loaded when a config names it, or an entry point of a package"),
    C(307, "GetReaderF gives a reader of floats", lambda: first()["features"].dtype == np.float32),
    C(312, "GetReaderD gives a reader of doubles", lambda: first(more="precision = double")["features"].dtype == np.float64),
    C(317, "The two are chosen by the precision of the config", lambda: first(more="precision = float")["features"].dtype == np.float32),
    C(328, "GetWriterF: a writer is made of its section", lambda: with_plugins(own_writer).names == ["z"]),
    C(333, "GetWriterD: values come in the network's precision", lambda: with_plugins(own_writer).kept[0]["z"].dtype == np.float32),
    C(340, "The reader section says which reader is used", lambda: fails(lambda: create_reader(parse_config("readerType = UCIFastRaeder")), "no reader type 'UCIFastRaeder'.*UCIFastReader", FormatError)),
    C(369, "A new reader implements the interface", lambda: issubclass(Noise, DataReader) and with_plugins(own_reader) == [2, 2, 1]),
    C(389, "IDataReader is a class to derive from", lambda: fails(lambda: DataReader(), "abstract", TypeError)),  # pyright: ignore[reportAbstractUsage]
    C(404, "LabelType is a string", lambda: type(mapping()[0]) is str),
    C(409, "LabelIdType is a number", lambda: type(next(iter(mapping()))) is int),
    C(418, "Init takes the config: so does the constructor", lambda: next(iter(parameters(Noise))) == "config"),
    C(423, "Destroy is close, or the end of `with`", lambda: reader().close() is None and "close" in vars(DataReader)),
    C(433, "StartMinibatchLoop takes size, epoch and epoch size", lambda: list(parameters(DataReader.start_minibatch_loop)) == ["size", "epoch", "epoch_size"]),
    C(434, "The epoch size is by default that of the data", lambda: parameters(DataReader.start_minibatch_loop)["epoch_size"] is None and sum(counts(4)) == ROWS),
    C(439, "GetMinibatch gives matrices by name", lambda: sorted(first()) == ["features", "labels"]),
    C(449, "GetLabelMapping takes a section", lambda: list(parameters(DataReader.label_mapping)) == ["stream"]),
    C(455, "SetLabelMapping takes a section and a mapping", lambda: list(parameters(DataReader.set_label_mapping)) == ["stream", "mapping"]),
    C(465, "GetData takes a section, where to begin and how many", lambda: list(parameters(DataReader.get_data)) == ["stream", "first", "count"]),
    C(471, "DataEnd", lambda: after(lambda r: r.data_end()) is True),
    C(485, "NumberSlicesInEachRecurrentIter", lambda: after(lambda r: r.parallel_sequences, sequences) == 2),
    C(490, "SetNbrSlicesEachRecurrentIter: the reader's option", lambda: (slices(1), slices(2)) == (1, 2), absent="the reader's section says the number, nothing sets it later"),
    C(495, "SetSentenceEndInBatch: the reader is asked", lambda: after(lambda r: r.sentence_ends().tolist(), sequences) == [True, True]),
    C(546, "Init initializes the reader from its section", lambda: reader().streams[0].dim == 2),
    C(547, "It reads whatever parameters its section has", lambda: Noise(parse_config("dim = 4")).streams[0].dim == 4),
    C(566, "Destroy releases the resources", lambda: closed_twice()),
    C(588, "The loop begins with parameters", lambda: counts(3) == [3, 3, 3, 1]),
    C(610, "mbSize is the size of a minibatch in samples", lambda: counts(4) == [4, 4, 2]),
    C(632, "epoch is the number of the epoch", lambda: counts(4, 1) == [4, 4, 2]),
    C(653, "requestedEpochSize is the number of records of an epoch", lambda: sum(counts(4, 0, 6)) == 6),
    C(654, "It decides when an epoch ends", lambda: counts(4, 0, 6) == [4, 2]),
    C(655, "It may be smaller than the data", lambda: sum(counts(4, 0, 3)) == 3),
    C(655, "or larger", lambda: sum(counts(4, 0, 2 * ROWS)) == 2 * ROWS),
    C(656, "With requestDataSize it is that of the data", lambda: sum(counts(4, 0, None)) == ROWS),
    C(676, "GetMinibatch gives the next minibatch", lambda: near(first(2)["features"], np.array(TABLE)[:2, :2])),
    C(681, "A dictionary from node names to matrices is filled", lambda: near(first(3)["labels"], np.eye(3))),
    C(683, "It tells whether there is one", lambda: after(lambda r: r.get_minibatch()) is None),
    C(684, "At the end of the epoch there is none", lambda: counts(4)[-1] == 2),
    C(705, "The labels' names of a section are read", lambda: mapping() == {0: "0", 1: "1", 2: "2"}),
    C(711, "Some readers have no label mapping: it is empty", lambda: after(lambda r: dict(r.label_mapping("x")), sequences) == {}),
    C(712, "It is a map from numbers", lambda: sorted(mapping()) == [0, 1, 2]),
    C(720, "to strings", lambda: set(map(type, mapping().values())) == {str}),
    C(740, "The labels' names are set", lambda: mapping({0: "a", 1: "b", 2: "c"}) == {0: "a", 1: "b", 2: "c"}),
    C(754, "A reader without names refuses that", lambda: fails(lambda: after(lambda r: r.set_label_mapping("x", {0: "a"}), sequences), "'x' have no names")),
    C(772, "GetData gives records of a section", lambda: near(data("features", 1, 3), np.array(TABLE)[1:4, :2])),
    C(791, "A section that there is not is refused", lambda: fails(lambda: data("featrues", 0, 1), "featrues")),
    C(809, "numRecords is how many", lambda: len(data("features", 0, 5)) == 5),
    C(809, "More than there are is an error", lambda: fails(lambda: data("features", 5, 50), "5")),
    C(831, "The buffer is the caller's", lambda: overwritten(), absent="an array is given back; nothing is to be released"),
    C(853, "The size of the buffer: arrays know theirs", lambda: data("features", 0, 2).shape == (2, 2), absent="an array has its size"),
    C(862, "Memory is allocated by the function", lambda: data("features", 0, 2).nbytes == 16),
    C(881, "recordStart is the first record", lambda: near(data("features", 7, 1), np.array(TABLE)[7:8, :2])),
    C(910, "DataEnd tells the end of a sentence", lambda: after(lambda r: r.data_end(), sequences) is True),
    C(913, "endDataType: the end of the epoch is that of GetMinibatch", lambda: counts(ROWS) == [ROWS], absent="the only type that any caller asks for is the end of sentences; other ends are those of `get_minibatch`"),
    C(931, "The number of slices is that of parallel sequences", lambda: after(lambda r: r.parallel_sequences, sequences) == 2),
    C(951, "Setting the number of slices is the reader's option", lambda: (slices(1), slices(3)) == (1, 3), absent="the section of the reader says it"),
    C(970, "The ends of sentences of a minibatch", lambda: after(lambda r: len(r.sentence_ends()), sequences) == 2),
    C(976, "A reader may be derived from another", lambda: issubclass(type(sequences()), DataReader) and derived() == [2, 2, 1]),
    C(982, "Several input streams", lambda: len(reader().streams) == 2),
    C(983, "Pairs of node names and matrices are passed", lambda: set(first()) == {s.name for s in reader().streams}),
    C(986, "Features and labels in training", lambda: first()["labels"].shape == (4, 3)),
    C(987, "Any number of streams", lambda: three_streams() == ["a", "b", "c"]),
    C(993, "A reader may shuffle", lambda: shuffled() and sorted(order("randomize = auto")) == list(range(ROWS))),
    C(995, "Samples are the unit for models of samples", lambda: sorted(order("randomize = auto")) == order("randomize = none")),
    C(995, "Sequences are the unit for models of sequences", lambda: whole_sequences()),
    C(1001, "Several sequences are in one minibatch", lambda: after(lambda r: r.last.samples, sequences) == 3),
    C(1011, "So do several readers here", lambda: slices(3) == 3),
    C(1029, "A new writer implements the interface", lambda: with_plugins(own_writer).closed),
    C(1049, "IDataWriter is a class to derive from", lambda: DataWriter.__abstractmethods__ == {"save_data"}),
    C(1078, "Init takes the config", lambda: fails(lambda: with_plugins(lambda: create_writer(parse_config("writerType = Keep"))), "required parameter missing.*node")),
    C(1083, "Destroy is close", lambda: with_plugins(own_writer).closed is True),
    C(1092, "GetSections: the writer says which nodes it wants", lambda: DataWriter.__annotations__["names"] == "list[str]"),
    C(1098, "SaveData takes values by name", lambda: list(parameters(DataWriter.save_data)) == ["values"]),
    C(1105, "SaveMapping", lambda: not hasattr(DataWriter, "save_mapping"), absent="nothing in CNTK calls it; a writer reads its labels' names from labelMappingFile"),
    C(1115, "A writer is known by its name", lambda: fails(lambda: create_writer(parse_config("writerType = HTKMLFWritr")), "HTKMLFWriter", FormatError)),
    C(1133, "Init initializes the writer from its section", lambda: with_plugins(own_writer).names == ["z"]),
    C(1152, "Destroy finishes the files", lambda: with_plugins(own_writer).closed),
    C(1175, "The sections of the file are names of nodes", lambda: with_plugins(own_writer).names == ["z"]),
    C(1193, "SaveData writes data", lambda: near(with_plugins(own_writer).kept[0]["z"], np.ones((2, 3)))),
    C(1212, "recordStart: a writer counts itself", lambda: "recordStart" not in parameters(DataWriter.save_data), absent="a writer counts what it was given before"),
    C(1230, "The names of the dictionary are those of the sections", lambda: list(with_plugins(own_writer).kept[0]) == ["z"]),
    C(1250, "numRecords is the number of rows", lambda: len(with_plugins(own_writer).kept[0]["z"]) == 2),
    C(1268, "datasetSize is not told", lambda: "datasetSize" not in parameters(DataWriter.save_data), absent="how much will come is not known before it is read"),
    C(1286, "byteVariableSized is not told", lambda: "byteVariableSized" not in parameters(DataWriter.save_data), absent="arrays have their size"),
    C(1305, "The mapping of labels is saved", lambda: not hasattr(DataWriter, "save_mapping"), absent="nothing in CNTK calls SaveMapping"),
    # -- configuration
    C(1349, "Values are evaluated when they are read", lambda: config("a = x1") is not None and fails(lambda: config("a = x1").int("a"), "invalid input string 'x1'")),
    C(1496, "integer as int: [-]#", lambda: config("a = -12").int("a") == -12),
    C(1496, "as long", lambda: config("a = 5000000000")["a"].long() == 5000000000),
    C(1496, "as size_t", lambda: config("a = 12").size("a") == 12),
    C(1505, "A fraction is no integer", lambda: fails(lambda: config("a = 1.5").int("a"), "invalid input string '1.5'")),
    C(1525, "floating-point as double: [-]#.#[e{+-}#]", lambda: config("a = -1.5e-3").float("a") == -0.0015),
    C(1534, "without exponent", lambda: config("a = 2.25").float("a") == 2.25),
    C(1534, "with a plus", lambda: config("a = 1e+2").float("a") == 100.0),
    C(1534, "A word is no number", lambda: fails(lambda: config("a = 1x").float("a"), "invalid input string '1x'")),
    C(1554, "string as std::string", lambda: config("a = some text").string("a") == "some text"),
    C(1563, "Any valid character", lambda: config('a = "x:y=z*2"').string("a") == "x:y=z*2"),
    C(1583, "boolean as bool", lambda: config("a = true").bool("a") is True),
    C(1592, "T is true", lambda: config("a = T").bool("a") is True),
    C(1592, "True is true", lambda: config("a = True").bool("a") is True),
    C(1592, "1 is true", lambda: config("a = 1").bool("a") is True),
    C(1621, "F is false", lambda: config("a = F").bool("a") is False),
    C(1621, "False is false", lambda: config("a = False").bool("a") is False),
    C(1621, "0 is false", lambda: config("a = 0").bool("a") is False),
    C(1621, "Anything else is an error", lambda: fails(lambda: config("a = yes").bool("a"), "boolean argument expected, not 'yes'")),
    C(1641, "array as ConfigArray", lambda: isinstance(config("a = 1:2").array("a"), ConfigArray)),
    C(1650, "value:value:value", lambda: words("1:2:3") == ["1", "2", "3"]),
    C(1679, "value:value*#:value", lambda: words("1:2*3:4") == ["1", "2", "2", "2", "4"]),
    C(1708, "{|value|value|value}", lambda: words("{|1|2|3}") == ["1", "2", "3"]),
    C(1737, "{|value|value*#|value}", lambda: words("{|1|2*2|3}") == ["1", "2", "2", "3"]),
    C(1766, "{ value value value*# }", lambda: words("{ 1 2 3*2 }") == ["1 2 3", "1 2 3"], differs="blanks separate nothing in CNTK: the array has the text before the star twice; that is warned of", source=f"{CONFIG}:446"),
    C(1766, "The same with line ends", lambda: words("{\n1\n2\n3*2\n}") == ["1", "2", "3", "3"]),
    C(1786, "dictionary as ConfigParameters", lambda: section("[ x = 1 ]") == {"x": "1"}),
    C(1795, "param1=value1;param2=value2;boolparam", lambda: section("[param1=value1;param2=value2;boolparam]") == {"param1": "value1", "param2": "value2", "boolparam": "true"}),
    C(1795, "A parameter alone is true", lambda: config("a = [flag]").section("a").bool("flag") is True),
    C(1824, "[$param1=value1$param=value2$boolparam]", lambda: section("[$param1=value1$param=value2$boolparam]") == {"param1": "value1", "param": "value2", "boolparam": "true"}),
    C(1853, "[ param1=value1 param=value2 boolparam ]", lambda: section("[ param1=value1 param=value2 boolparam ]") == {"param1": "value1 param=value2 boolparam"}, differs="blanks separate nothing in CNTK: it is one parameter; that is warned of", source=f"{CONFIG}:446"),
    C(1870, "ConfigValue, ConfigParameters, ConfigArray are the classes", lambda: [type(config("a=1")["a"]).__name__, type(config("")).__name__, type(config("a=1").array("a")).__name__] == ["ConfigValue", "ConfigParameters", "ConfigArray"]),
    C(1898, "ConfigValue evaluates when it is read", lambda: config("a = 7")["a"].int() == 7 and config("a = 7")["a"].string() == "7"),
    C(1899, "It holds the string", lambda: str(config("a = text")["a"]) == "text"),
    C(1899, "and a path, for errors", lambda: config("a = [ b = 1 ]").section("a")["b"].path.endswith(":a:b")),
    C(1901, "It is cast to the target type", lambda: [config("a = 1")["a"].int(), config("a = 1")["a"].float(), config("a = 1")["a"].bool()] == [1, 1.0, True]),
    C(1926, "ConfigParameters is a dictionary of values", lambda: section("[ x = 1 ; y = 2 ]") == {"x": "1", "y": "2"}),
    C(1931, "A value that is not found is looked for higher up", lambda: config("top = 5 ; a = [ b = [ c = 1 ] ]").section("a").section("b").int("top") == 5),
    C(1932, "The nearest one counts", lambda: config("x = 5 ; a = [ x = 6 ]").section("a").int("x") == 6),
    C(1940, "A section may be kept: it knows its parent", lambda: config("x = 5 ; a = [ y = 1 ]").section("a").parent is not None),
    C(1944, "Pairs are separated by lines", lambda: config("x = 1\ny = 2").int("y") == 2),
    C(1948, "The default separator is ;", lambda: config("x = 1;y = 2").int("y") == 2),
    C(1949, "Another one follows the opening brace", lambda: section("[!x=1!y=2]") == {"x": "1", "y": "2"}),
    C(1951, "[| makes | the separator", lambda: section("[|a=1|b=2]") == {"a": "1", "b": "2"}),
    C(1962, "name=[|parameter1=value1|parameter2=value2|parameter3=value3]", lambda: config("name=[|parameter1=value1|parameter2=value2|parameter3=value3]").section("name").string("parameter3") == "value3"),
    C(1984, "config(\"name\") gives the value", lambda: config("name = 3").int("name") == 3),
    C(1985, "A name that is missing is an error", lambda: fails(lambda: config("nam = 3").int("name"), "required parameter missing.*name.*did you mean nam")),
    C(1994, "config(\"name\", default)", lambda: config("").int("name", 4) == 4),
    C(1994, "The value counts where it is there", lambda: config("name = 3").int("name", 4) == 3),
    C(2002, "config.Exists(\"name\")", lambda: "name" in config("name = 3") and "other" not in config("name = 3")),
    C(2002, "also of the sections around", lambda: "top" in config("top = 1 ; a = [ b = 1 ]").section("a")),
    C(2030, "config.Insert(name, value)", lambda: merged("b", "5", "a = 1").int("b") == 5),
    C(2035, "A value that is there is replaced", lambda: merged("a", "5", "a = 1").int("a") == 5),
    C(2041, "Parameters in square brackets are merged", lambda: [merged("a", "[q=3]", "a=[p=1;q=2]").section("a").int(n) for n in ("p", "q")] == [1, 3]),
    C(2057, "config.Insert(\"name=value\"): text is parsed in", lambda: parsed("b = 5").int("b") == 5),
    C(2091, "The values of an array may be of any types", lambda: [config("a = 1:x").array("a")[0].int(), config("a = 1:x").array("a")[1].string()] == [1, "x"]),
    C(2100, "The default separator of arrays is :", lambda: words("a:b") == ["a", "b"]),
    C(2102, "Lines separate as well", lambda: words("{\na\nb\n}") == ["a", "b"]),
    C(2104, "Another separator follows the opening brace", lambda: words("{!a!b}") == ["a", "b"]),
    C(2106, "{| makes | the separator", lambda: words("{|a:b|c}") == ["a:b", "c"]),
    C(2117, "array={|c:\\temp\\new.txt|12*3|1e-12}", lambda: config("array={|c:\\temp\\new.txt|12*3|1e-12}").array("array").strings()[0] == "c:\\temp\\new.txt"),
    C(2130, "A value is repeated by * and a number", lambda: words("12*3") == ["12"] * 3),
    C(2132, "The example has 5 elements", lambda: len(config("array={|c:\\temp\\new.txt|12*3|1e-12}").array("array")) == 5),
    C(2133, "Three times 12 in the middle", lambda: config("array={|c:\\temp\\new.txt|12*3|1e-12}").array("array").strings()[1:4] == ["12"] * 3),
    C(2141, "Values are accessed by their index", lambda: config("a = 5:6").array("a")[1].int() == 6),
    C(2142, "An index after the end gives the last value", lambda: config("a = 5:6").array("a")[9].int() == 6),
    C(2159, "A config file is loaded into an object", lambda: loaded().int("size") == 7),
    C(2169, "config.LoadConfigFile: other values stay", lambda: loaded().string("kept") == "yes" and loaded().string("name") == "other"),
    C(2196, "An array file has a value on each line", lambda: load_array(folder() / "list.txt").strings()[:3] == ["0.5", "0.25", "0.25"]),
    C(2197, "Simple and complex values are in it", lambda: load_array(folder() / "list.txt").strings()[-1] == "a = 1"),
    C(2223, "argvector<T> is made of an array", lambda: list(config("a = 1:2").array("a").ints()) == [1, 2]),
    C(2235, "ConfigArray of learningRatesPerMB", lambda: config("learningRatesPerMB = 0.8:0.4*2").array("learningRatesPerMB").strings() == ["0.8", "0.4", "0.4"]),
    C(2240, "argvector<float>", lambda: list(config("a = 0.8:0.4*2").array("a").floats()) == [0.8, 0.4, 0.4]),
    C(2263, "It is parsed once", lambda: fails(lambda: config("a = 0.8:x").array("a").floats(), "invalid input string 'x'")),
    C(2270, "An index after its end gives the last value, too", lambda: config("a = 0.8:0.4").array("a").floats()[7] == 0.4),
    C(2321, "command is an array", lambda: [c.name for c in commands(config(LISTING))] == ["A", "B"]),
    C(2341, "Each names the section of its parameters", lambda: commands(config(LISTING))[0].parameters.section("reader").string("file") == "r"),
    C(2341, "A section that is missing is an error", lambda: fails(lambda: commands(config("command = A")), "required parameter missing.*A")),
    C(2346, "action is train by default", lambda: commands(config("command = A\nA = [ x = 1 ]"))[0].actions == ("train",)),
    C(2346, "A command may have several actions", lambda: commands(config(LISTING))[1].actions == ("test", "eval")),
    C(2370, "train", lambda: "train" in ACTIONS),
    C(2380, "test and eval", lambda: {"test", "eval"} <= set(ACTIONS)),
    C(2375, "train trains", lambda: "Finished Epoch[ 2 of 2]" in commands_ran()["log"]),
    C(2375, "It writes the model", lambda: "m.dnn" in commands_ran()["files"]),
    C(2385, "test evaluates", lambda: "Final Results" in commands_ran()["log"]),
    C(2360, "Commands and actions run in order", lambda: commands_ran()["log"].index("Train command") < commands_ran()["log"].index("Test command")),
    C(2395, "unknown action: ... in command set: ...", lambda: fails(lambda: commands(config("command = A\nA = [ action = dance ]")), "unknown action: dance  in command set: A")),
    C(2390, "Any other action is an error before anything runs", lambda: fails(lambda: commands(config("command = A:B\nA = [ action = train ]\nB = [ action = trian ]")), "unknown action: trian.*did you mean train")),
    C(2430, "SGD is a section", lambda: config(LISTING).section("A").section("SGD").int("maxEpochs") == 3),
    C(2435, "reader is a section", lambda: config(LISTING).section("A").section("reader").string("file") == "r"),
    C(2444, "NDLNetworkBuilder is a section", lambda: config(LISTING).section("A").section("NDLNetworkBuilder").string("run") == "Net"),
    C(2449, "A network is built of it", lambda: isinstance(ndl("y = Tanh(x)").network, Network)),
    C(2459, "A reader is made of its section", lambda: isinstance(reader(), DataReader)),
    C(2468, "learningRatesPerMB is an array, empty by default", lambda: len(config("").array("learningRatesPerMB", "")) == 0),
    C(2474, "as numbers", lambda: list(config(LISTING).section("A").section("SGD").array("learningRatesPerMB").floats()) == [0.5, 0.25, 0.25]),
    C(2479, "minibatchSize is 256 by default", lambda: SgdOptions.of(parse_config("maxEpochs = 1 ; learningRatesPerMB = 0.1")).minibatch_size[0] == 256),
    C(2484, "epochSize is 0 by default", sgd_default("epoch_size", None)),
    C(2489, "0 stands for", lambda: SgdOptions.of(parse_config("maxEpochs = 1 ; learningRatesPerMB = 0.1 ; epochSize = 0")).epoch_size is None),
    C(2499, "requestDataSize, all the data", lambda: trained()["text"].count(f"* {ROWS}; err") == 4),
    C(2509, "maxEpochs has no default", lambda: fails(lambda: SgdOptions.of(parse_config("learningRatesPerMB = 0.1")), "required parameter missing.*maxEpochs")),
    C(2514, "modelPath is a path", lambda: config(LISTING).section("A").section("SGD").string("modelPath") == "m"),
    C(2519, "traceLevel is 0 by default", lambda: config("").int("traceLevel", 0) == 0),
    C(2528, "SGD is made of these", lambda: SgdOptions.of(parse_config("maxEpochs = 3 ; learningRatesPerMB = 0.1")).epochs == 3),
    C(2534, "It trains a network by a reader", lambda: losses()[-1] < losses()[0]),
    C(2543, "Nothing is to be deleted", lambda: reader().close() is None),
    C(2562, "Reading a config is a call with the type", lambda: config("n = 3 ; f = 0.5 ; b = true").bool("b") is True),
    C(2571, "Sections may be kept in objects", lambda: kept_section() == 5),
    C(2575, "Parents are searched for values higher up", lambda: config("v = 1 ; a = [ b = [ c = [ d = 2 ] ] ]").section("a").section("b").section("c").int("v") == 1),
    # -- nodes
    C(2588, "CNTK's nodes are there", lambda: len(operations()) >= 90),
    C(2610, "A node is a kind, a name of builders, and how it is computed", lambda: isinstance(kind("Tanh"), Kind) and ndl_function("Tanh") is not None),
    C(2620, "Nodes lie in files by what they are for", lambda: {"criteria", "elementwise", "images"} <= families(), absent="the four headers: `cntk/network/kinds` has a module for each family"),
    C(2685, "All nodes are of one class", lambda: type(node_of("y = Tanh(x)", "y")) is Node),
    C(2687, "A node like Scale: the number times a matrix", lambda: near(forward(), 2 * X)),
    C(2635, "Most nodes: elementwise, linear, reshaping, sequences", lambda: {"elementwise", "linear", "reshaping", "sequences"} <= families()),
    C(2650, "Evaluation criteria", lambda: ndl("l = Input(3, tag=label) ; e = ErrorPrediction(l, x, tag=eval)").network.find("e").operation == "ClassificationError"),
    C(2665, "Training criteria", lambda: ndl("l = Input(3, tag=label) ; e = CrossEntropyWithSoftmax(l, x, tag=criterion)").network.find("e").operation == "CrossEntropyWithSoftmax"),
    C(2680, "Nodes of convolutional networks", lambda: {"Convolution", "MaxPooling", "AveragePooling"} <= set(operations())),
    C(2708, "ScaleNode is such a class: a kind with the name of its operation", lambda: kind("Scale").operation == "ElementTimes"),
    C(2732, "A node has a name", lambda: node_of("y = Tanh(x)", "y").name == "y"),
    C(2748, "Without one it gets a unique name", lambda: len({n for n in ndl("y = Plus(Tanh(x), Tanh(x))").network.nodes if n.startswith("unnamed")}) == 2),
    C(2754, "The device is the network's", lambda: "deviceId" not in Node.__slots__, absent="nodes have no device: a whole network runs in a scope on the CPU or a GPU"),
    C(2759, "Matrices move to the device with the scope", lambda: str(scaled()[0].scope.place) == "cpu"),
    C(2764, "A node may stand in a loop without being made for it", in_a_loop),
    C(2778, "A node is read from a file", lambda: reread().find("scaled").operation == "ElementTimes"),
    C(2800, "Its attributes are read", lambda: reread_pooling().attributes["windowWidth"] == 2),
    C(2815, "A node is copied with a new name and flags", lambda: copied().name == "copy"),
    C(2831, "CopyTo copies what the node has", lambda: copied().operation == "Tanh" and copied().inputs[0].name == "x"),
    C(2846, "An empty name is replaced", lambda: any(n.startswith("unnamed") for n in ndl("y = Plus(Tanh(x), x)").network.nodes)),
    C(2856, "The version of the file decides what is read", lambda: any(field.since for k in map(kind, operations()) for field in k.file_fields)),
    C(2861, "A kind with more to it lists its fields of files", lambda: [field.attribute for field in kind("MaxPooling").file_fields] != [] and reread_pooling().attributes["horizontalSubsample"] == 2),
    C(2867, "A copy has inputs of its own", lambda: copied().inputs is not node_of("y = Tanh(x)", "y").inputs),
    C(2900, "Duplicate takes a new name", lambda: "name" in parameters(duplicate)),
    C(2889, "Duplicate makes a node like another", lambda: copied().kind is kind("Tanh")),
    C(2911, "Without a new name it has the old one", lambda: duplicate_name() == "y"),
    C(2951, "The type of a node has a unique name", lambda: len(set(operations())) == len(list(operations()))),
    C(2965, "OperationName()", lambda: node_of("y = Tanh(x)", "y").operation == "Tanh"),
    C(2971, "TypeName() is that of the kind", lambda: kind("Tanh").operation == "Tanh"),
    C(2971, "Scale is a name of the product in NDL", lambda: node_of("f = Parameter(1) ; y = Scale(f, x)", "y").operation == "ElementTimes"),
    C(2990, "node->OperationName() == TypeName()", lambda: node_of("y = Tanh(x)", "y").operation == kind("Tanh").operation),
    C(3013, "AttachInputs connects the inputs", lambda: connected() == ["f", "x"]),
    C(3015, "A kind says how many inputs it takes", lambda: kind("ElementTimes").inputs == (2, 2)),
    C(3028, "Inputs are attached in order", lambda: attached() == ["b", "a"]),
    C(3038, "Inputs are a list", lambda: isinstance(node_of("y = Tanh(x)", "y").inputs, list)),
    C(3043, "The first input", lambda: node_of("f = Parameter(1) ; y = Scale(f, x)", "y").inputs[0].name == "f"),
    C(3048, "The second input", lambda: node_of("f = Parameter(1) ; y = Scale(f, x)", "y").inputs[1].name == "x"),
    C(3066, "An image has channel, row and column", lambda: image("y = Tanh(i)").shape == (4, 5, 3)),
    C(3068, "The size of images goes through the network", lambda: image("y = Tanh(Negate(i))").shape == (4, 5, 3)),
    C(3092, "It is that of the second input", lambda: image("f = Parameter(1) ; y = Scale(f, i)").shape == (4, 5, 3)),
    C(3120, "Validate checks inputs and outputs", bad("W = Parameter(2, 4) ; y = Times(W, x)", "3.*4|4.*3")),
    C(3122, "It sets the size of the value", lambda: node_of("W = Parameter(2, 3) ; y = Times(W, x)", "y").shape == (2,)),
    C(3150, "A wrong number of inputs is an error", bad("y = Scale(x)", "takes 2 parameters, not 1")),
    C(3155, "Where a file or a program gives one input, it is an error, too", lambda: fails(lambda: one_input().validate(), "2 inputs|expected 2|inputs")),
    C(3171, "An input without elements is an error", lambda: node_of("e = Parameter(0) ; y = Scale(e, x)", "e").shape == (3,), differs="a dimension of 0 is inferred from the other input", source="Source/ComputationNetworkLib/ComputationNode.cpp:301"),
    C(3181, "The factor must be a number", lambda: node_of("f = Parameter(1) ; y = Scale(f, x)", "y").shape == (3,)),
    C(3187, "A factor that does not fit is an error", bad("f = Parameter(2) ; y = Scale(f, x)", "2|dimension")),
    C(3198, "The value has the size of the second input", lambda: node_of("f = Parameter(1) ; y = Scale(f, x)", "y").shape == node_of("f = Parameter(1) ; y = Scale(f, x)", "x").shape),
    C(3242, "ForwardProp computes the whole minibatch", lambda: near(forward(), 2 * X)),
    C(3243, "ForwardProp(t) computes a step of all sequences", in_a_loop),
    C(3254, "One function computes whole minibatches and steps of loops", in_a_loop),
    C(3290, "A step has the samples of all sequences that reach it", lambda: steps_of_two()),
    C(3264, "The value is that of its inputs", lambda: near(forward(), 2 * X)),
    C(3328, "The product is that of a number and a matrix", lambda: near(forward() / 2, X)),
    C(3361, "A step is a slice of the columns", in_a_loop, absent="there is one function for both: in a loop its rows are those of the step"),
    C(3380, "BackpropTo computes the gradient of each input", lambda: near(gradient(), [X.sum()])),
    C(3382, "also in recurrent networks", lambda: recurrent_gradient()),
    C(3410, "Another number of inputs is refused", bad("f = Parameter(1) ; y = Scale(f, x, x)", "takes 2 parameters, not 3")),
    C(3405, "A third input is an error", bad("f = Parameter(1) ; y = Times(f, x, x, x)", "y|Times|parameters")),
    C(3436, "The gradient of the factor is a sum over all elements", lambda: near(gradient(), [X.sum()])),
    C(3457, "The gradient of the matrix is the factor times that of the value", lambda: near(input_gradient(), np.full((2, 3), 2.0).sum(0))),
    C(3598, "It is an inner product", lambda: near(gradient(), [(X * 1).sum()])),
    C(3626, "It is scaled and added", lambda: near(input_gradient(), [4, 4, 4])),
    C(3693, "Criteria give one number for a minibatch", lambda: node_of(LOOP, "s").axis is None),
    C(3709, "UseCustomizedMultiSeqHandling", lambda: gaps_do_not_count(), absent="rows that hold no sample do not exist: nothing is to be masked"),
    C(3721, "MaskToZeroWhenLabelAndFeatureMissing", lambda: gaps_do_not_count(), absent="rows that hold no sample do not exist"),
    C(3724, "CrossEntropyWithSoftmax counts the samples alone", lambda: gaps_do_not_count()),
    C(3745, "Mathematics is apart from nodes", lambda: "matmul" in op_types(), absent="the library CNTKMath: nodes are lowered to operators of the package"),
    C(3747, "Sparse and dense", lambda: sparse_is_dense()),
    C(3753, "float and double", lambda: CntkNet(ndl("y = Tanh(x)").network).network.precision in ("float", "double")),
    C(3758, "Data move between CPU and GPU where that is needed", lambda: str(scaled()[0].scope.place) == "cpu" and isinstance(scaled()[0].get("f"), np.ndarray)),
    C(3778, "What is missing is written once for CPU and GPU", lambda: {"matmul"} <= op_types()),
    C(3771, "Values are copied to the CPU when they are asked for", lambda: isinstance(scaled()[0].get("f"), np.ndarray)),
    C(3809, "CreateComputationNode makes a node of a type", lambda: Network().add("InputValue", "x", shape=2).operation == "InputValue"),
    C(3819, "It takes type and name", lambda: list(parameters(Network.add))[:2] == ["operation", "name"]),
    C(3793, "A node type is made known by one registration", lambda: list(operations()).count("Negate") == 1 and kind("Negate").inputs == (1, 1)),
    C(3844, "Negate", lambda: node_of("y = Negate(x)", "y").operation == "Negate"),
    C(3859, "A type that there is not is an error", lambda: fails(lambda: Network().add("Negat", "x"), "Negat.*Negate")),
    C(3889, "CreateNodeFromFile makes a node of a file", lambda: reread().find("f").operation == "LearnableParameter"),
    C(3922, "LearnableParameter with its value", lambda: near(reread().find("f").value, [2])),
    C(3969, "A function of the network's class for each type", lambda: Network().add("InputValue", "x", shape=1).name == "x", absent="`Network.add` takes the name of the type: no function for each"),
    C(3996, "The node is connected", lambda: connected() == ["f", "x"]),
    C(3980, "A function with the inputs and a name", lambda: connected() == ["f", "x"] and scaled()[0].network.find("scaled").name == "scaled"),
    C(4001, "It is added to the network", lambda: "scaled" in scaled()[0].network),
    C(4031, "Scale(s, m, L\"scale1\")", lambda: node_of("f = Parameter(1) ; scale1 = Scale(f, x)", "scale1").name == "scale1"),
    C(4038, "It scales the matrix", lambda: near(forward(), 2 * X)),
    C(4046, "Node types are functions of NDL", lambda: len(list(ndl_names())) > 60),
    C(4059, "CheckFunction says which names are functions", lambda: ndl_function("Scale") is not None and ndl_function("Scael") is None),
    C(4069, "A name that is none is an error", bad("y = Scael(x, x)", "Undefined function or macro 'Scael'.*Scale")),
    C(4099, "Variables may be undetermined until all is read", lambda: node_of(LOOP, "past").inputs[0].name == "h"),
    C(4109, "Names are compared without regard to case", lambda: node_of("f = Parameter(1) ; y = sCALE(f, x)", "y").operation == "ElementTimes"),
    C(4149, "Special parameters are a function's own", lambda: node_of("W = Parameter(2, 3, init = fixedValue, value = 5) ; y = Times(W, x)", "W").attributes["value"] == 5),
    # -- NDL
    C(4176, "NDL is read by the parser of configs", lambda: statements("a = Input(2)\nb = Tanh(a) ; c = Log(b)") == ["Assignment"] * 3),
    C(4180, "Brackets match", lambda: fails(lambda: parse_ndl("a = Input(2"), "bracket|clos|match|'\\('")),
    C(4182, "Quotes are handled", lambda: node_of('W = Parameter(2, 3, init = "fixedValue", value = 1) ; y = Times(W, x)', "W").attributes["init"] == "fixedValue"),
    C(4190, "NDL has macros", lambda: statements(f"[ {MACRO} ]") == ["Macro"]),
    C(4192, "All scripts share the macros", lambda: with_macro("L = Layer(x, 4, 3)").network.find("L.y").shape == (4,)),
    C(4195, "Another macro of the same name: function already exists", lambda: fails(lambda: twice(MACRO.replace("Sigmoid", "Tanh")), "'Layer' already defined")),
    C(4195, "The same macro once more does no harm", lambda: twice(MACRO) is None, differs="the same text may be loaded twice here; CNTK refuses any second definition", source="Source/ActionsLib/NetworkDescriptionLanguage.h:920"),
    C(4199, "The error tells where the other one is", lambda: fails(lambda: twice(MACRO.replace("Sigmoid", "Tanh")), "it is defined at")),
    C(4211, "Phase 1: parsing", lambda: statements("a = Input(2)") == ["Assignment"]),
    C(4215, "Phase 2: nodes are made", lambda: sorted(evaluated("x = Input(3) ; y = Tanh(x)").nodes) == ["x", "y"]),
    C(4220, "Phase 3: inputs are connected", lambda: evaluated("x = Input(3) ; y = Tanh(x)", True).find("y").inputs[0].name == "x"),
    C(4224, "Phase 4: the network is validated", lambda: ndl("y = Tanh(x)").network.find("y").shape == (3,)),
    C(4225, "Dimensions that depend on inputs are computed", lambda: node_of("W = Parameter(2, 0) ; y = Times(W, x)", "W").shape == (2, 3)),
    C(4229, "Phase 5: what needs values, as initialization", lambda: near(initialized("W = Parameter(2, 3, init = fixedValue, value = 4) ; y = Times(W, x)"), np.full((2, 3), 4))),
    C(4235, "One call goes through all phases", lambda: ndl("y = Tanh(x)").network.find("y").shape == (3,)),
    C(4240, "In-line NDL goes on in a network that is there", lambda: inline() == ["x", "y", "z"]),
    C(4248, "Each call is a node of the tree", lambda: type(parse_ndl("a = Tanh(x)").assignments[0].value).__name__ == "Call"),
    C(4253, "Statements are kept in order", lambda: [a.name.string for a in parse_ndl("b = Input(1) ; a = Tanh(b)").assignments if a.name] == ["b", "a"]),
    C(4255, "Variables are known by name", bad("y = Tanh(nothing)", "nothing")),
    C(4256, "A name is assigned once", bad("y = Tanh(x) ; y = Negate(x)", "reassigning to a different value not allowed")),
    C(4260, "Parameters are parsed", lambda: len(parse_ndl("a = Plus(x, y)").assignments[0].value.parameters) == 2),
    C(4262, "Parameters may be calls", lambda: node_of("y = Tanh(Negate(x))", "y").inputs[0].operation == "Negate"),
    C(4263, "Names of the macro's parameters stand for those of the call", lambda: with_macro("L = Layer(x, 4, 3)").network.find("L.t").inputs[1].name == "x"),
    C(4268, "A macro has statements of its own", lambda: len(parse_ndl(f"[ {MACRO} ]").macros[0].body.assignments) == 3),
    C(4270, "It is kept where all find it", lambda: shared_macros() == ["Layer"]),
    C(4279, "Each pass goes over the whole script", lambda: sorted(evaluated("x = Input(3) ; y = Tanh(x)", True).nodes) == ["x", "y"]),
    C(4283, "Each function call is a node", lambda: len(ndl("y = Tanh(Negate(x))").network) == 3),
    C(4284, "The name is the whole dot path", lambda: sorted(n for n in with_macro("L = Layer(x, 4, 3)").network.nodes if n.startswith("L.")) == ["L.W", "L.t", "L.y"]),
    C(4285, "Only function calls make nodes", lambda: sorted(ndl("d = 4 ; W = Parameter(d, 3) ; y = Times(W, x)").network.nodes) == ["W", "x", "y"]),
    C(4296, "The second pass connects the inputs", lambda: [i.name for i in evaluated("x = Input(3) ; y = Tanh(x)", True).find("y").inputs] == ["x"]),
    C(4297, "After it the network is whole", lambda: all(i is not None for n in evaluated(f"x = Input(3) ; {LOOP}", True).nodes.values() for i in n.inputs)),
    C(4302, "Nodes may be named before they are defined", lambda: node_of(LOOP, "past").inputs[0].name == "h"),
    C(4304, "Recursive networks with a delay need that", lambda: len(ndl(LOOP).network.loops) == 1),
    C(4304, "DelayNode by its old name", lambda: node_of("past = Delay(3, h, delayTime = 1) ; h = Tanh(Plus(x, past))", "past").operation == "PastValue"),
    C(4313, "Validation looks whether all nodes are connected", lambda: fails(lambda: unconnected().validate(), "y")),
    C(4315, "Dimensions must be compatible", bad("W = Parameter(2, 5) ; y = Times(W, x)", "5|3")),
    C(4317, "Features must be there", lambda: fails(lambda: build_ndl_section(parse_config("B = [ run = Net ; Net = [ x = Input(3) ] ]").section("B")), "featureNodes")),
    C(4317, "Criteria nodes are in their group", lambda: [n.name for n in ndl(LOOP).network.groups["criterion"]] == ["s"]),
    C(4318, "Labels and outputs are in theirs", lambda: groups() == {"label": ["l"], "output": ["y"]}),
    C(4328, "Parameter() is initialized by an option", lambda: near(initialized("W = Parameter(2, 3, init = fixedValue, value = 4) ; y = Times(W, x)"), np.full((2, 3), 4))),
    C(4329, "to zero", lambda: near(initialized("W = Parameter(2, 3, init = fixedValue, value = 0) ; y = Times(W, x)"), np.zeros((2, 3)))),
    C(4329, "to random values", lambda: np.unique(initialized("W = Parameter(2, 3, init = uniform) ; y = Times(W, x)")).size == 6),
    C(4330, "from a file", lambda: from_file()),
    C(4331, "when its dimensions are known", lambda: initialized("W = Parameter(2, 0, init = uniform) ; y = Times(W, x)").shape == (2, 3)),
    # -- training
    C(4350, "SGD is a model for other algorithms", lambda: own_training()),
    C(4352, "Networks give first-order gradients", lambda: near(gradient(), [X.sum()])),
    C(4366, "Features and labels are read by the names of nodes", lambda: {s.name for s in reader().streams} == {"features", "labels"}),
    C(4378, "net.FeatureNodes()", lambda: [n.name for n in trained()["network"].groups["feature"]] == ["features"]),
    C(4383, "net.LabelNodes()", lambda: [n.name for n in trained()["network"].groups["label"]] == ["labels"]),
    C(4392, "A map from names to matrices", lambda: isinstance(first(), dict)),
    C(4407, "The features' matrix is that of the minibatch", lambda: first()["features"].shape == (4, 2)),
    C(4432, "The labels' matrix, too", lambda: first()["labels"].shape == (4, 3)),
    C(4461, "Precomputed nodes are evaluated before training", moments),
    C(4462, "They compute mean and standard deviation of features", lambda: {"Mean", "InvStdDev"} <= {n.operation for n in trained()["network"].nodes.values()}),
    C(4464, "or the frequency of labels", lambda: node_of("l = Input(2, tag=label) ; p = Log(Mean(l))", "p").inputs[0].operation == "Mean"),
    C(4466, "A model is saved after each update of it: each epoch", lambda: [f"m.dnn.{n}" in trained()["files"] for n in (1, 2, 3)] == [True] * 3),
    C(4467, "Training goes on from a checkpoint", lambda: "m.dnn.ckp" in trained()["files"]),
    C(4478, "Precomputing happens once: not when training goes on", lambda: trained()["text"].count("Precomputing --> Completed") == 1),
    C(4489, "A model is saved after precomputing, as that of epoch 0", lambda: "m.dnn.0" in trained()["files"]),
    C(4508, "Training is a loop over epochs", lambda: len(losses()) == 4),
    C(4510, "Properties of nodes may differ from epoch to epoch", lambda: list(SgdOptions.of(parse_config("maxEpochs = 3 ; learningRatesPerMB = 1 ; dropoutRate = 0.5:0.2")).dropout) == [0.5, 0.2]),
    C(4523, "GetTrainCriterionNodes", lambda: [n.name for n in trained()["network"].groups["criterion"]] == ["ce"]),
    C(4528, "GetEvalCriterionNodes", lambda: [n.name for n in trained()["network"].groups["evaluation"]] == ["err"]),
    C(4538, "maxTempMemSizeInSamplesForCNN changes nothing", lambda: unused("maxTempMemSizeInSamplesForCNN"), absent="memory of convolutions is the plan's business; the option is told as one that changes nothing"),
    C(4548, "The loop goes up to maxEpochs", lambda: "of 4]" in trained()["text"]),
    C(4558, "SetDropoutRate", lambda: losses("dropoutRate = 0.5") != losses()),
    C(4564, "DecideLearningRate", lambda: trained()["text"].count("learningRatePerSample = 0.05") == 4),
    C(4569, "TrainOneEpoch", lambda: trained()["text"].count("Finished Epoch") == 4),
    C(4613, "StartMinibatchLoop(mbSize, epoch, epochSize)", lambda: counts(5) == [5, 5]),
    C(4623, "while GetMinibatch(...)", lambda: len(counts(5)) == 2),
    C(4638, "Time stamps of features", lambda: twice_forward(), absent="there are no time stamps: a run computes what is asked for from what is fed"),
    C(4643, "Time stamps of labels", lambda: twice_forward(), absent="there are no time stamps"),
    C(4658, "The actual size of a minibatch is its number of samples", lambda: counts(4)[-1] == 2),
    C(4663, "The size of the last minibatch is not that of the others", lambda: counts(4) == [4, 4, 2]),
    C(4679, "The number of slices is that of the reader", lambda: after(lambda r: r.parallel_sequences, sequences) == 2),
    C(4695, "The ends of sentences are those of the reader", lambda: after(lambda r: r.sentence_ends().all(), sequences)),
    C(4710, "ComputeGradient(criterion)", lambda: near(gradient(), [X.sum()])),
    C(4719, "Errors are counted", lambda: "err = " in trained()["text"]),
    C(4734, "UpdateModel", lambda: losses()[-1] < losses()[0]),
    C(4748, "The reader prepares the minibatches", lambda: counts(5) == [5, 5]),
    C(4755, "What depends on changed values is computed anew", lambda: twice_forward()),
    C(4756, "also after parameters were changed", lambda: after_update()),
]  # fmt: skip


@cache
def commands_ran() -> dict[str, Any]:
    """The log and the files of a config with two commands."""
    from opscope.cntk.actions.run import run_commands

    with tempfile.TemporaryDirectory() as name:
        whole = parse_config(
            f"""command = Train:Test ; deviceId = -1 ; modelPath = "{name}/m.dnn" ; stderr = "{name}/log"
            reader = [ readerType = CNTKTextFormatReader ; file = "{folder()}/two.ctf" ; input = [
                x = [ dim = 2 ; format = dense ] ; y = [ dim = 2 ; format = dense ] ] ]
            Net = [ x = Input(2, tag=feature) ; y = Input(2, tag=label) ; W = Parameter(2, 2)
                ce = CrossEntropyWithSoftmax(y, Times(W, x), tag=criterion) ]
            Train = [ action = train ; NDLNetworkBuilder = [ run = Net ]
                SGD = [ maxEpochs = 2 ; minibatchSize = 2 ; learningRatesPerMB = 0.1 ] ]
            Test = [ action = test ]"""
        )
        run_commands(whole)
        files = sorted(path.name for path in Path(name).iterdir())
        log = "".join(p.read_text() for p in Path(name).iterdir() if p.name.startswith("log"))
    return {"log": log, "files": files}


def attached() -> list[str]:
    net = Network("n")
    a, b = (net.add("InputValue", name, shape=2) for name in "ab")
    minus = net.add("Minus", "m", [a, b])
    net.connect(minus, [b, a])
    return [each.name for each in minus.inputs]


def one_input() -> Network:
    net = Network("n")
    net.add("ElementTimes", "y", [net.add("InputValue", "x", shape=2)])
    return net


def steps_of_two() -> bool:
    """Whether sequences of 2 samples and of 1 give in a loop what each gives alone."""
    network = ndl("past = PastValue(3, h) ; h = Tanh(Plus(x, past))").network
    net = CntkNet(network)
    rows = np.float32([[1, 2, 3], [3, 1, 2], [0, 1, 0]]) / 4

    def states(begin: list[int], values: Any) -> Any:
        return net.forward(Minibatch({"x": Samples(np.array(begin), values)}), ["h"])["h"].data

    alone = np.concatenate([states([0, 2], rows[:2]), states([0, 1], rows[2:])])
    return near(states([0, 2, 3], rows), alone)


def simple(layer: str, sizes: str, more: str = "") -> list[str]:
    """The kinds of the nodes that SimpleNetworkBuilder makes."""
    from opscope.cntk.run.build import build_section_network

    text = f"""SimpleNetworkBuilder = [ layerSizes = {sizes} ; layerTypes = {layer} ; {more}
        trainingCriterion = CrossEntropyWithSoftmax ; evalCriterion = ErrorPrediction ]"""
    return [n.operation for n in build_section_network(parse_config(text)).network.nodes.values()]


def slices(count: int) -> int:
    """How many sentences a minibatch has where the reader's section says this number."""
    at = folder()
    (at / "tagged").write_text("BOS O\na X\nEOS O\n\nBOS O\nb Y\nEOS O\n\nBOS O\nb X\nEOS O\n")
    (at / "words").write_text("<unk>\nBOS\nEOS\na\nb\n")
    (at / "tags").write_text("O\nX\nY\n")
    text = f"""readerType = LUSequenceReader ; file = "{at}/tagged" ; nbruttsineachrecurrentiter = {count}
        features = [ dim = 0 ]
        labelIn = [ token = "{at}/words" ; endSequence = "EOS" ; labelDim = 5 ]
        labels = [ token = "{at}/tags" ; labelDim = 3 ; endSequence = "none" ]"""
    with create_reader(parse_config(text)) as source:
        source.start_minibatch_loop(100, 0)
        source.get_minibatch()
        return source.parallel_sequences


def closed_twice() -> bool:
    source = reader()
    source.close()
    return source.close() is None


def data(stream: str, begin: int, count: int) -> Any:
    with reader() as source:
        return source.get_data(stream, begin, count).values


def overwritten() -> bool:
    """Whether what a caller writes into the array stays out of the reader."""
    with reader() as source:
        source.get_data("features", 0, 2).values[:] = 99
        return near(source.get_data("features", 0, 2).values, np.array(TABLE)[:2, :2])


def derived() -> list[int]:
    class More(Noise):
        pass

    return [minibatch.samples for minibatch in minibatches(More(parse_config("dim = 1")), 2, 0)]


def three_streams() -> list[str]:
    (folder() / "three.ctf").write_text("|a 1 |b 2 |c 3\n|a 4 |b 5 |c 6\n")
    part = "= [ dim = 1 ; format = dense ]"
    text = f"""readerType = CNTKTextFormatReader ; file = "{folder()}/three.ctf" ; randomize = false
        input = [ a {part} ; b {part} ; c {part} ]"""
    return sorted(first(2, source=create_reader(parse_config(text))))


def order(more: str) -> list[int]:
    """The first column of all samples of an epoch, in the reader's order."""
    text = f"""readerType = UCIFastReader ; file = "{folder()}/rows.txt" ; {more}
        features = [ start = 0 ; dim = 1 ]"""
    with create_reader(parse_config(text)) as source:
        source.start_minibatch_loop(3, 0)
        parts = [m.streams["features"].values for m in iter(source.get_minibatch, None)]
    return np.concatenate(parts).ravel().astype(int).tolist()


def shuffled() -> bool:
    return order("randomize = auto") != list(range(ROWS))


def whole_sequences() -> bool:
    """Whether the samples of a sequence stay together and in order when sequences are shuffled."""
    text = f"""readerType = CNTKTextFormatReader ; file = "{folder()}/two.ctf" ; randomize = true
        input = [ x = [ dim = 2 ; format = dense ] ; y = [ dim = 2 ; format = dense ] ]"""
    rows = first(9, source=create_reader(parse_config(text)))["x"][:, 0].tolist()
    return rows in ([1, 3, 5], [5, 1, 3])


def parsed(text: str) -> Any:
    whole = config("a = 1")
    whole.parse(config(text).text)
    return whole


def kept_section() -> int:
    class Holder:
        section = config("v = 5 ; a = [ b = 1 ]").section("a")

    return Holder().section.int("v")


def families() -> set[str]:
    from opscope.cntk.network import kinds

    return {path.stem for path in Path(kinds.__path__[0]).glob("*.py")}


def reread() -> Network:
    """The network of `scaled` from the bytes of a model file."""
    net, _ = scaled()
    net.store()
    return parse_model(format_model(net.network))


def reread_pooling() -> Node:
    net = ndl("i = ImageInput(4, 4, 1) ; p = MaxPooling(i, 2, 2, 2, 2)").network
    initialize(net)
    found = parse_model(format_model(net))
    return next(n for n in found.nodes.values() if "ooling" in n.operation)


def copied() -> Node:
    return duplicate(node_of("y = Tanh(x)", "y"), "copy")


def duplicate_name() -> str:
    node = node_of("y = Tanh(x)", "y")
    return duplicate(node, node.name).name


def connected() -> list[str]:
    return [each.name for each in scaled()[0].network.find("scaled").inputs]


def image(body: str) -> Node:
    return node_of(f"i = ImageInput(4, 5, 3, imageLayout = cudnn) ; {body}", "y")


def recurrent_gradient() -> bool:
    """Whether the gradient of a factor in a loop is the slope of the criterion."""
    network = ndl(
        "f = Parameter(1, init=fixedValue, value=0.5) ; past = PastValue(3, h)"
        " ; h = Plus(x, Scale(f, past)) ; s = SumElements(h, tag=criterion)"
    ).network
    initialize(network)
    net = CntkNet(network)
    minibatch = Minibatch({"x": Samples(np.array([0, 2]), X)})
    net.forward_backward(minibatch, "s")
    slope = net.gradient("f").item()
    values = []
    for factor in (0.4, 0.6):
        net.set("f", np.full((1,), factor))
        values.append(float(net.forward(minibatch, ["s"])["s"].scalar))
    return abs((values[1] - values[0]) / 0.2 - slope) < 1e-2


def input_gradient() -> Any:
    """The gradient of what is added to the matrix."""
    net = Network("g")
    x = net.add("InputValue", "x", shape=3)
    offset = net.add(
        "LearnableParameter", "o", shape=(3,), attributes={"init": "fixedValue", "value": 0.0}
    )
    factor = net.add(
        "LearnableParameter", "f", shape=(1,), attributes={"init": "fixedValue", "value": 2.0}
    )
    matrix = net.add("Plus", "m", [x, offset])
    net.add(
        "SumElements", "total", [net.add("ElementTimes", "y", [factor, matrix])], tags=["criterion"]
    )
    net.validate()
    initialize(net)
    run = CntkNet(net)
    run.forward_backward(batch(x=X), "total")
    return run.gradient("o").ravel()


def gaps_do_not_count() -> bool:
    """Whether two sequences of 2 samples and 1 together have the criterion of each alone."""
    network = ndl(
        "l = Input(3, tag=label) ; ce = CrossEntropyWithSoftmax(l, x, tag=criterion)"
    ).network
    net = CntkNet(network)
    labels, rows = np.eye(3, dtype=np.float32), np.float32([[1, 2, 3], [3, 1, 2], [0, 1, 0]])

    def loss(begin: list[int], part: slice) -> float:
        streams = {"x": rows[part], "l": labels[part]}
        samples = {name: Samples(np.array(begin), values) for name, values in streams.items()}
        return float(net.forward(Minibatch(samples), ["ce"])["ce"].scalar)

    both = loss([0, 2, 3], slice(0, 3))
    return abs(both - loss([0, 2], slice(0, 2)) - loss([0, 1], slice(2, 3))) < 1e-4


def op_types() -> set[str]:
    network = ndl(
        "W = Parameter(2, 3) ; y = Times(W, x) ; s = SumElements(y, tag=criterion)"
    ).network
    initialize(network)
    return {op.type for op in CntkNet(network).bound_net(["s"]).net.op_list.ops}


def sparse_is_dense() -> bool:
    """Whether a product has the same value for sparse samples and for dense ones."""
    found = []
    for name in ("Input", "SparseInput"):
        text = f"B = [ run = Net ; Net = [ x = {name}(3, tag=feature) ; W = Parameter(2, 3, init=fixedValue, value=2) ; y = Times(W, x) ] ]"
        network = build_ndl_section(parse_config(text).section("B")).network
        initialize(network)
        found.append(CntkNet(network).forward(batch(x=X), ["y"])["y"].data)
    return near(found[0], found[1])


def with_macro(body: str) -> Any:
    return ndl(body, f"load = Macros ; Macros = [ {MACRO} ]")


def initialized(body: str, name: str = "W") -> Any:
    network = ndl(body).network
    initialize(network)
    return np.array(network.find(name).value)


def from_file() -> bool:
    path = folder() / "w.txt"
    path.write_text("1 2 3\n4 5 6\n")
    body = f'W = Parameter(2, 3, init = fromFile, initFromFilePath = "{path}") ; y = Times(W, x)'
    return near(initialized(body), [[1, 2, 3], [4, 5, 6]])


def inline() -> list[str]:
    network = ndl("y = Tanh(x)").network
    evaluator = Evaluator(network, Macros())
    evaluator.run(parse_ndl("z = Negate(y)"))
    evaluator.connect()
    return sorted(network.nodes)


def shared_macros() -> list[str]:
    macros = Macros()
    for macro in parse_ndl(f"[ {MACRO} ]").macros:
        macros.define(macro)
    return macros.names()


def unconnected() -> Network:
    net = Network("n")
    net.add("Tanh", "y", [None])
    return net


def groups() -> dict[str, list[str]]:
    found = ndl("l = Input(2, tag=label) ; y = Tanh(x, tag=output)").network.groups
    return {name: [n.name for n in found[name]] for name in ("label", "output")}


def own_training() -> bool:
    """Whether plain gradient descent, written here, lowers a criterion."""
    network = ndl(
        "W = Parameter(3, 3, init=uniform) ; l = Input(3, tag=label) ; ce = CrossEntropyWithSoftmax(l, Times(W, x), tag=criterion)"
    ).network
    initialize(network)
    net = CntkNet(network)
    minibatch = batch(x=X, l=np.eye(3, dtype=np.float32)[:2])
    seen = []
    for _ in range(5):
        seen.append(float(net.forward_backward(minibatch, "ce")["ce"]))
        net.set("W", net.get("W") - 0.02 * net.gradient("W"))
    return seen[-1] < seen[0]


def unused(name: str) -> bool:
    from opscope.cntk.config.unread import UNUSED

    return name.lower() in UNUSED


def twice_forward() -> bool:
    net, _ = scaled()
    found = [net.forward(batch(x=rows), ["scaled"])["scaled"].data for rows in (X, 2 * X)]
    return near(found[1], 2 * found[0])


def after_update() -> bool:
    net, minibatch = scaled()
    net.forward(minibatch, ["scaled"])
    net.set("f", np.full((1,), 5.0))
    return near(net.forward(minibatch, ["scaled"])["scaled"].data, 5 * X)


DOCUMENT = Document("002", "Extending CNTK", CLAIMS)
