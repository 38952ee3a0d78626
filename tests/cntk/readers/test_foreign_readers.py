"""Readers and writers of one's own: what they give is checked, layouts are found, faults named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_config
from opscope.cntk.readers.base.data import ChunkInfo, Deserializer, Samples, Stream
from opscope.cntk.readers.base.layout import Layout, packed
from opscope.cntk.readers.base.minibatches import minibatches
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.readers.base.reader import DataReader
from opscope.cntk.readers.base.writer import DataWriter
from opscope.cntk.readers.catalog import (
    DESERIALIZERS,
    READERS,
    WRITERS,
    add_deserializer,
    add_reader,
    add_writer,
    create_deserializer,
    create_reader,
    create_writer,
)
from opscope.framework.base.errors import OpscopeError, RunError, ShapeError

BEGIN = np.array([0, 3, 5])
ROWS = np.ones((5, 2), np.float32)
ONE = np.array([0, 1])


def dense(values: Any = ROWS, begin: Any = BEGIN) -> Samples:
    return Samples(begin, values)


def sparse(indices: Any, first: Any = (0, 1, 1, 2, 2, 2), values: Any = (1.0, 1.0)) -> Samples:
    return Samples(BEGIN, np.array(values), np.array(indices), np.array(first))


def layout(parallel: int, steps: int, slot: Any, begin: Any, end: Any) -> Layout:
    return Layout(parallel, steps, *(np.array(part) for part in (slot, begin, end)))


class Given(DataReader):
    """Gives what it was given."""

    streams = [Stream("x", 2), Stream("y", 3, sparse=True)]

    def __init__(self, *found: Any) -> None:
        self._found = found

    def start_minibatch_loop(self, size: int, epoch: int, epoch_size: int | None = None) -> None:
        self._coming = iter(self._found)

    def get_minibatch(self) -> Minibatch | None:
        return next(self._coming, None)


GOOD = {"x": dense(), "y": sparse([0, 2])}


def only(x: Any = None, y: Any = None, **layouts: Any) -> Minibatch:
    streams = {"x": GOOD["x"] if x is None else x, "y": GOOD["y"] if y is None else y}
    return Minibatch(streams, layouts)


WRONG = {
    "missing": (Minibatch({"x": dense()}), "the stream 'y' is missing"),
    "unknown": (Minibatch({**GOOD, "yy": dense()}), r"has streams called 'yy' \(did you mean y"),
    "list": (Minibatch([dense()]), "its streams are a list, not a dict by name"),
    "no layout": (only(z=packed(np.array([3, 2]))), "has layouts called 'z'"),
    "array": (only(ROWS), "the stream 'x' is a ndarray, not a Samples"),
    "values": (only(dense(ROWS.tolist())), "'x': its values are a list, not an array of numbers"),
    "texts": (only(dense(ROWS.astype(str))), "'x': its values are an array of <U32, not"),
    "flat": (only(dense(ROWS[0])), r"'x': its values are of the shape \(2,\), not \(samples, 2\)"),
    "wide": (only(dense(np.ones((5, 4)))), r"of the shape \(5, 4\), not \(samples, 2\)"),
    "floats": (only(dense(begin=BEGIN * 1.0)), "begin is an array of float64, not"),
    "late": (only(dense(begin=BEGIN + 1)), r"begin is \[1 4 6\]; it goes up from 0 to the 5 sam"),
    "short": (only(dense(begin=BEGIN[:2])), r"begin is \[0 3\]; it goes up from 0 to the 5"),
    "down": (only(dense(begin=np.array([0, 4, 2, 5]))), r"begin is \[0 4 2 5\]; it goes up"),
    "index": (only(y=sparse([0, 3])), "'y': indices: 3 is not below the dimension 3"),
    "below": (only(y=sparse([-1, 0])), "indices: -1 is not below the dimension 3"),
    "indices": (only(y=sparse([0])), "indices: there are 1 for 2 values"),
    "first": (only(y=sparse([0, 2], (0, 1, 2))), r"begin is \[0 3 5\]; .* to the 2 samples"),
    "elements": (only(y=sparse([0, 2], (0, 1, 1, 2, 2, 3))), "first is .* to the 2 elements"),
    "counts": (
        Minibatch(GOOD, {"x": layout(2, 3, [0], [0], [3])}),
        "the layout of 'x': slot, begin, end are of 1, 1, 1 sequences, the samples of 2",
    ),
    "slot": (
        Minibatch(GOOD, {"x": layout(2, 3, [0, 2], [0, 0], [3, 2])}),
        "the layout of 'x': there is no slot 2 of 2",
    ),
    "lengths": (
        Minibatch(GOOD, {"y": layout(2, 3, [0, 1], [0, 0], [3, 3])}),
        "the layout of 'y': sequence 1 takes 3 of the 3 steps, it has 2 samples",
    ),
    "overlap": (
        Minibatch(GOOD, {"x": layout(1, 5, [0, 0], [0, 1], [3, 3])}),
        "two sequences share step 1 of slot 0",
    ),
    "class": (Minibatch(GOOD, {"x": [0, 3]}), "the layout of 'x' is a list, not a Layout"),
    "empty": (
        Minibatch(
            {"x": Samples(ONE[:1], ROWS[:0]), "y": Samples(ONE[:1], ROWS[:0, :1].repeat(3, 1))}
        ),
        "is empty: where an epoch ends, get_minibatch gives None",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_minibatch_is_named(case):
    found, message = WRONG[case]
    coming = minibatches(Given(only(), found), 5, 1)
    assert next(coming).samples == 5
    with pytest.raises((RunError, ShapeError), match=message) as caught:
        next(coming)
    text = str(caught.value)
    assert (
        text.startswith(f"the reader {__name__}.Given: minibatch 2 of epoch 2") and len(text) < 300
    )


def test_layouts_are_found():
    """Of sequences of the same lengths they are the same; else sequences lie side by side."""
    given = layout(2, 4, [1, 0], [1, 0], [4, 2])
    (found,) = minibatches(Given(Minibatch(GOOD, {"x": given})), 5)
    assert found.layouts["x"] is given and found.layouts["y"] is given
    (found,) = minibatches(Given(Minibatch(GOOD)), 5)
    assert found.layouts["x"] is found.layouts["y"] and found.columns == 6
    other = Samples(np.array([0, 1, 5]), np.ones((5, 3)))
    (found,) = minibatches(Given(only(y=other)), 5)
    assert found.layouts["x"].steps == 3 and found.layouts["y"].steps == 4


def test_pieces_of_sequences():
    """A sequence that began earlier, or goes on, has only its samples here."""
    given = layout(2, 3, [0, 1], [-4, 1], [3, 9])
    (found,) = minibatches(Given(Minibatch(GOOD, {"x": given})), 5)
    assert found.layouts["y"] is given


def test_slots_of_the_last_minibatch():
    reader = Given(only(), Minibatch(GOOD, {"x": layout(2, 3, [0, 1], [-4, 1], [3, 9])}))
    coming = minibatches(reader, 5)
    assert reader.parallel_sequences == 1 and reader.data_end()
    next(coming)
    assert reader.parallel_sequences == 2 and reader.data_end() and reader.sentence_ends().all()
    next(coming)
    assert not reader.data_end() and reader.sentence_ends().tolist() == [True, False]


def test_many_single_samples_are_packed_at_once():
    found = packed(np.ones(200_000, np.int64))  # a search for a free slot would take minutes
    assert found.parallel == 200_000 and found.steps == 1 and found.samples == 200_000


def test_a_minibatch_as_ones_own_streams_have_it():
    class NoStreams(Given):
        streams = None  # type: ignore[assignment]

    with pytest.raises(RunError, match=r"NoStreams has no list of Stream objects as its `streams`"):
        minibatches(NoStreams(), 5)


class Faulty(Given):
    def start_minibatch_loop(self, size: int, epoch: int, epoch_size: int | None = None) -> None:
        raise KeyError("epoch")


def test_a_fault_at_the_start_is_named():
    with pytest.raises(RunError, match=r"the reader \S+\.Faulty failed: KeyError: 'epoch'"):
        minibatches(Faulty(), 5)


class Unclosable(Given):
    def close(self) -> None:
        raise ValueError("no handle")


def test_a_fault_at_the_end_is_named():
    reader = Unclosable()
    with pytest.raises(RunError, match=r"the reader \S+\.Unclosable failed: ValueError"), reader:
        pass


# -- names of the program's own ---------------------------------------------------------------


@pytest.fixture
def names() -> Iterator[None]:
    yield
    for catalog in (READERS, WRITERS, DESERIALIZERS):
        catalog.plugins.remove("Mine")


@pytest.mark.usefixtures("names")
class TestRegistration:
    def test_a_reader(self):
        add_reader("Mine", lambda config: Given(only()))
        with create_reader(parse_config('readerType = "mine"')) as reader:
            assert [found.samples for found in minibatches(reader, 5)] == [5]
        assert "Mine" in READERS.names()
        with pytest.raises(OpscopeError, match="the reader type 'Mine' is there already"):
            add_reader("MINE", lambda config: Given())
        with pytest.raises(OpscopeError, match="'UCIFastReader' is there already"):
            add_reader("uciFastReader", lambda config: Given())

    def test_something_else(self):
        add_reader("Mine", lambda config: {})  # type: ignore[arg-type,return-value]
        with pytest.raises(
            RunError, match="'Mine' gave an object of the class dict, which is no D"
        ):
            create_reader(parse_config("readerType = Mine"))

    def test_a_writer_without_names(self):
        class Nameless(DataWriter):
            def __init__(self, config: object) -> None:
                pass

            def save_data(self, values: object) -> None:
                pass

        add_writer("Mine", Nameless)
        with pytest.raises(
            RunError, match="the writer type 'Mine': Nameless has no attribute 'name"
        ):
            create_writer(parse_config("writerType = Mine"))

    def test_a_writer_whose_names_are_a_text(self):
        class Texts(DataWriter):
            names = "out"  # type: ignore[assignment]

            def save_data(self, values: object) -> None:
                pass

        add_writer("Mine", lambda config: Texts())
        with pytest.raises(RunError, match="Texts has a text, no list, as 'names'"):
            create_writer(parse_config("writerType = Mine"))

    def test_a_deserializer(self):
        add_deserializer("Mine", lambda config: 3)  # type: ignore[arg-type,return-value]
        with pytest.raises(
            RunError, match="'Mine' gave an object of the class int, which is no De"
        ):
            create_deserializer(parse_config("type = Mine"))


class Source(Deserializer):
    """One chunk of two sequences."""

    def __init__(self, found: Any, chunk: Any = None) -> None:
        self.streams = [Stream("x", 2)]
        self.chunks = [ChunkInfo(np.array([3, 2])) if chunk is None else chunk]
        self.found = found

    def read_chunk(self, number: int) -> list[Samples]:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.mark.usefixtures("names")
class TestDeserializers:
    @pytest.mark.parametrize(
        ("source", "message"),
        [
            (Source(KeyError("u7")), "failed: KeyError: 'u7'"),
            (Source([dense(), dense()]), ": chunk 0 is no list of 1 Samples, one a stream"),
            (Source(dense()), ": chunk 0 is no list of 1 Samples"),
            (
                Source([dense(ROWS[:4])]),
                r": chunk 0: the stream 'x': begin is .* the 4 samples",
            ),
            (
                Source([dense(begin=np.array([0, 5]))]),
                "the stream 'x' has 1 sequences, the chunk 2",
            ),
            (Source([dense()], [3, 2]), ": chunk 0 is no ChunkInfo with an array of lengths"),
            (Source([dense()], ChunkInfo(np.array([3, 2]), ["a"])), "has 1 keys for 2 sequences"),
        ],
    )
    def test_faults_are_named(self, source, message):
        add_deserializer("Mine", lambda config: source)
        text = "randomize = false ; deserializers = ( [ type = Mine ] )"
        with pytest.raises(OpscopeError, match=f"^the deserializer 'Mine'.*{message}"):
            list(minibatches(create_reader(parse_config(text)), 5))

    def test_one_that_works(self):
        add_deserializer("Mine", lambda config: Source([dense()]))
        text = "randomize = false ; deserializers = ( [ type = Mine ] )"
        with create_reader(parse_config(text)) as reader:
            assert [found.samples for found in minibatches(reader, 5)] == [5]


WRITE = """command = C ; deviceId = -1
C = [ action = write ; outputNodeNames = "z"
    NDLNetworkBuilder = [ run = Net ]
    Net = [ x = Input(1, tag = feature) ; two = Constant(2) ; z = Times(two, x, tag = output) ]
    reader = [ readerType = CNTKTextFormatReader ; file = a.ctf
        input = [ x = [ dim = 1 ; format = dense ] ] ]
    writer = [ writerType = Mine ]
]"""


@pytest.mark.usefixtures("names")
class TestWriters:
    """The action write, through a writer of one's own."""

    @pytest.fixture(autouse=True)
    def data(self, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.chdir(tmp_path)
        Path("a.ctf").write_text("|x 1\n|x 2\n")

    def run(self, **methods: Any) -> list[str]:
        told: list[str] = []

        class Mine(DataWriter):
            names = ["z"]

            def __init__(self, config: object) -> None:
                pass

            def save_data(self, values: Any) -> None:
                told.extend(map(str, values["z"].values[:, 0]))

            def close(self) -> None:
                told.append("closed")

            def discard(self) -> None:
                told.append("discarded")

        self.told = told
        add_writer("Mine", type("Mine", (Mine,), methods))
        run_commands(parse_config(WRITE), Run(say=lambda line: None))
        return told

    def test_it_gets_the_values(self):
        assert self.run() == ["2.0", "4.0", "closed"]

    def test_a_fault_is_named_and_the_files_are_given_up(self):
        def save_data(writer: object, values: object) -> None:
            raise OSError("the disk is full")

        with pytest.raises(RunError, match=r"the writer \S+\.Mine failed: OSError: the disk is"):
            self.run(save_data=save_data)
        assert self.told == ["discarded"]

    def test_a_fault_at_the_end_is_named(self):
        def close(writer: object) -> None:
            raise OSError("the disk is full")

        with pytest.raises(RunError, match=r"the writer \S+\.Mine failed: OSError: the disk is"):
            self.run(close=close)
