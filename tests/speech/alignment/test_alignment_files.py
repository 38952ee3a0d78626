"""Alignments as files, read back by what reads such files; the command `opscope align`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from opscope.kaldi.files.kaldi_io import Writer
from opscope.python_api.cli.main import main
from opscope.speech import AlignedPhone, AlignedWord, Alignment, Audio, align
from opscope.speech.alignment.formats import FORMATS
from opscope.speech.audio.wav import write_wav
from opscope.speech.recognize.model import Model
from speech_models import RATE, small_files, speech, write_files

QUOTED = '"a""b"'


def made() -> Alignment:
    """Words with quotes and signs of other formats, a gap of nothing, and a word of no time."""
    phones = [
        AlignedPhone("sil", 0.0, 0.1 + 1e-9, 0.5),
        AlignedPhone("x", 0.1, 0.2, 0.25),
        AlignedPhone('"', 0.2, 0.3, 0.75),
        AlignedPhone("sil", 0.3, 0.5, 1.0),
        AlignedPhone("y", 0.5, 1.0 / 3 + 0.5, 0.125),
    ]
    lines = [
        [
            AlignedWord(QUOTED, 0.1, 0.3, 0.4567, phones[1:3]),
            AlignedWord("<&>", 0.3, 0.3, 1.0, []),
        ],
        [AlignedWord("한국", 0.5, 1.0 / 3 + 0.5, 0.125, phones[4:])],
    ]
    return Alignment("some/a b.c.wav", 1.25, lines, phones, 0.3, 1.5, 10.0)


def praat_tiers(text: str) -> dict[str, list[tuple[float, float, str]]]:
    """The interval tiers of a TextGrid by Praat's rules: all that counts are free-standing numbers,
    texts in quotes (doubled inside) and flags in angle brackets."""
    text = "\n".join(line.split("!")[0] if '"' not in line else line for line in text.split("\n"))
    found = re.findall(r'"(?:[^"]|"")*"|<exists>|(?<=[\s])-?[\d.]+(?=\s|$)', text)
    tokens = iter(found)

    def string() -> str:
        token = next(tokens)
        assert token.startswith('"')
        return token[1:-1].replace('""', '"')

    assert (string(), string()) == ("ooTextFile", "TextGrid")
    begin, end = float(next(tokens)), float(next(tokens))
    assert begin == 0 and next(tokens) == "<exists>"
    tiers = {}
    for _ in range(int(next(tokens))):
        assert string() == "IntervalTier"
        name = string()
        assert (float(next(tokens)), float(next(tokens))) == (begin, end)
        rows = []
        for _ in range(int(next(tokens))):
            rows.append((float(next(tokens)), float(next(tokens)), string()))
        assert rows[0][0] == begin and rows[-1][1] == end
        assert all(one[1] == other[0] for one, other in zip(rows, rows[1:], strict=False))
        assert all(start < stop for start, stop, _ in rows)
        tiers[name] = rows
    assert not list(tokens)
    return tiers


def test_a_textgrid_has_all_intervals() -> None:
    tiers = praat_tiers(FORMATS["textgrid"](made()))
    assert list(tiers) == ["words", "phones"]
    assert [text for _, _, text in tiers["words"]] == ["", QUOTED, "", "한국", ""]
    assert [text for _, _, text in tiers["phones"]] == ["sil", "x", '"', "sil", "y", ""]
    assert tiers["phones"][-1][:2] == (0.833333, 1.25)


def test_praat_reads_a_textgrid(tmp_path: Path) -> None:
    praat = pytest.importorskip("parselmouth")
    path = tmp_path / "a.TextGrid"
    path.write_text(FORMATS["textgrid"](made()), encoding="utf-8")
    grid = praat.read(str(path))
    call = praat.praat.call
    assert call(grid, "Get number of tiers") == 2
    for tier, (name, rows) in enumerate(praat_tiers(path.read_text("utf-8")).items(), 1):
        assert call(grid, "Get tier name", tier) == name
        assert call(grid, "Get number of intervals", tier) == len(rows)
        for place, (begin, end, text) in enumerate(rows, 1):
            assert call(grid, "Get label of interval", tier, place) == text
            assert call(grid, "Get start time of interval", tier, place) == begin
            assert call(grid, "Get end time of interval", tier, place) == end


def test_ctm_is_nists() -> None:
    lines = FORMATS["ctm"](made()).splitlines()
    assert lines == [
        f"a_b.c 1 0.10 0.20 {QUOTED} 0.46",
        "a_b.c 1 0.30 0.00 <&> 1.00",
        "a_b.c 1 0.50 0.33 한국 0.12",
    ]
    assert all(re.fullmatch(r"\S+ \S+ \d+\.\d\d \d+\.\d\d \S+ [01]\.\d\d", line) for line in lines)


def test_text_json_and_subtitles() -> None:
    assert FORMATS["txt"](made()) == (
        f'0.10 0.30 0.46 {QUOTED} x "\n0.30 0.30 1.00 <&>\n0.50 0.83 0.12 한국 y\n'
    )
    found = json.loads(FORMATS["json"](made()))
    assert found["utterances"][1] == {
        **{"start": 0.5, "end": 0.833, "text": "한국"},
        "words": [
            {
                **{"text": "한국", "start": 0.5, "end": 0.833, "confidence": 0.125},
                "phones": [{"text": "y", "start": 0.5, "end": 0.833, "confidence": 0.125}],
            }
        ],
    }
    assert {name: found[name] for name in ("duration", "confidence", "log_likelihood", "beam")} == {
        **{"duration": 1.25, "confidence": 0.3, "log_likelihood": 1.5, "beam": 10.0},
    }
    assert FORMATS["srt"](made()) == (
        f"1\n00:00:00,100 --> 00:00:00,300\n{QUOTED} <&>\n\n"
        "2\n00:00:00,500 --> 00:00:00,833\n한국\n"
    )
    assert f"\n{QUOTED} &lt;&amp;&gt;\n" in FORMATS["vtt"](made())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, recordings and their texts in all forms."""
    made = tmp_path_factory.mktemp("align")
    write_files(small_files(made / "parts"), made / "model")
    texts = {"one": "ab c", "two": "ba\nba"}
    for name, text in texts.items():
        writer = Writer()
        write_wav(writer, Audio(speech(text)[None].astype(np.float32), RATE))
        (made / f"{name}.wav").write_bytes(writer.getvalue().removeprefix(b"\0B"))
        (made / f"{name}.txt").write_text(text)
    lines = (f"{name} {' '.join(text.split())}\n" for name, text in texts.items())
    (made / "text").write_text("".join(lines))
    (made / "wav.scp").write_text("".join(f"{name} {made}/{name}.wav\n" for name in texts))
    return made


def call(folder: Path, *words: str, given: str | None = None) -> Result:
    made = [word.replace("@", f"{folder}/") for word in words]
    return CliRunner().invoke(main, ["align", str(folder / "model"), *made], input=given)


def test_the_command_on_one_file(folder: Path) -> None:
    made = call(folder, "@one.wav", "@one.txt")
    assert made.exit_code == 0, made.output
    wanted = align(folder / "one.wav", "ab c", Model(folder / "model"))
    assert made.stdout == FORMATS["txt"](wanted)
    again = call(folder, "@one.wav", "-", "--format", "json", given="ab\nc")
    assert [each["text"] for each in json.loads(again.stdout)["utterances"]] == ["ab", "c"]
    for form in ("srt", "vtt", "ctm", "textgrid"):
        made = call(folder, "@one.wav", "@one.txt", "--format", form)
        assert made.stdout == FORMATS[form](wanted) and made.exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("@one.wav", "@two.wav", "@."),
        ("@one.wav", "@two.wav", "@text"),
        ("scp:@wav.scp", "@text"),
        ("scp:@wav.scp", "ark:@text"),
        ("@one.wav", "@two.wav", "@text", "--jobs", "2"),
    ],
)
def test_the_command_on_several(words: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    made = call(folder, *words, "--format", "ctm")
    assert made.exit_code == 0, made.output
    fields = [line.split() for line in made.stdout.splitlines()]
    assert [(f[0], f[4]) for f in fields] == [
        *(("one", "ab"), ("one", "c"), ("two", "ba"), ("two", "ba")),
    ]
    out = tmp_path / "out"
    made = call(folder, *words, "--format", "textgrid", "-o", str(out))
    assert made.exit_code == 0, made.output
    assert sorted(path.name for path in out.iterdir()) == ["one.TextGrid", "two.TextGrid"]
    assert len(praat_tiers((out / "two.TextGrid").read_text())["words"]) == 5


def test_what_fails_is_told_and_the_others_go_on(folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("one ab c\nthree ab\ntwo ab x\n")
    made = call(folder, "scp:@wav.scp", str(text), "--format", "ctm")
    assert made.exit_code == 1 and made.stdout.count("one 1") == 2
    assert "wav.scp: there is no recording three" in made.stderr
    assert re.search(r"text: two: not in the model: 'x' \(line 1, word 2\)", made.stderr)
    assert "2 of 3 recordings could not be aligned" in made.output
    (tmp_path / "one.wav").write_bytes((folder / "one.wav").read_bytes()[:44])
    made = call(folder, str(tmp_path / "one.wav"), "@one.txt")
    assert made.exit_code == 1 and "one.wav" in made.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("@one.wav", "@two.wav", "@model"), "it has no text (looked for"),
        (("@one.wav", "@none.wav", "@text"), "there is no line none for"),
        (("@one.wav", "@one.wav", "@text"), "several recordings are called one"),
        (("scp:@wav.scp", "@one.wav", "@text"), "a table of recordings stands alone"),
        (("@one.wav", "@two.wav", "@text", "--format", "srt"), "give -o FOLDER for several"),
        (("@one.wav", "@one.txt", "--retry-beam", "3"), "retry_beam=3.0 is not above beam=10.0"),
        (("@one.wav", "@none.txt"), "none.txt: No such file or directory; TEXT is a file"),
        (("@one.wav", "@one.wav"), "no text in UTF-8"),
        (("@one.wav", "@one.txt", "--channel", "3"), "there is no channel 3"),
        (("@one.wav", "@one.txt", "--unknown", "zz"), "'zz' is no word of the model"),
        (("@one.wav", "@wav.scp"), "not in the model"),
    ],
)
def test_what_the_command_refuses(words: tuple[str, ...], told: str, folder: Path) -> None:
    made = call(folder, *words)
    assert made.exit_code, made.output
    assert told in made.stderr


def test_noise_in_place_of_the_models(folder: Path) -> None:
    for words in (("align", "@one.wav", "@one.txt"), ("transcribe", "@one.wav")):
        command, *rest = (word.replace("@", f"{folder}/") for word in words)
        made = []
        for dither in ("0", "300"):
            call = [command, str(folder / "model"), *rest, "--dither", dither, "--format", "json"]
            found = CliRunner().invoke(main, call)
            assert found.exit_code == 0, found.output
            assert found.stderr == ""
            made.append(json.loads(found.stdout))
        assert made[0] != made[1] and made[0]["text"] == "ab c"
