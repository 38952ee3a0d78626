"""What all readers and writers share: slots, sentence ends, labels, records, files in use."""

from __future__ import annotations

import numpy as np
import pytest

from htk_files import corpus, epoch, section
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers.base.data import Samples, Stream
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.readers.base.reader import DataReader
from opscope.cntk.readers.base.writer import DataWriter
from opscope.cntk.readers.catalog import READERS, WRITERS, create_reader, create_writer
from opscope.framework.base.errors import FormatError, RunError, SaveError, ShapeError
from opscope.framework.base.options import plugins


class Point:
    """An entry point."""

    def __init__(self, name, made):
        self.name, self.value, self._made = name, repr(made), made

    def load(self):
        return self._made


class Counting(DataReader):
    """A reader of one's own: numbers up to a limit."""

    def __init__(self, config):
        self.streams = [Stream("x", 1)]
        self._limit = config.int("limit")

    def start_minibatch_loop(self, size, epoch, epoch_size=None):
        self._next, self._size = 0, size

    def get_minibatch(self):
        last = min(self._next + self._size, self._limit)
        rows = np.arange(self._next, last, dtype=np.float32)[:, None]
        self._next = last
        if not len(rows):
            return None
        return Minibatch({"x": Samples(np.arange(len(rows) + 1), rows)})


def test_a_reader_from_elsewhere(monkeypatch):
    points = [Point("CountingReader", Counting)]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    assert "CountingReader" in READERS.names()
    with create_reader(ConfigParameters('readerType = "countingreader" ; limit = 5')) as reader:
        values = [batch.streams["x"].values[:, 0].tolist() for batch in epoch(reader, 3)]
        assert reader.parallel_sequences == 1 and reader.sentence_ends().tolist() == [True]
        assert reader.data_end() and reader.label_mapping("x") == {}
        with pytest.raises(RunError, match="have no names"):
            reader.set_label_mapping("x", {})
        with pytest.raises(RunError, match="by number"):
            reader.get_data("x", 0, 1)
    assert values == [[0, 1, 2], [3, 4]]


def test_a_writer_from_elsewhere(monkeypatch):
    class Keeping(DataWriter):
        def __init__(self, config):
            self.names, self.kept = [config.string("node")], []

        def save_data(self, values):
            self.kept.append(values[self.names[0]].values)

    monkeypatch.setattr(plugins, "entry_points", lambda group: [Point("Keep", Keeping)])
    assert "Keep" in WRITERS.names()
    with create_writer(ConfigParameters('writerType = "Keep" ; node = "z"')) as writer:
        writer.save_data({"z": Samples(np.array([0, 1]), np.ones((1, 2)))})
    assert len(writer.kept) == 1


def test_slots_and_sentence_ends(tmp_path):
    corpus(tmp_path, [7, 3])
    config = "frameMode = false ; truncated = true ; nbruttsineachrecurrentiter = 2"
    with create_reader(section(tmp_path, config)) as reader:
        reader.start_minibatch_loop(4, 0)
        batch = reader.get_minibatch()
        assert reader.parallel_sequences == 2 and not reader.data_end()
        slot_of_long = int(batch.streams["features"].values[batch.layouts["features"].slot[0], 0])
        ends = reader.sentence_ends()
        assert sorted(ends.tolist()) == [False, True] and slot_of_long in (0, 1)


def text(folder, dtype="float"):
    (folder / "a.ctf").write_text("".join(f"|x {n}\n" for n in range(6)))
    return ConfigParameters(
        f"""readerType = "CNTKTextFormatReader" ; file = "{folder}/a.ctf" ; precision = {dtype}
        randomize = false ; chunkSizeInBytes = 10
        input = [ x = [ dim = 1 ; format = "dense" ] ]"""
    )


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_records_by_number(tmp_path, dtype):
    with create_reader(text(tmp_path, dtype)) as reader:
        found = reader.get_data("x", 1, 4)
        assert found.values[:, 0].tolist() == [1, 2, 3, 4] and found.lengths.tolist() == [1] * 4
        assert found.values.dtype == {"float": np.float32, "double": np.float64}[dtype]
        for first, count in ((-1, 2), (4, 3), (0, 0)):
            with pytest.raises(RunError, match="are wanted of 6"):
                reader.get_data("x", first, count)
        with pytest.raises(RunError, match="no stream 'y'"):
            reader.get_data("y", 0, 1)


def test_labels_get_other_names(tmp_path):
    (tmp_path / "a.txt").write_text("1 a\n2 b\n")
    config = ConfigParameters(
        f"""readerType = "UCIFastReader" ; file = "{tmp_path}/a.txt" ; allowMapCreation = true
        features = [ start = 0 ; dim = 1 ] ; randomize = none
        labels = [ start = 1 ; dim = 1 ; labelMappingFile = "{tmp_path}/map" ]"""
    )
    with create_reader(config) as reader:
        reader.set_label_mapping("labels", {0: "no", 1: "yes"})
        assert reader.label_mapping("labels") == {0: "no", 1: "yes"}
        assert reader.get_data("features", 1, 1).values.tolist() == [[2]]
        for wrong in ({0: "no"}, {0: "no", 1: "no"}):
            with pytest.raises(RunError, match="need 2 names, each once"):
                reader.set_label_mapping("labels", wrong)


def test_no_file_is_overwritten_while_it_is_read(tmp_path):
    corpus(tmp_path, [3])
    config = section(tmp_path)
    (tmp_path / "out.scp").write_text(f"{tmp_path}/x/../u0.fea\n")
    writer = ConfigParameters(
        f"""writerType = "HTKMLFWriter" ; outputNodeNames = "z"
        z = [ dim = 2 ; scpFile = "{tmp_path}/out.scp" ]"""
    )
    (tmp_path / "x").mkdir()
    with pytest.raises(SaveError, match="u0.fea would be overwritten .*a.scp"):
        create_writer(writer, config)
    (tmp_path / "out.scp").write_text(f"{tmp_path}/a.mlf\n")
    with pytest.raises(SaveError, match="labels:mlfFile names it"):
        create_writer(writer, config)
    (tmp_path / "out.scp").write_text(f"{tmp_path}/new.fea\n")
    create_writer(writer, config)


def test_a_section_without_a_type_has_cntks_defaults(tmp_path):
    (tmp_path / "a.ctf").write_text("|x 1\n")
    text = f'file = "{tmp_path}/a.ctf" ; input = [ x = [ dim = 1 ; format = dense ] ]'
    with create_reader(ConfigParameters(text)) as reader:
        assert [batch.samples for batch in epoch(reader, 3)] == [1]
    with pytest.raises(FormatError, match="BinaryWriter .the default writerType"):
        create_writer(ConfigParameters("file = 1"))


def test_several_readers_side_by_side(tmp_path):
    for name, lengths in (("a", (2, 1, 3)), ("b", (2, 1, 3))):
        (tmp_path / f"{name}.ctf").write_text(
            "".join(f"{n} |{name} {n}{t}\n" for n, size in enumerate(lengths) for t in range(size))
        )

    def part(name, stream):
        return f"""{name} = [ readerType = CNTKTextFormatReader ; randomize = false
            file = "{tmp_path}/{stream}.ctf" ; input = [ {stream} = [ dim = 1 ; format = dense ] ] ]
        """

    text = f"readers = one:two ; {part('one', 'a')} ; {part('two', 'b')}"
    with create_reader(ConfigParameters(text)) as reader:
        assert [stream.name for stream in reader.streams] == ["a", "b"]
        batches = epoch(reader, 3)
        assert [batch.samples for batch in batches] == [3, 3]
        for batch in batches:
            np.testing.assert_array_equal(batch.streams["a"].values, batch.streams["b"].values)
        assert reader.get_data("b", 1, 1).values.tolist() == [[10]]
    with pytest.raises(FormatError, match="two readers give 'a'"):
        create_reader(ConfigParameters(text.replace("two = [", "xxx = [").replace(":two", ":one")))
    (tmp_path / "b.ctf").write_text("|b 1\n" * 6)
    with create_reader(ConfigParameters(text)) as reader:
        with pytest.raises(RunError, match="number of utterances per minibatch.* have 2, 3"):
            epoch(reader, 3)


def test_values_as_a_file_of_sections(tmp_path):
    text = f"""writerType = BinaryReader ; wfile = "{tmp_path}/x.bin" ; wrecords = 100
        f = [ dim = 2 ; sectionType = data ]
        t = [ dim = 1 ; sectionType = labels ; labelType = Regression ; labelDim = 1 ]"""
    first = {"f": Samples(np.arange(3), np.eye(2)), "t": Samples(np.arange(3), np.ones((2, 1)))}
    with create_writer(ConfigParameters(text)) as writer:
        writer.save_data(first)
        writer.save_data(first)
    reader = create_reader(ConfigParameters(f'readerType=BinaryReader ; file="{tmp_path}/x.bin"'))
    with reader:
        (batch,) = epoch(reader, 10)
        assert batch.streams["f"].values.tolist() == [[1, 0], [0, 1]] * 2
        assert batch.streams["t"].values.tolist() == [[1]] * 4
    before = (tmp_path / "x.bin").read_bytes()
    with pytest.raises(ShapeError, match="f has 2 values, its dim is 3"):
        with create_writer(ConfigParameters(text.replace("dim = 2", "dim = 3"))) as writer:
            writer.save_data(first)
    assert (tmp_path / "x.bin").read_bytes() == before
    for old, new, why in (
        ("Regression", "Category", "labelType is Regression"),
        ("sectionType = data", "sectionType = stats", "data or labels"),
    ):
        with pytest.raises(FormatError, match=why):
            create_writer(ConfigParameters(text.replace(old, new)))
