"""Kaldi2Reader against HTKMLFReader over the same data; its writer; what is wrong and where."""

from __future__ import annotations

import numpy as np
import pytest

from htk_files import IN_ORDER, STATES, corpus, epoch, frames, section
from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_config
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.catalog import create_reader, create_writer
from opscope.cntk.readers.kaldi.transform import FeatureTransform
from opscope.framework.base.errors import FormatError, SaveError, ShapeError
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.tables.tables import TableWriter, read_table
from record_files import transform

LENGTHS = [6, 9, 5, 7, 4]
NUMBERS = ["7", "3", "12"]  # what Kaldi calls the states


@pytest.fixture
def tables(tmp_path):
    """The corpus of the HTK tests, also as tables of Kaldi."""
    corpus(tmp_path, LENGTHS)
    feats = f"ark,scp:{tmp_path}/feats.ark,{tmp_path}/feats.scp"
    with TableWriter(feats, "matrix") as table:
        for number, length in reversed(list(enumerate(LENGTHS))):  # in another order than the list
            table.write(f"u{number}", frames(number, length))
    with TableWriter(f"ark:{tmp_path}/post.ark", "posterior") as table:
        for number, length in enumerate(LENGTHS):
            states = [[(int(NUMBERS[t // 2 % 3]), 1.0)] for t in range(length)]
            table.write(f"u{number}", Posterior.from_frames(states))
    (tmp_path / "feats.rx").write_text(f"scp:{tmp_path}/feats.scp\n")
    (tmp_path / "post.rx").write_text(f"ark:{tmp_path}/post.ark\n")
    (tmp_path / "lens").write_text("".join(f"u{n} {k}\n" for n, k in enumerate(LENGTHS)))
    (tmp_path / "numbers").write_text("\n".join(NUMBERS) + "\n")
    return tmp_path


def kaldi(*given):
    return ConfigParameters(text_of(*given))


def text_of(folder, more="", features="dim = 2", labels="labelDim = 3"):
    return f"""readerType = "Kaldi2Reader" ; {more}
        features = [ {features} ; scpFile = "{folder}/lens" ; rx = "{folder}/feats.rx" ]
        labels = [ mlfFile = "{folder}/post.rx" ; labelMappingFile = "{folder}/numbers"
                   {labels} ]"""


def same(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.streams.keys() == other.streams.keys()
        for name, samples in one.streams.items():
            expected = other.streams[name]
            np.testing.assert_array_equal(samples.begin, expected.begin)
            np.testing.assert_array_equal(samples.values, expected.values)
            if samples.indices is not None:
                np.testing.assert_array_equal(samples.indices, expected.indices)
            layout, target = one.layouts[name], other.layouts[name]
            np.testing.assert_array_equal(layout.column, target.column)


@pytest.mark.parametrize(
    "more",
    [
        "",
        IN_ORDER,
        "frameMode = false ; nbruttsineachrecurrentiter = 2",
        "frameMode = false ; truncated = true ; nbruttsineachrecurrentiter = 3",
        "frameMode = false ; maxUtteranceLength = 8 ; minibatchMode = full",
    ],
)
@pytest.mark.parametrize("features", ["dim = 2", "dim = 2 ; contextWindow = 3"])
def test_the_orders_of_htk(tables, more, features):
    with (
        create_reader(kaldi(tables, more, features)) as one,
        create_reader(section(tables, more, features)) as other,
    ):
        assert len(STATES) == one.streams[1].dim
        for number in range(2):
            same(epoch(one, 4, number), epoch(other, 4, number))


def test_without_a_window_blocks_are_shuffled(tables):
    """`action = test` says `randomize = none`, which HTKMLFReader alone refuses."""
    wanted = np.concatenate([frames(number, length) for number, length in enumerate(LENGTHS)])
    for mode in (True, False):
        with create_reader(kaldi(tables, f"randomize = none ; frameMode = {mode}")) as reader:
            found = np.concatenate([b.streams["features"].values for b in epoch(reader, 100)])
        assert sorted(found.tolist()) == sorted(wanted.tolist())
    with pytest.raises(FormatError, match="blockRandomize cannot go with randomize = 'none'"):
        create_reader(section(tables, "randomize = none"))
    text = f"""command = Train:Test ; deviceId = -1 ; modelPath = "{tables}/m.dnn"
        reader = [ {text_of(tables)} ]
        Train = [ action = train ; SGD = [ maxEpochs = 1 ; learningRatesPerSample = 0.01 ]
        SimpleNetworkBuilder = [ layerSizes = 2:3 ; trainingCriterion = CrossEntropyWithSoftmax
        evalCriterion = ClassificationError ] ]
        Test = [ action = test ]"""
    log: list[str] = []
    run_commands(parse_config(text, "t.cntk"), Run(say=log.append))
    assert f"* {sum(LENGTHS)}; CrossEntropyWithSoftmax = " in "".join(log)


def test_labels_that_come_later(tables):
    with create_reader(kaldi(tables, f"{IN_ORDER} ; targets_delay = 3")) as reader:
        found = np.concatenate([b.streams["labels"].indices for b in epoch(reader, 100)])
    wanted = [max(t - 3, 0) // 2 % 3 for length in LENGTHS for t in range(length)]
    assert found.tolist() == wanted


def test_utterances_without_labels_are_left_out(tables, caplog):
    lines = (tables / "lens").read_text().splitlines()
    (tables / "lens").write_text("\n".join([*lines, "u7 3"]) + "\n")
    with create_reader(kaldi(tables, IN_ORDER)) as reader:
        assert sum(batch.samples for batch in epoch(reader, 100)) == sum(LENGTHS)
    assert "u7 left out: no labels" in caplog.text


def test_writing(tables):
    config = f"""readerType = Kaldi2Reader ; action = write
        features = [ dim = 2 ; scpFile = "{tables}/lens" ; rx = "{tables}/feats.rx" ]"""
    with create_reader(ConfigParameters(config)) as reader:
        batches = epoch(reader, 4)
    assert [batch.samples for batch in batches] == LENGTHS
    for kind in ("ark", "ark,t"):
        text = f"""writerType = "Kaldi2Reader" ; outputNodeNames = z ; overflowValue = 7.5
            z = [ dim = 2 ; scpFile = "{tables}/lens" ; Kaldicmd = "{kind}:{tables}/out.ark" ]"""
        with create_writer(ConfigParameters(text)) as writer:
            for batch in batches:
                writer.save_data({"z": batch.streams["features"]})
        found = dict(read_table(f"ark:{tables}/out.ark", "matrix"))
        assert list(found) == [f"u{number}" for number in range(len(LENGTHS))]
        for number, length in enumerate(LENGTHS):
            wanted = frames(number, length)
            wanted[wanted > 7.5] = np.log(length)  # as CNTK does
            np.testing.assert_allclose(found[f"u{number}"], wanted, rtol=1e-5)
    before = (tables / "out.ark").read_bytes()
    with pytest.raises(SaveError, match="more utterances"):
        with create_writer(ConfigParameters(text)) as writer:
            for batch in [*batches, batches[0]]:
                writer.save_data({"z": batch.streams["features"]})
    assert (tables / "out.ark").read_bytes() == before


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_archive_for_each_utterance(tmp_path, dtype):
    (tmp_path / "list").write_text(f"{tmp_path}/a/x.ark 3\n{tmp_path}/a/y.ark 1\n")
    text = f"""writerType = Kaldi2Writer ; outputNodeNames = z
        z = [ dim = 3 ; file = "{tmp_path}/list" ]"""
    values = np.arange(12, dtype=dtype).reshape(4, 3) * 5
    with create_writer(ConfigParameters(text)) as writer:
        writer.save_data({"z": Samples(np.array([0, 3, 4]), values)})
        with pytest.raises(ShapeError, match="dim is 3"):
            writer.save_data({"z": Samples(np.array([0, 1]), values[:1, :2])})
    kind = "matrix" if dtype == np.float32 else "double_matrix"
    ((key, found),) = read_table(f"ark:{tmp_path}/a/x.ark", kind)
    assert key == "x" and found.tolist() == values[:3].tolist()
    ((key, found),) = read_table(f"ark:{tmp_path}/a/y.ark", kind)
    wanted = np.where(values[3:] > 50, np.log(3), values[3:])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def change(path, old, new):
    path.write_text(path.read_text().replace(old, new))


WRONG = [
    # file, old, new, message
    ("lens", "u2 5", "u2", r"lens:3: 'key frames' was expected"),
    ("lens", "u2 5", "u2 6", r"left out: 5 labels, 6 frames in labels"),
    ("lens", "u2 5", "u9 5", r"left out: no labels"),
    ("feats.rx", "scp", "\n", r"unknown option ''; for reading"),
    ("feats.rx", "scp:", "ark:", r"feats.scp"),
    ("numbers", "12", "13", r"post.rx: u0: state 12 not found in statelist"),
]


@pytest.mark.parametrize(("name", "old", "new", "message"), WRONG)
def test_what_is_wrong_is_told(tables, caplog, name, old, new, message):
    change(tables / name, old, new)
    if "left out" in message:
        with create_reader(kaldi(tables, IN_ORDER)) as reader:
            assert sum(batch.samples for batch in epoch(reader, 100)) == sum(LENGTHS) - 5
        assert message in caplog.text
        return
    with pytest.raises(FormatError, match=message):
        with create_reader(kaldi(tables, IN_ORDER)) as reader:
            epoch(reader, 100)


def test_posteriors_that_are_no_labels(tables):
    for states, message in (
        ([[(7, 0.5)]], r"u0: frame 0 has not one label of weight 1, but \{7: 0.5\}"),
        ([[(7, 1.0)], [(7, 1.0), (3, 1.0)]], r"frame 1 .*\{7: 1.0, 3: 1.0\}"),
        ([[]], r"frame 0 .*\{\}"),
    ):
        with TableWriter(f"ark:{tables}/post.ark", "posterior") as table:
            table.write("u0", Posterior.from_frames(states))
        with pytest.raises(FormatError, match=message):
            create_reader(kaldi(tables))


def test_settings_that_are_not_there(tables):
    for more, features, message in (
        ("targets_delay = -1", "dim = 2", "from 0 on"),
        ("", "dim = 5", "frames of 2 numbers"),
    ):
        with pytest.raises(FormatError, match=message):
            with create_reader(kaldi(tables, more, features)) as reader:
                epoch(reader, 4)
    with create_reader(
        kaldi(tables, IN_ORDER, "dim = 2 ; featureTransform = NO_FEATURE_TRANSFORM")
    ) as reader:
        assert epoch(reader, 4)


@pytest.mark.parametrize("binary", [False, True])
def test_feature_transforms(tables, binary):
    path = tables / "final.nnet"
    path.write_bytes(transform(binary))
    with create_reader(kaldi(tables, IN_ORDER, f'dim = 2 ; featureTransform = "{path}"')) as reader:
        found = np.concatenate([b.streams["features"].values for b in epoch(reader, 100)])
    wanted = []
    for number, length in enumerate(LENGTHS):
        x = frames(number, length)
        x = x[np.clip(np.arange(length)[:, None] + [-1, 0, 1], 0, length - 1)].reshape(length, 6)
        x = ((x + np.arange(6)) * 0.5)[:, ::-1]
        wanted.append(np.tanh(x.reshape(length, 2, 3).sum(2) + [0.25, -0.25]))
    np.testing.assert_allclose(found, np.concatenate(wanted), rtol=1e-6)
    whole = transform(binary)
    for old, new, message in (
        (b"<Tanh>", b"<Relu>", "a component <Relu> is none of <Splice>"),
        (whole[-len(b"</Nnet> ") :], b"<Tanh> ", "final.nnet"),
        (whole, b"", "final.nnet"),
    ):
        path.write_bytes(whole.replace(old, new))
        with pytest.raises(FormatError, match=message):
            FeatureTransform.read(str(path))
    path.write_bytes(whole)
    with pytest.raises(FormatError, match="frames of 2 numbers, not of 4"):
        FeatureTransform.read(str(path)).apply(np.zeros((3, 4), np.float32))
