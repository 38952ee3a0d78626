"""Data of trainings: its forms, what of it cannot be used, what is held out."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError
from opscope.speech.training.checking import Checked, Recorded, check, hold_out
from opscope.speech.training.data import Recordings, read_corpus
from opscope.speech.training.options import RecognizerOptions
from opscope.speech.training.preparing import dictionary_of
from spoken_tones import RATE, spoken, write_corpus, write_recording


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "data", each=2)


def checked(data: Path, **options: object) -> Checked:
    chosen = RecognizerOptions(lexicon=str(data / "lexicon.txt"), **options)
    return check(read_corpus(data), dictionary_of(chosen, ()), chosen)


def test_three_forms_of_one_corpus(data, tmp_path):
    """A folder, a CSV file with tabs, and Kaldi's folder, which cuts the recordings."""
    folder = read_corpus(data).utterances
    rows = [f"audio\tsentence\tspeaker_id\n{''}"]
    kaldi = tmp_path / "kaldi"
    kaldi.mkdir()
    files: dict[str, list[str]] = {"wav.scp": [], "text": [], "utt2spk": [], "segments": []}
    for each in folder:
        rows.append(f"{Path(each.path).relative_to(tmp_path)}\t{each.text}\t{each.speaker}\n")
        files["wav.scp"].append(f"r-{each.key} {each.path}")
        files["text"].append(f"{each.key} {each.text}")
        files["utt2spk"].append(f"{each.key} {each.speaker}")
        files["segments"].append(f"{each.key} r-{each.key} 0.05 0.55")
    for name, lines in files.items():
        (kaldi / name).write_text("\n".join(lines) + "\n")
    (tmp_path / "table.tsv").write_text("".join(rows))
    table, cut = read_corpus(tmp_path / "table.tsv").utterances, read_corpus(kaldi).utterances
    for one, two, three in zip(folder, table, cut, strict=True):
        assert one.text == two.text == three.text
        assert one.speaker == two.speaker == three.speaker
        assert one.path == two.path == three.path
        recordings = Recordings()
        whole, part = (recordings.audio(each).samples[0] for each in (two, three))
        np.testing.assert_array_equal(part, whole[int(0.05 * RATE) : int(0.55 * RATE)])


def test_a_table_of_a_spreadsheet(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text('\ufeffPath,Text\na.wav,"low,\nhigh"\nb.wav,low\u2028high\n', "utf-8")
    assert [each.text for each in read_corpus(table).utterances] == ["low, high", "low high"]
    table.write_text('path,text\na.wav,"low\n' + "low " * 50_000)
    with pytest.raises(FormatError, match="table.csv: line 3: field larger than field limit"):
        read_corpus(table)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "the file is empty"),
        (b"a.wav,low\n", "its first line has no column path"),
        (b"path,text\n", "there is no recording with a text"),
        (b"path,text\na\0.wav,low\n", "line 2: a zero byte"),
        (b"path,text\na.wav,\xff\n", r"no text in UTF-8 \(byte 16\)"),
        (None, "a pipe or a device, not a file"),
    ],
)
def test_tables_that_are_none(tmp_path, content, message):
    table = tmp_path / "table.csv"
    os.mkfifo(table) if content is None else table.write_bytes(content)
    with pytest.raises(FormatError, match=f"table.csv: {message}"):
        read_corpus(table)


@pytest.mark.parametrize("name", ["wav.scp", "text", "utt2spk", "segments"])
def test_a_pipe_in_the_place_of_a_file(tmp_path, name):
    for other in ("wav.scp", "text"):
        (tmp_path / other).write_text("u1 low\n")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(FormatError, match=f"{name}: a pipe or a device, not a file"):
        read_corpus(tmp_path)


def test_recordings_that_files_name(tmp_path, monkeypatch):
    """Commands want the permission for those in files; pipes are not waited for."""
    monkeypatch.setenv("OPSCOPE_PIPES", "1")
    os.mkfifo(tmp_path / "pipe.wav")
    rows = f"u1 touch {tmp_path}/made |\nu2 {tmp_path}/pipe.wav\n"
    (tmp_path / "wav.scp").write_text(rows)
    (tmp_path / "text").write_text("u1 low\nu2 high\n")
    one, two = read_corpus(tmp_path).utterances
    recordings = Recordings()
    with pytest.raises(FormatError, match="which is not allowed; set OPSCOPE_PIPES=files"):
        recordings.audio(one)
    assert not (tmp_path / "made").exists()
    with pytest.raises(FormatError, match=r"pipe.wav: a pipe or a device, not a file"):
        recordings.audio(two)


def test_what_cannot_be_used_is_named_and_counted(data):
    rng = np.random.default_rng(1)
    good = spoken("low high", rng)
    cases = {
        "short": (good[:200], "low", "0.03 s are too short"),
        "silent": (np.zeros(8000), "low", "no signal, all samples are equal"),
        "empty": (np.zeros(0), "low", "a WAV file without samples"),
        "unsaid": (good, " ", "its text is empty"),
        "strange": (good, "low medium", "words without a pronunciation: 'medium'"),
        "crowded": (good[:3000], "low high " * 5, "10 words, of 20 phones or more, do not fit"),
        "slow": (good[::2], "low", "4000 Hz, but features are computed at 8000 Hz"),
    }
    for name, (samples, text, _) in cases.items():
        path = data / "bob" / f"{name}.wav"
        write_recording(path, samples, RATE // 2 if name == "slow" else RATE)
        path.with_suffix(".txt").write_text(text)
    (data / "bob/broken.wav").write_bytes(b"RIFF1234")
    (data / "bob/broken.txt").write_text("low")
    write_recording(data / "bob/alone.wav", good)
    with pytest.raises(FormatError) as caught:
        checked(data)
    message = str(caught.value)
    for name, (_, _, why) in cases.items():
        assert f"bob-{name}: " in message
        assert why in message
    assert "bob-broken: " in message
    assert "there is no alone.txt beside it" in message
    assert message.startswith("9 recordings cannot be used; --skip-bad")
    found = checked(data, skip_bad=True)
    assert len(found.utterances) == 6
    assert found.lines()[-1] == "left out: 9 that cannot be used"


def test_what_is_held_out_and_noted(data, tmp_path):
    (data / "ann/2.txt").write_text("\ufeffhigh high\n", "utf-8")  # as some editors write it
    (data / "ann/2.wav").write_bytes((data / "ann/1.wav").read_bytes())
    (data / "lexicon.txt").write_text("low l o\nhigh h i\nmid m i d\n")
    found = checked(data)
    assert len({each.speaker for each in found.held_out}) == 1
    assert {each.speaker for each in found.held_out}.isdisjoint(
        each.speaker for each in found.training
    )
    assert {each.speaker for each in checked(data, test_speakers="ann, bob").held_out} == {
        "ann",
        "bob",
    }
    assert any("same recording twice: ann-1 and ann-2" in note for note in found.notes)
    same = (data / "bob/1.wav").read_bytes()
    for number in range(3, 15):
        (data / f"bob/{number}.wav").write_bytes(same)
        (data / f"bob/{number}.txt").write_text((data / "bob/1.txt").read_text())
    first, *others, more = [note for note in checked(data).notes if "phones" not in note]
    assert first == "the same recording twice: ann-1 and ann-2, with different texts"
    assert (len(others), more) == (9, "and 3 more")
    assert "phones that are never trained: d m" in found.notes
    found.write(str(tmp_path / "checked.json"))
    assert Checked.read(str(tmp_path / "checked.json")) == found
    with pytest.raises(FormatError, match="no speaker 'dan'; there are ann, bob, cid"):
        checked(data, test_speakers="dan")


@pytest.mark.parametrize(
    "sizes, share, held",
    [
        ((40, 3, 3, 4), 0.2, 10),  # the three small ones, and not the large one
        ((4, 4, 4), 0.1, 4),  # one of equals
        ((30, 20), 0.1, 20),  # each is too large: the smaller one
        ((5, 5), 0.9, 5),  # not all
    ],
)
def test_speakers_are_held_out_by_their_sizes(sizes, share, held):
    utterances = [
        Recorded(f"{speaker}-{at}", "", "low", f"s{speaker}")
        for speaker, size in enumerate(sizes)
        for at in range(size)
    ]
    for seed in range(5):
        found = Checked(RATE, list(utterances))
        hold_out(found, RecognizerOptions(hold_out=share, seed=seed))
        assert len(found.held_out) == held


def test_characters_are_the_units_without_a_lexicon(tmp_path):
    text = tmp_path / "said.txt"
    text.write_text("\ufeff--\n", "utf-8")
    found = dictionary_of(RecognizerOptions(text=str(text)), ["It's", "Ça"])
    spelled = {entry.word: "".join(entry.phones) for entry in found.entries}
    assert spelled == {"It's": "its", "Ça": "ça", "--": "--", "<unk>": "<spn>"}
