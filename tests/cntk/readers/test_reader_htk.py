"""HTKMLFReader: frames, windows, orders, slots, gaps in the data; HTKMLFWriter."""

from __future__ import annotations

import ctypes
import logging
import sys

import numpy as np
import pytest

from htk_files import IN_ORDER, corpus, epoch, section
from opscope.cntk.base.glibc_rand import WideRand
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.htk_files import HtkFile, write_htk
from opscope.cntk.readers.catalog import create_reader, create_writer
from opscope.framework.base.errors import FormatError, SaveError, ShapeError


def features(batch):
    return batch.streams["features"].values


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**31 + 7])
@pytest.mark.skipif(sys.platform != "linux", reason="the generator of the GNU C library")
def test_numbers_of_c(seed):
    libc = ctypes.CDLL("libc.so.6")
    libc.srand(ctypes.c_uint(seed))
    expected = [libc.rand() for _ in range(1500)]
    assert WideRand(seed).rand(1500).tolist() == expected


def test_wide_numbers_wrap_as_in_c():
    first, second = WideRand(1).rand(2).tolist()
    wrapped = (first * (2**31 - 1) + second) % 2**32
    wrapped -= 2**32 if wrapped >> 31 else 0
    assert int(WideRand(1).draw(1)[0]) == wrapped % 2**64


def test_frames_in_order(tmp_path):
    corpus(tmp_path, [3, 4])
    with create_reader(section(tmp_path, IN_ORDER)) as reader:
        batches = epoch(reader, 5)
    assert [batch.samples for batch in batches] == [5, 2]
    rows = np.concatenate([features(batch) for batch in batches])
    assert rows.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [1, 3]]
    labels = np.concatenate([batch.streams["labels"].dense(3) for batch in batches])
    assert labels.argmax(1).tolist() == [0, 0, 1, 0, 0, 1, 1]
    assert batches[0].layouts["features"].parallel == 5


@pytest.mark.parametrize("given_as", ["dim = 10", "dim = 2 ; contextWindow = 5"])
def test_windows_repeat_the_frames_at_the_edges(tmp_path, given_as):
    corpus(tmp_path, [3, 4])
    with create_reader(section(tmp_path, IN_ORDER, given_as)) as reader:
        times = features(epoch(reader, 7)[0]).reshape(7, 5, 2)[:, :, 1]
    assert times[0].tolist() == [0, 0, 0, 1, 2]
    assert times[2].tolist() == [0, 1, 2, 2, 2]
    assert times[3].tolist() == [0, 0, 0, 1, 2]


def test_a_window_with_two_sides(tmp_path):
    corpus(tmp_path, [4])
    with create_reader(section(tmp_path, IN_ORDER, "dim = 2 ; contextWindow = 2:1")) as reader:
        times = features(epoch(reader, 4)[0]).reshape(4, 4, 2)[:, :, 1]
    assert times.tolist() == [[0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 3]]


@pytest.mark.parametrize("method", ["rollingWindow", "blockRandomize"])
@pytest.mark.parametrize("twister", ["true", "false"])
@pytest.mark.parametrize("window", ["auto", "6"])
def test_shuffled_frames_keep_their_labels(tmp_path, method, twister, window):
    corpus(tmp_path, [5, 4, 6, 3])
    config = f'readMethod = "{method}" ; useMersenneTwisterRand = {twister} ; randomize = {window}'
    with create_reader(section(tmp_path, config)) as reader:
        orders = []
        for number in (1, 2):  # C takes the seeds 0 and 1 for the same
            batches = epoch(reader, 4, number)
            rows = np.concatenate([features(batch) for batch in batches])
            labels = np.concatenate([b.streams["labels"].indices for b in batches])
            np.testing.assert_array_equal(labels, rows[:, 1] // 2 % 3)
            orders.append([tuple(row) for row in rows.tolist()])
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != sorted(orders[0])


def test_a_rolling_window_moves_frames_no_further_than_half_of_it(tmp_path):
    corpus(tmp_path, [30])
    config = 'readMethod = "rollingWindow" ; randomize = 8'
    with create_reader(section(tmp_path, config)) as reader:
        times = features(epoch(reader, 30)[0])[:, 1]
    assert 0 < np.abs(times - np.arange(30)).max() <= 4


def test_whole_utterances_side_by_side(tmp_path):
    corpus(tmp_path, [5, 4, 2, 3])
    config = "frameMode = false ; nbruttsineachrecurrentiter = 2"
    with create_reader(section(tmp_path, config)) as reader:
        batches = epoch(reader, 1)
        for batch in batches:
            layout = batch.layouts["features"]
            assert layout.parallel == 2 and layout is batch.layouts["labels"]
            starts = features(batch)[batch.streams["features"].begin[:-1]]
            assert not starts[:, 1].any()
    seen = [row for batch in batches for row in features(batch)[:, 0].tolist()]
    assert set(seen) == {0, 1, 2, 3}


def test_utterances_that_the_minibatch_size_takes_together_are_one_sequence(tmp_path):
    corpus(tmp_path, [5, 4, 2])
    with create_reader(section(tmp_path, "frameMode = false")) as reader:
        batches = epoch(reader, 100)
    # 11 frames are asked for and have to stay below: the last utterance comes alone.
    assert sum(batch.samples for batch in batches) == 11 and len(batches) == 2
    assert [len(batch.layouts["features"].slot) for batch in batches] == [1, 1]


def test_truncated_utterances_go_on_in_their_slot(tmp_path):
    corpus(tmp_path, [7, 5, 6])
    config = "frameMode = false ; truncated = true ; nbruttsineachrecurrentiter = 2"
    with create_reader(section(tmp_path, config)) as reader:
        next_time: dict[int, int] = {}
        for batch in epoch(reader, 3):
            layout = batch.layouts["features"]
            assert layout.steps == 3 and layout.parallel == 2
            begin = batch.streams["features"].begin
            for number in range(len(layout.slot)):
                rows = features(batch)[begin[number] : begin[number + 1]]
                who = int(rows[0, 0])
                first = next_time.get(who, 0)
                assert first == max(0, -layout.begin[number])
                np.testing.assert_array_equal(rows[:, 1], first + np.arange(len(rows)))
                next_time[who] = first + len(rows)
        assert next_time == {0: 7, 1: 5, 2: 6}
        assert reader.data_end()


@pytest.mark.parametrize(
    ("size", "epoch_size", "expected"),
    [(4, None, [4, 4]), (4, 10, [4, 4]), (4, 20, [4] * 5), (20, None, [10])],
)
def test_short_minibatches_are_left_out(tmp_path, size, epoch_size, expected):
    corpus(tmp_path, [6, 4])
    with create_reader(section(tmp_path, f'{IN_ORDER} ; minibatchMode = "full"')) as reader:
        assert [batch.samples for batch in epoch(reader, size, 0, epoch_size)] == expected


def test_files_to_be_written_are_read_one_by_one(tmp_path):
    corpus(tmp_path, [3, 4])
    config = ConfigParameters(
        f"""action = "write" ; reader = [ readerType = "HTKMLFReader"
        features = [ dim = 2 ; scpFile = "{tmp_path}/a.scp" ] ]"""
    )
    with create_reader(config.section("reader")) as reader:
        for number in range(2):
            assert [batch.samples for batch in epoch(reader, 512, number)] == [3, 4]
    for key in ("mlfFile", "mlfFileList"):
        labels = f'labels = [ {key} = "{tmp_path}/a.mlf" ; labelDim = 3 ]'
        with pytest.raises(FormatError, match=r"'write' takes features, no labels \(labels\)"):
            create_reader(section(tmp_path, f'action = "write" ; {labels}'))


def test_a_frame_that_stands_for_the_utterance(tmp_path):
    corpus(tmp_path, [3, 4])
    for number in range(2):
        write_htk(tmp_path / f"v{number}.fea", np.full((1, 2), 10 + number, np.float32))
    lines = [f"u{n}.fea={tmp_path}/v{n}.fea[0,0]\n" for n in range(2)]
    (tmp_path / "v.scp").write_text("".join(lines))
    who = f'who = [ dim = 2 ; scpFile = "{tmp_path}/v.scp" ; expandToUtterance = true ]'
    with create_reader(section(tmp_path, who)) as reader:
        for batch in epoch(reader, 3):
            np.testing.assert_array_equal(
                batch.streams["who"].values[:, 0], features(batch)[:, 0] + 10
            )


def test_targets_stand_for_labels(tmp_path):
    corpus(tmp_path, [6])
    (tmp_path / "targets").write_text("zero 10\none 01\ntwo 11\n")
    more = f'targetDim = 2 ; labelToTargetMappingFile = "{tmp_path}/targets"'
    with create_reader(section(tmp_path, IN_ORDER, labels=f"labelDim = 3 ; {more}")) as reader:
        rows = epoch(reader, 6)[0].streams["labels"].values
    assert rows.tolist() == [[1, 0], [1, 0], [0, 1], [0, 1], [1, 1], [1, 1]]


def test_utterances_without_labels_are_named_and_left_out(tmp_path, caplog):
    corpus(tmp_path, [3, 4, 5, 2], missing=[2])
    text = (tmp_path / "a.mlf").read_text()
    (tmp_path / "a.mlf").write_text(text.replace("200000 300000 one", "200000 400000 one"))
    with caplog.at_level(logging.WARNING), create_reader(section(tmp_path)) as reader:
        assert sum(batch.samples for batch in epoch(reader, 3)) == 6
    assert "u2 left out: no labels" in caplog.text
    assert "u0 left out: 4 labels, 3 frames" in caplog.text
    assert "2 of 4 utterances have no labels" in caplog.text
    corpus(tmp_path, [3, 4, 5], missing=[1, 2])
    with pytest.raises(FormatError, match="2 of 3 utterances have no labels: u1, u2"):
        create_reader(section(tmp_path))


@pytest.mark.parametrize(
    ("more", "features", "labels", "why"),
    [
        ('randomize = "none"', "dim = 2", "labelDim = 3", "blockRandomize cannot go with"),
        ("truncated = true", "dim = 2", "labelDim = 3", "needs frameMode = false"),
        ('readMethod = "other"', "dim = 2", "labelDim = 3", "'blockRandomize' or"),
        ("nbruttsineachrecurrentiter = 2", "dim = 2", "labelDim = 3", "is 1 in frame mode"),
        ("", "dim = 2 ; contextWindow = 4", "labelDim = 3", "window of 4 frames has no middle"),
        ("", "dim = 2 ; contextWindow = 1:2:3", "labelDim = 3", "one number or two"),
        ("", "dim = 0", "labelDim = 3", "cannot have 0 values"),
        ("", "dim = 2", "labelDim = 2", "labels: state 2 is not below 2"),
        ("", "dim = 2", "type = category", "parameter missing.*labelDim"),
        ("", 'dim = 2 ; type = "int"', "labelDim = 3", "of the type 'real'"),
    ],
)
def test_wrong_configs(tmp_path, more, features, labels, why):
    corpus(tmp_path, [6, 6])
    with pytest.raises(FormatError, match=why):
        create_reader(section(tmp_path, more, features, labels))


def test_frames_of_another_dimension_are_named(tmp_path):
    corpus(tmp_path, [3, 3])
    with create_reader(section(tmp_path, features="dim = 3")) as reader:
        with pytest.raises(FormatError, match=r"u\d.fea: frames of 2 numbers; 3, or an odd part"):
            epoch(reader, 3)


# -- the writer


def written(folder, more="dim = 2"):
    (folder / "out.scp").write_text(f"{folder}/deep/a.out\n{folder}/deep/b.out\n")
    return create_writer(
        ConfigParameters(
            f"""writerType = "HTKMLFWriter" ; outputNodeNames = "z"
            z = [ {more} ; scpFile = "{folder}/out.scp" ; type = "Real" ]"""
        )
    )


def test_each_sequence_is_a_file(tmp_path):
    values = np.arange(10, dtype=np.float64).reshape(5, 2)
    with written(tmp_path) as writer:
        writer.save_data({"z": Samples(np.array([0, 2, 5]), values)})
        for name, expected in (("a", values[:2]), ("b", values[2:])):
            file = HtkFile.open(tmp_path / "deep" / f"{name}.out")
            assert (file.kind, file.period) == ("USER", 100000)
            np.testing.assert_array_equal(file.read(), expected)
        with pytest.raises(SaveError, match="names 2 files; there are more"):
            writer.save_data({"z": Samples(np.array([0, 5]), values)})


def test_what_the_writer_refuses(tmp_path):
    values = Samples(np.array([0, 1]), np.zeros((1, 2)))
    with pytest.raises(ShapeError, match="z has 2 numbers; dim is 3"):
        written(tmp_path, "dim = 3").save_data({"z": values})
    with pytest.raises(FormatError, match="did you mean HTKMLFWriter"):
        create_writer(ConfigParameters('writerType = "HTKMLFWritr"'))
