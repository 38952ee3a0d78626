"""Files of sections: there and back, damaged ones, the cache of UCIFastReader, BinaryReader."""

from __future__ import annotations

import numpy as np
import pytest

from damage import check_damaged
from htk_files import epoch
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers.base import section_file
from opscope.cntk.readers.base.section_file import (
    CATEGORY,
    DATA,
    LABELS,
    MAPPING,
    Section,
    read_sections,
    write_sections,
)
from opscope.cntk.readers.catalog import create_reader
from opscope.framework.base.errors import FormatError


def sections():
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    names = Section("mapping", MAPPING, ["no", "", "yes"])
    numbers = np.array([[2], [0], [2]], np.uint32)
    return [Section("x", DATA, rows), Section("l", LABELS, numbers, CATEGORY, 3, [names])]


def test_there_and_back(tmp_path):
    write_sections(tmp_path / "a.bin", sections(), 3)
    x, labels = read_sections(tmp_path / "a.bin")
    assert (x.name, x.type, x.values.tolist()) == ("x", DATA, [[0, 1], [2, 3], [4, 5]])
    assert (labels.name, labels.kind, labels.dim) == ("l", CATEGORY, 3)
    assert labels.values.tolist() == [[2], [0], [2]]
    assert labels.inside[0].values == ["no", "", "yes"]


def test_damaged_files(tmp_path, monkeypatch):
    monkeypatch.setattr(section_file, "_ALIGNMENT", 64)  # readers take any
    path = tmp_path / "a.bin"
    write_sections(path, sections(), 3)
    data = path.read_bytes()

    def read(damaged):
        path.write_bytes(damaged)
        read_sections(path)

    check_damaged(data, read)


def uci(folder, more=""):
    return ConfigParameters(
        f"""readerType = "UCIFastReader" ; file = "{folder}/a.txt" ; randomize = none
        writerType = "BinaryWriter" ; wfile = "{folder}/cache.bin" ; {more}
        features = [ start = 0 ; dim = 2 ; sectionType = "data" ]
        labels = [ start = 2 ; dim = 1 ; labelDim = 3 ; labelMappingFile = "{folder}/map" ]"""
    )


@pytest.mark.parametrize("precision", ["float", "double"])
def test_the_cache_of_tables(tmp_path, precision):
    (tmp_path / "a.txt").write_text("1 2 b\n3 4 a\n5 6 b\n")
    (tmp_path / "map").write_text("a\nb\n")
    found = []
    for _ in range(2):
        with create_reader(uci(tmp_path, f"precision = {precision}")) as reader:
            batches = epoch(reader, 2)
            found.append([(b.streams["features"].values, b.streams["labels"]) for b in batches])
            assert reader.label_mapping("labels") == {0: "a", 1: "b"}
        (tmp_path / "a.txt").unlink(missing_ok=True)  # the second time the cache is enough
    for (x, labels), (again, same) in zip(*found, strict=True):
        np.testing.assert_array_equal(x, again)
        np.testing.assert_array_equal(labels.dense(3), same.dense(3))
        assert x.dtype == again.dtype


def test_files_side_by_side(tmp_path):
    x, labels = sections()
    write_sections(tmp_path / "x.bin", [x], 3)
    write_sections(tmp_path / "l.bin", [labels], 3)
    config = f'readerType = "BinaryReader" ; file = "{tmp_path}/x.bin,{tmp_path}/l.bin"'
    with create_reader(ConfigParameters(config)) as reader:
        (batch,) = epoch(reader, 9)
    assert batch.streams["l"].indices.tolist() == [2, 0, 2]
    for wrong, why in (
        ([Section("l", LABELS, labels.values[:2], CATEGORY, 3)], "'l' has 2 records, 'x' 3"),
        ([Section("x", DATA, x.values)], "'x' is there already"),
        ([Section("l", LABELS, labels.values, CATEGORY, 2)], "label 2 is not below 2"),
    ):
        write_sections(tmp_path / "l.bin", wrong, 3)
        with pytest.raises(FormatError, match=why):
            create_reader(ConfigParameters(config))
