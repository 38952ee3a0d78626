"""Each reader's way to give ranks their parts of the data; the union of the parts is the whole."""

from collections import Counter
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htk_files import corpus, epoch, section
from made_sequences import Made
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.parallel.options import ParallelOptions
from opscope.cntk.parallel.ranks import Ranks
from opscope.cntk.readers.base.order import BlockShuffle, FileOrder
from opscope.cntk.readers.base.pack import FramePacker, SequencePacker, TruncatedPacker, part_of
from opscope.cntk.readers.binary.format import write_binary
from opscope.cntk.readers.catalog import create_reader
from opscope.cntk.sgd.measure import sub_minibatch
from opscope.framework.base.errors import RunError, ShapeError
from opscope.framework.parallel.dry import EchoCommunicator

LENGTHS = ([3, 1, 2, 2], [5, 1], [1, 1, 1, 4, 2])


def minibatches(packer, rank, ranks, size, number=0, epoch_size=None):
    """The minibatches of a rank, empty ones among them."""
    assert packer.take_share(rank, ranks)
    packer.start_epoch(number, size, epoch_size)
    found = []
    while True:
        batch = packer.read()
        if batch or not batch.end_of_epoch:
            found.append(batch)
        if batch.end_of_epoch:
            return found


def rows(batches, stream="a"):
    """The samples of minibatches, each as a tuple."""
    return [tuple(row) for b in batches if b for row in b.streams[stream].values.tolist()]


def whole(order, **more):
    return rows(minibatches(SequencePacker(order(), Made([1]).streams, **more), 0, 1, 5))


def test_sequences_go_to_the_ranks_in_turn():
    """Without random order: sequence n belongs to rank n modulo ranks, minibatch by minibatch."""
    source = Made([1] * 7)
    for rank, wanted in enumerate(([[0], [3], [6]], [[1], [4]], [[2], [5]])):
        packer = SequencePacker(FileOrder(source), source.streams)
        found = minibatches(packer, rank, 3, 3)
        numbers = [b.sequences[:, 1].tolist() if b else [] for b in found]
        assert [n for n in numbers if n] == wanted


def test_chunks_go_to_the_ranks_in_turn():
    """In random order: a rank reads the chunks of its own, whatever sequences change places."""
    seen: Counter = Counter()
    for rank in range(2):
        source = Made(*([1] * 5 for _ in range(6)))
        packer = SequencePacker(BlockShuffle(source, 10), source.streams)
        found = rows(minibatches(packer, rank, 2, 4))
        seen.update(found)
        assert len(found) == 15
        assert sorted({int(chunk) for chunk, _, _ in found}) == sorted(set(source.read))
    assert sum(seen.values()) == len(seen) == 30


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("order", ["file", "blocks"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@given(size=st.integers(1, 30), number=st.integers(0, 3))
@settings(max_examples=12, deadline=None)
def test_parts_are_the_whole(ranks, order, local, size, number):
    def make():
        source = Made(*LENGTHS)
        sequences = FileOrder(source) if order == "file" else BlockShuffle(source, 8)
        return SequencePacker(sequences, source.streams, local=local)

    alone = rows(minibatches(make(), 0, 1, size, number))
    parts = [minibatches(make(), rank, ranks, size, number) for rank in range(ranks)]
    assert Counter(rows([b for part in parts for b in part])) == Counter(alone)
    if local:  # each rank counts its own samples, but takes at least one sequence
        most = max(max(lengths) for lengths in LENGTHS)
        for rank, part in enumerate(parts):
            own = max(part_of(size, rank, ranks), 1)
            assert all(b.samples <= max(own, most) for b in part if b)
    elif order == "blocks":  # all ranks together have the minibatches of one
        together = [sum(b.samples for b in at if b) for at in zip_longest(*parts)]
        assert together == [b.samples for b in minibatches(make(), 0, 1, size, number)]


@pytest.mark.parametrize("order", [FileOrder, lambda source: BlockShuffle(source, 8)])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_epochs_of_a_size_go_on_where_the_last_ended(order, ranks):
    """Three epochs of 8 samples are 24 samples of the order, whoever reads them."""
    found, alone = Counter(), Counter()
    for number in range(3):
        source = Made([1] * 5, [1] * 5)
        packer = SequencePacker(order(source), source.streams)
        alone.update(rows(minibatches(packer, 0, 1, 3, number, 8)))
        for rank in range(ranks):
            packer = SequencePacker(order(source), source.streams)
            found.update(rows(minibatches(packer, rank, ranks, 3, number, 8)))
    assert found == alone and sum(found.values()) == 24


@pytest.mark.parametrize(("ranks", "counts"), [(1, [4]), (2, [2, 2]), (3, [2, 1, 1]), (4, [1] * 4)])
def test_slots_of_truncated_sequences_are_divided(ranks, counts):
    source = Made(*LENGTHS)
    found = []
    for rank, count in enumerate(counts):
        packer = TruncatedPacker(FileOrder(source), source.streams, 3)
        part = minibatches(packer, rank, ranks, 12)
        assert {b.layouts["a"].parallel for b in part if b} == {count}
        found += part
    assert Counter(rows(found)) == Counter(whole(lambda: FileOrder(Made(*LENGTHS))))


def test_more_ranks_than_slots_is_an_error():
    source = Made(*LENGTHS)
    packer = TruncatedPacker(FileOrder(source), source.streams, 3)
    with pytest.raises(RunError, match="Too many workers for minibatch size.* 5 ranks share 4"):
        minibatches(packer, 4, 5, 12)


def test_frames_of_a_minibatch_stay_single():
    source = Made([1] * 9)
    parts = [
        minibatches(FramePacker(FileOrder(source), source.streams), rank, 2, 4) for rank in (0, 1)
    ]
    assert [[b.samples for b in part if b] for part in parts] == [[2, 2, 1], [2, 2]]
    assert {b.layouts["a"].steps for part in parts for b in part if b} == {1}


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_minibatches_are_cut_by_slots(ranks):
    """What ranks do with the minibatches of a reader that gives the same to all of them."""
    source = Made(*LENGTHS)
    batches = minibatches(SequencePacker(FileOrder(source), source.streams), 0, 1, 12)
    for batch in batches:
        parts = [sub_minibatch(batch, rank, ranks) for rank in range(ranks)]
        assert Counter(rows(parts)) == Counter(rows([batch]))
        assert sum(b.samples for b in parts if b) == batch.samples
        slots = batch.layouts["a"].parallel
        bounds = [slots * rank // ranks for rank in range(ranks + 1)]
        assert [b.layouts["a"].parallel if b else 0 for b in parts] == np.diff(bounds).tolist()


def test_streams_of_other_sequences_cannot_be_cut():
    source = Made([1, 1, 1])
    (batch,) = minibatches(SequencePacker(FileOrder(source), source.streams), 0, 1, 9)
    other = Made([1, 1])
    (less,) = minibatches(SequencePacker(FileOrder(other), other.streams), 0, 1, 9)
    batch.layouts["b"] = less.layouts["b"]
    with pytest.raises(ShapeError, match="ParallelTrain without distributedMBReading"):
        sub_minibatch(batch, 0, 2)


# -- readers


def _text(folder, more):
    lines = [f"{n // 3} |x {n} |w {n % 4}:1\n" for n in range(30)]
    (folder / "a.ctf").write_text("".join(lines))
    return ConfigParameters(
        f"""readerType = CNTKTextFormatReader ; file = "{folder}/a.ctf" ; {more}
        input = [ x = [ dim = 1 ; format = dense ] ; w = [ dim = 4 ; format = sparse ] ]"""
    )


def _frames(folder, more):
    (folder / "a.ctf").write_text("".join(f"|x {n}\n" for n in range(30)))
    return ConfigParameters(
        f"""readerType = CNTKTextFormatReader ; file = "{folder}/a.ctf" ; {more} ; frameMode = true
        input = [ x = [ dim = 1 ; format = dense ] ]"""
    )


def _binary(folder, more):
    write_binary(folder / "a.bin", Made([1] * 4, [1] * 3))
    return ConfigParameters(f'readerType = CNTKBinaryReader ; file = "{folder}/a.bin" ; {more}')


def _composite(folder, more):
    text = _text(folder, "")
    return ConfigParameters(
        f"""{more} ; deserializers = ( [ type = CNTKTextFormatDeserializer
        file = "{text.string("file")}" ; input = [ x = [ dim = 1 ; format = dense ] ] ] )"""
    )


def _htk(folder, more):
    corpus(folder, [6, 8, 5, 7])
    return section(folder, more)


def _deserializers(folder, more):
    return ConfigParameters(
        _htk(folder, more).text.string.replace("HTKMLFReader", "HTKDeserializers")
    )


def _uci(folder, more):
    lines = [f"{n % 3} {n} {-n}\n" for n in range(10)]
    (folder / "a.txt").write_text("".join(lines))
    (folder / "labels").write_text("0\n1\n2\n")
    return ConfigParameters(
        f"""readerType = UCIFastReader ; file = "{folder}/a.txt" ; {more}
        features = [ start = 1 ; dim = 2 ]
        labels = [ start = 0 ; dim = 1 ; labelType = category ; labelDim = 3
                   labelMappingFile = "{folder}/labels" ]"""
    )


def _lm(folder, more):
    lengths = [3, 5, 3, 4, 5, 3, 3, 2]
    (folder / "a.txt").write_text("".join("</s> " + "a " * (n - 2) + "</s>\n" for n in lengths))
    (folder / "vocab").write_text("0 9 </s> 0\n1 5 a 0\n")
    return ConfigParameters(
        f"""readerType = LMSequenceReader ; file = "{folder}/a.txt" ; wordclass = "{folder}/vocab"
        nbruttsineachrecurrentiter = 4 ; {more}
        features = [ dim = 0 ; sectionType = data ]
        labelIn = [ labelDim = 2 ; labelMappingFile = "{folder}/no" ; endSequence = "</s>" ]
        labels = [ labelType = nextWord ; labelMappingFile = "{folder}/no" ]"""
    )


def _lu(folder, more):
    (folder / "a.txt").write_text("BOS O\na X\nEOS O\n\n" * 3 + "BOS O\nb Y\na X\nEOS O\n")
    (folder / "words").write_text("<unk>\nBOS\nEOS\na\nb\n")
    (folder / "tags").write_text("O\nX\nY\n")
    return ConfigParameters(
        f"""readerType = LUSequenceReader ; file = "{folder}/a.txt" ; {more}
        nbruttsineachrecurrentiter = 3 ; features = [ dim = 0 ]
        labelIn = [ token = "{folder}/words" ; endSequence = EOS ; labelDim = 5 ]
        labels = [ token = "{folder}/tags" ; labelDim = 3 ; endSequence = none ]"""
    )


def _side_by_side(folder, more):
    lines = [f"|x {n}\n" for n in range(20)]
    (folder / "x.ctf").write_text("".join(lines))
    (folder / "y.ctf").write_text("".join(lines).replace("x", "y"))
    part = 'readerType = {} ; file = "{}/{}.ctf" ; randomize = false'
    part += " ; input = [ {} = [ dim = 1 ; format = dense ] ]"
    a, b = (part.format("CNTKTextFormatReader", folder, s, s) for s in "xy")
    return ConfigParameters(f"readers = one:two ; one = [ {a} ] ; two = [ {b} ]")


READERS = {
    # name -> section, more of it, minibatch size, whether it is legacy, whether it gives parts
    "text": (_text, "randomize = false", 12, False, True),
    "text, random": (_text, "randomize = true", 12, False, True),
    "text, frames": (_frames, "randomize = true", 12, False, True),
    "binary": (_binary, "randomize = false", 3, False, True),
    "composite": (_composite, "randomize = false", 12, False, True),
    "composite, whole": (_composite, "randomize = false ; localTimeline = false", 12, False, True),
    "HTK frames": (_htk, "", 6, True, True),
    "HTK rolling": (_htk, "readMethod = rollingWindow ; pageFilePath = x", 6, True, False),
    "HTK utterances": (_htk, "frameMode = false ; nbruttsineachrecurrentiter = 4", 16, True, True),
    "HTK whole minibatches": (_htk, "minibatchMode = full", 6, True, False),
    "HTK deserializers": (_deserializers, "readMethod = none", 6, True, True),
    "UCI": (_uci, "randomize = none", 4, True, False),
    "LM": (_lm, "", 100, True, False),
    "LU": (_lu, "", 100, True, False),
    "side by side": (_side_by_side, "", 6, False, True),
}


def _samples(batches):
    """All samples of all streams, counted."""
    found: Counter = Counter()
    for batch in batches:
        for name, samples in batch.streams.items():
            dim = 9 if samples.first is not None else samples.values.shape[1]
            found.update((name, *row) for row in np.asarray(samples.dense(dim)).tolist())
    return found


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", READERS)
def test_parts_of_every_reader_are_the_whole(name, ranks, tmp_path):
    """Where a reader gives no parts, ranks cut its minibatches."""
    make, more, size, legacy, shares = READERS[name]
    with create_reader(make(tmp_path, more)) as reader:
        assert reader.legacy is legacy
        alone = _samples(epoch(reader, size))
    parts = Counter()
    for rank in range(ranks):
        with create_reader(make(tmp_path, more)) as reader:
            took = reader.take_share(rank, ranks)
            assert shares is None or took is shares
            for batch in epoch(reader, size):
                own = batch if took or not batch else sub_minibatch(batch, rank, ranks)
                parts.update(_samples([own]) if own else ())
            assert reader.take_share(0, 1)
            assert _samples(epoch(reader, size)) == alone  # the whole again
    assert parts == alone and sum(alone.values())


@pytest.mark.parametrize(
    ("name", "given", "divides"),
    [
        ("text", None, True),
        ("text", False, False),
        ("HTK frames", None, False),
        ("HTK frames", True, True),
        ("UCI", True, False),
    ],
)
def test_which_readers_are_asked_for_parts(name, given, divides, tmp_path):
    """`distributedMBReading` is true by default, and false for legacy readers."""
    ranks = Ranks(EchoCommunicator(2), ParallelOptions("gradients", distributed=given), 1)
    make, more, *_ = READERS[name]
    with create_reader(make(tmp_path, more)) as reader:
        assert ranks.divide(reader, True) is divides
        assert ranks.divide(reader, False) is False
