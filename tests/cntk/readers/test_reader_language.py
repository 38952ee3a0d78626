"""LMSequenceReader, LUSequenceReader and LUSequenceWriter: sentences, words, classes, labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htk_files import epoch
from opscope.cntk.base.std_shuffle import mersenne32, minimal_standard, shuffled
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.words import read_word_classes, read_words, read_words_with_classes
from opscope.cntk.readers.catalog import create_reader, create_writer
from opscope.cntk.readers.language.noise_words import NoiseWords
from opscope.framework.base.errors import FormatError, OpscopeError, SaveError, ShapeError

CLASSES = "0 9 </s> 0\n1 5 a 0\n2 4 b 1\n3 2 c 1\n4 1 <unk> 2\n"


@pytest.mark.parametrize(
    ("engine", "seed", "number"),
    [(mersenne32, 5489, 4123659995), (minimal_standard, 1, 1043618065 - 1)],
)
def test_generators_of_cpp(engine, seed, number):
    """The 10,000th numbers are part of the C++ standard."""
    made = engine(seed)
    numbers = [made.below(made.span) for _ in range(9999)]
    assert len(numbers) == 9999 and next(made._numbers) == number


@given(st.integers(0, 40), st.integers(0, 5))
def test_shuffling_keeps_all(count, seed):
    assert sorted(shuffled(count, mersenne32(seed))) == list(range(count))
    assert sorted(shuffled(count, minimal_standard(seed))) == list(range(count))


def test_many_numbers_take_one_draw_each():
    assert sorted(shuffled(70000, minimal_standard(3))) == list(range(70000))


# -- language models


def lm(folder, text, more="", features="dim = 0", labels='labelType = "nextWord"'):
    (folder / "a.txt").write_text(text)
    (folder / "vocab").write_text(CLASSES)
    return ConfigParameters(
        f"""readerType = "LMSequenceReader" ; file = "{folder}/a.txt" ; {more}
        wordclass = "{folder}/vocab"
        features = [ {features} ; sectionType = "data" ]
        labelIn = [ labelDim = 5 ; labelMappingFile = "{folder}/no" ; endSequence = "</s>" ]
        labels = [ {labels} ; labelMappingFile = "{folder}/no" ]"""
    )


def test_words_tell_the_next_ones(tmp_path):
    with create_reader(lm(tmp_path, "</s> a b </s>\n")) as reader:
        (batch,) = epoch(reader, 10)
        assert reader.label_mapping("features")[2] == "b"
    assert batch.streams["features"].indices.tolist() == [0, 1, 2]
    told = batch.streams["labels"].values.tolist()
    # word, class, and the words at which the class begins and ends
    assert told == [[1, 0, 0, 2], [2, 1, 2, 4], [0, 0, 0, 2]]


def test_sentences_of_one_length_come_together(tmp_path):
    lengths = [3, 5, 3, 4, 5, 3, 3, 2]
    text = "".join("</s> " + "a " * (n - 2) + "</s>\n" for n in lengths)
    config = lm(tmp_path, text, "nbruttsineachrecurrentiter = 3")
    with create_reader(config) as reader:
        orders = []
        for number in range(2):
            batches = epoch(reader, 100, number)
            for batch in batches:
                lines = batch.sequences[:, 1].tolist()
                assert len({lengths[line] for line in lines}) == 1 and len(lines) <= 3
                assert batch.layouts["labels"].samples == batch.layouts["labels"].columns
            orders.append([line for b in batches for line in b.sequences[:, 1].tolist()])
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(7))  # two words are too few
    assert orders[0] != orders[1]


def one_by_one(counts, number):
    """Words as Boost's distributions draw them from std::mt19937, one number after the other."""
    random = np.random.RandomState(1234)
    average, chance = 1 / len(counts), counts / counts.sum()
    values, order = chance / average, np.arange(len(counts))
    small, large = list(order[values < 1]), list(order[values >= 1])
    share, other = [1.0] * len(counts), [0] * len(counts)
    while small and large:  # Walker's tables
        low = small[0]
        share[low], other[low] = values[low], large[0]
        values[large[0]] -= 1 - values[low]
        small[:1] = [large.pop(0)] if values[large[0]] < 1 else []

    def engine():
        return int(random.randint(0, 1 << 32, dtype=np.uint32))

    def below(bound):
        while True:
            found = engine() // ((1 << 32) // bound)
            if found < bound:
                return found

    for _ in range(number):
        below(len(counts))
        word, place = below(len(counts)), engine() / 2**32
        engine()
        yield word if place < share[word] else other[word]


@pytest.mark.parametrize("words", [2, 5, 97])
def test_words_of_noise_are_those_of_cntk(words):
    counts = np.random.default_rng(words).integers(1, 50, words).astype(float)
    noise = NoiseWords(counts)
    drawn = np.append(noise.draw(300), noise.draw(100))
    assert drawn.tolist() == list(one_by_one(counts, 400))


def test_words_of_noise_where_numbers_are_passed_over(monkeypatch):
    """Boost passes over numbers above the last whole multiple."""
    counts = np.ones(3)
    numbers = [
        [7, 0, 0, 0],
        [2**32 - 1, 7, 2**31, 0, 0],
        [7, 2**32 - 1, 2**32 - 1, 2**32 - 2, 1, 0],
    ]
    noise = NoiseWords(counts)
    stream = iter(sum(numbers, []) + [5] * 9)
    monkeypatch.setattr(noise, "_numbers", lambda n: np.array([next(stream) for _ in range(n)]))
    assert noise.draw(3).tolist() == [0, 1, 2]


def test_words_of_noise_come_as_often_as_they_occur():
    counts = np.array([5.0, 0.0, 1.0, 14.0])
    drawn = np.bincount(NoiseWords(counts).draw(20000), minlength=4)
    np.testing.assert_allclose(drawn / 20000, counts / 20, atol=0.01)
    assert drawn[1] == 0 and NoiseWords(counts[:1]).draw(3).tolist() == [0, 0, 0]


def test_noise_is_drawn_column_by_column(tmp_path):
    """Of a minibatch of two sentences, and again at each epoch; a new reader begins anew."""
    text = "</s> a b </s>\n</s> b c </s>\n"
    config = lm(
        tmp_path, text, "nbruttsineachrecurrentiter = 2", "dim = 0 ; mode = nce ; noise_number = 3"
    )
    counts = np.array([9.0, 5, 4, 2, 1])
    wanted = np.array(list(one_by_one(counts, 36))).reshape(2, 3, 2, 3)
    logs = np.log(counts / 21)
    for _ in range(2):
        with create_reader(config) as reader:
            for drawn in wanted:
                (batch,) = epoch(reader, 6)
                rows = batch.streams["labels"].values.reshape(2, 3, 8)
                assert rows[..., 2::2].tolist() == drawn.transpose(1, 0, 2).tolist()
                np.testing.assert_allclose(
                    rows[..., 3::2], -logs[rows[..., 2::2].astype(int)], 1e-6
                )
                np.testing.assert_allclose(rows[..., 1], logs[rows[..., 0].astype(int)], 1e-6)


def test_long_sentences_come_in_pieces(tmp_path):
    config = lm(tmp_path, "</s> a b c a b </s>\n", "nbruttsineachrecurrentiter = 1")
    with create_reader(config) as reader:
        batches = epoch(reader, 4)
    assert [batch.samples for batch in batches] == [4, 2]
    assert [b.layouts["labels"].begin[0] for b in batches] == [0, -4]
    assert [b.layouts["labels"].end[0] for b in batches] == [6, 2]
    words = np.concatenate([b.streams["labels"].values[:, 0] for b in batches])
    assert words.tolist() == [1, 2, 3, 1, 2, 0]


def test_as_many_sentences_as_the_size_takes(tmp_path):
    config = lm(tmp_path, "</s> a </s>\n" * 7, "nbruttsineachrecurrentiter = 0")
    with create_reader(config) as reader:
        sizes = [len(batch.sequences) for batch in epoch(reader, 10)]
    assert sizes == [3, 3, 1]  # of three words, one of them only told; below 10 together


def test_sentences_are_shuffled_within_the_cache(tmp_path):
    config = lm(tmp_path, "</s> a </s>\n" * 30, "cacheBlockSize = 30")
    with create_reader(config) as reader:
        lines = [batch.sequences[0, 1] for batch in epoch(reader, 10)]
    for block in range(3):
        part = lines[10 * block : 10 * block + 10]
        assert sorted(part) == list(range(10 * block, 10 * block + 10)) != part


def test_an_epoch_ends_after_its_samples(tmp_path):
    with create_reader(lm(tmp_path, "</s> a </s>\n" * 30)) as reader:
        assert sum(batch.samples for batch in epoch(reader, 10, 0, 9)) == 10


def test_numbers_of_words_and_noise(tmp_path):
    text = "</s> a b </s>\n"
    with create_reader(lm(tmp_path, text, features='dim = 0 ; mode = "softmax"')) as reader:
        told = epoch(reader, 10)[0].streams["labels"].values
    assert told[:, 0].tolist() == [1, 2, np.float32(1e-6)]
    with create_reader(
        lm(tmp_path, text, features='dim = 0 ; mode = "nce" ; noise_number = 3')
    ) as reader:
        told = epoch(reader, 10)[0].streams["labels"].values
    assert told.shape == (3, 8)
    chance = np.array([9, 5, 4, 2, 1]) / 21
    np.testing.assert_allclose(told[:, 1], np.log(chance[[1, 2, 0]]), rtol=1e-6)
    noise = told[:, 2::2].astype(int)
    np.testing.assert_allclose(told[:, 3::2], -np.log(chance[noise]), rtol=1e-6)


def test_unknown_words(tmp_path):
    config = lm(tmp_path, "</s> a b </s>\n</s> a zz </s>\n")
    with create_reader(config) as reader:
        assert 4 in [i for b in epoch(reader, 9) for i in b.streams["features"].indices.tolist()]
    config.insert("unk", "<none>")
    with pytest.raises(FormatError, match=r"a.txt:2: the word 'zz' is not in .*vocab"):
        create_reader(config)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("labelDim = 5", "labelDim = 9", "has 5 words, not 9"),
        ('"nextWord"', '"next"', "category, nextWord or none"),
        ("dim = 0", 'mode = "hard" ; dim = 0', "class, softmax or nce"),
        ("wordclass", "wordcluss", "needs a wordclass file|no file"),
        ("a.txt", "b.txt", "No such file"),
        ("dim = 0", "dim = 0 ; mode = nce ; noise_number = -1", "1000000 are possible"),
    ],
)
def test_wrong_lm_configs(tmp_path, old, new, why):
    text = lm(tmp_path, "</s> a </s>\n").text.string
    with pytest.raises(FormatError, match=why):
        create_reader(ConfigParameters(text.replace(old, new)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0 1 a\n", ":1: 4 columns were expected"),
        ("0 1 a x\n", ":1: a number was expected, not 'x'"),
        ("0 1 a 0\n0 1 b 0\n", ":2: the numbers of 2 words"),
        ("0 1 a 1\n1 1 b 0\n", "word 1 has class 0; classes must ascend"),
        ("", "the list is empty"),
    ],
)
def test_wrong_word_classes(tmp_path, text, why):
    (tmp_path / "v").write_text(text)
    with pytest.raises(FormatError, match=why):
        read_word_classes(tmp_path / "v", "<unk>")


# -- language understanding


def lu(folder, text, more="", ins="", outs=""):
    (folder / "a.txt").write_text(text)
    (folder / "words").write_text("<unk>\nBOS\nEOS\na\nb\n")
    (folder / "tags").write_text("O\nX\nY\n")
    return ConfigParameters(
        f"""readerType = "LUSequenceReader" ; file = "{folder}/a.txt" ; {more}
        features = [ dim = 0 ]
        labelIn = [ token = "{folder}/words" ; endSequence = "EOS" ; labelDim = 5 ; {ins} ]
        labels = [ token = "{folder}/tags" ; labelDim = 3 ; endSequence = "none" ; {outs} ]"""
    )


SENTENCES = "BOS O\na X\nEOS O\n\nBOS O\nb Y\na X\nEOS O\nzz X\nb O\n\n\na Y\nb b X\n"


def test_no_sentence_at_a_time(tmp_path):
    config = lu(tmp_path, SENTENCES, "nbruttsineachrecurrentiter = 0")
    with pytest.raises(FormatError, match="a minibatch has one sentence at least"):
        create_reader(config)


def test_tokens_and_labels(tmp_path):
    with create_reader(lu(tmp_path, SENTENCES)) as reader:
        batches = epoch(reader, 4)
        assert reader.label_mapping("labels") == {0: "O", 1: "X", 2: "Y"}
    words = [batch.streams["features"].indices.tolist() for batch in batches]
    labels = [batch.streams["labels"].indices.tolist() for batch in batches]
    assert words == [[1, 3, 2], [1, 4, 3, 2], [0, 4], [3, 4]]
    assert labels == [[0, 1, 0], [0, 2, 1, 0], [1, 0], [2, 1]]


def test_an_output_label_ends_a_sentence(tmp_path):
    config = lu(tmp_path, "a X\na O\nb X\nb O\n", outs='endSequence = "O"')
    with create_reader(config) as reader:
        assert [batch.samples for batch in epoch(reader, 4)] == [2, 2]


def test_context_stays_in_the_sentence(tmp_path):
    config = lu(tmp_path, SENTENCES, "wordContext = -1:0:1")
    with create_reader(config) as reader:
        rows = epoch(reader, 4)[0].streams["features"].dense(15)
    words = rows.reshape(3, 3, 5).argmax(2).tolist()
    assert words == [[1, 1, 3], [1, 3, 2], [3, 2, 2]]


def test_sentences_of_one_length_among_the_next_ones(tmp_path):
    text = "".join("a O\n" * n + "\n" for n in (2, 3, 2, 2, 3))
    config = lu(tmp_path, text, "nbruttsineachrecurrentiter = 3")
    with create_reader(config) as reader:
        groups = [batch.sequences[:, 1].tolist() for batch in epoch(reader, 3)]
    assert groups == [[0, 2], [1, 4], [3]]
    config.insert("equalLength", "false")
    with create_reader(config) as reader:
        batches = epoch(reader, 3)
    assert [batch.sequences[:, 1].tolist() for batch in batches] == [[0, 1, 2], [3, 4]]
    assert [batch.columns for batch in batches] == [9, 6]


def test_shuffled_and_repeated(tmp_path):
    text = "".join("a O\n" * n + "\n" for n in range(1, 9))
    with create_reader(lu(tmp_path, text, "randomize = auto ; dataMultiPass = true")) as reader:
        # The generator takes the seeds 0 and 1 for the same.
        _, first, second = ([b.samples for b in epoch(reader, 8, n)] for n in range(3))
        assert sorted(first) == sorted(second) == list(range(1, 9)) and first != second
        assert sum(batch.samples for batch in epoch(reader, 8, 3, 50)) >= 50


def test_words_that_stand_for_others(tmp_path):
    (tmp_path / "map").write_text("BOS BOS\nEOS EOS\na b\nb b\n")
    config = lu(tmp_path, SENTENCES, f'wordmap = "{tmp_path}/map"', ins="useWordMap = true")
    with create_reader(config) as reader:
        assert epoch(reader, 4)[0].streams["features"].indices.tolist() == [1, 4, 2]


def test_labels_with_classes(tmp_path):
    config = lu(tmp_path, SENTENCES, outs='mode = "class"')
    (tmp_path / "tags").write_text("O 0\nX 1\nY 1\n")
    with create_reader(config) as reader:
        rows = epoch(reader, 4)[0].streams["labels"].values
    assert rows.tolist() == [[0, 0, 0, 1], [1, 1, 1, 3], [0, 0, 0, 1]]


def test_what_lu_refuses(tmp_path):
    with create_reader(lu(tmp_path, SENTENCES)) as reader:
        with pytest.raises(ShapeError, match="longest sentence has 4 words"):
            reader.start_minibatch_loop(3, 0)
    with pytest.raises(FormatError, match=r"a.txt:2: the word 'Q' is not in .*tags"):
        create_reader(lu(tmp_path, "a O\na Q\n"))
    with pytest.raises(FormatError, match="there is no sentence"):
        create_reader(lu(tmp_path, "\n\n"))


def test_lines_without_a_label_are_told(tmp_path, caplog):
    with create_reader(lu(tmp_path, "a O\nb\nb X\n\na\n")) as reader:
        assert sum(batch.samples for batch in epoch(reader, 100)) == 2
    assert "a.txt:2: words and a label were expected, not one word; 2 such" in caplog.text


@given(st.lists(st.sampled_from(["a O", "b b X", "", "EOS O", "a", " "]), max_size=20))
@settings(max_examples=40, deadline=None)
def test_any_lines(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("lu")
    try:
        with create_reader(lu(folder, "\n".join(lines), "prefetch = false")) as reader:
            count = sum(batch.samples for batch in epoch(reader, 100))
    except OpscopeError as error:
        assert "a.txt" in str(error)
        count = 0
    assert count == sum(len(line.split()) > 1 for line in lines)


def tags(folder, nbest=1):
    (folder / "tags").write_text("O\nX\nY\n")
    return create_writer(
        ConfigParameters(
            f"""writerType = "LUSequenceWriter" ; outputNodeNames = "z"
            z = [ file = "{folder}/out/tags.txt" ; token = "{folder}/tags" ; nbest = {nbest} ]"""
        )
    )


def test_the_best_labels_are_written(tmp_path):
    values = np.array([[0, 1, 0], [2, 1, 0], [0, 3, 4.0]])
    for nbest, expected in ((1, "X O \nY \n"), (2, "X O X \nY X \n")):
        with tags(tmp_path, nbest) as writer:
            writer.save_data({"z": Samples(np.array([0, 2, 3]), values)})
        assert (tmp_path / "out" / "tags.txt").read_text() == expected


def test_the_best_words_are_written(tmp_path):
    (tmp_path / "words").write_text("0 9 the 0\n1 5 a 0\n2 1 cat 1\n")
    text = f"""writerType = "LMSequenceWriter" ; outputNodeNames = "z"
        z = [ file = "{tmp_path}/best" ; token = "{tmp_path}/words" ]"""
    with create_writer(ConfigParameters(text)) as writer:
        writer.save_data({"z": Samples(np.array([0, 2]), np.array([[0, 1, 3.0], [2, 1, 0]]))})
    assert (tmp_path / "best").read_text() == "cat the \n"
    (tmp_path / "words").write_text("0 9 the\n")
    with pytest.raises(FormatError, match="words:1: 4 columns were expected"):
        create_writer(ConfigParameters(text))


def test_a_writer_that_cannot_write(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(SaveError):
        tags(tmp_path)


def test_word_lists(tmp_path):
    (tmp_path / "v").write_text("a 0\nb 1\nc 0\n")
    with pytest.raises(FormatError, match="word 2 has class 0; classes must ascend"):
        read_words_with_classes(tmp_path / "v", "<unk>")
    (tmp_path / "v").write_text("a\nb\n\nc\n")
    assert read_words(tmp_path / "v", "b").numbers == {"a": 0, "b": 1}
