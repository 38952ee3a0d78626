"""Lang folders: to the byte what Kaldi's `prepare_lang.sh` wrote with OpenFst 1.7.9."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import pytest

from lexicons import write_small, write_stressed
from opscope.framework.base.errors import ArgumentError, FormatError
from opscope.speech import make_lang

HOMOPHONES = "".join(f"W{i} N OW\n" for i in range(12)) + "N N\nLONG N OW S EH\n"
GRAMMAR = "#nonterm:contact\n#nonterm:phone\n"


TABLE = "<eps> 0\nS 1\nSIL 2\nY 3\nEH 4\nSPN 5\nN 6\nOW 7\nEY 8\nAH 9\nZH 10\n#0 11\n"


def digests(folder: Path) -> list[str]:
    """Of the names and contents of all text files of a folder, of L.fst and of L_disambig.fst."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    texts = [path for path in paths if path.suffix != ".fst"]
    found = []
    for group in (texts, [folder / "L.fst"], [folder / "L_disambig.fst"]):
        data = hashlib.sha256()
        for path in group:
            data.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
        found.append(data.hexdigest()[:16])
    return found


# folder, options of prepare_lang.sh, digests of its text files, L.fst and L_disambig.fst
CASES = {
    "positions": (write_small, {}, "9733340a7690f352 cda604e318440325 55ac3dd9c44b9304"),
    "no positions": (
        partial(write_small, phones=TABLE),
        {
            "position_dependent_phones": False,
            "sil_prob": 0.3,
            "num_sil_states": 1,
            "num_nonsil_states": 1,
            "phone_symbol_table": "dict/phones.txt",
        },
        "fdc58f59a57f9538 b2158b98a12d3241 e50e78b58555887f",
    ),
    "probabilities": (
        write_stressed,
        {"share_silence_phones": True, "num_sil_states": 4},
        "0511c778e4ac0be1 028fc4fd13094104 a872355263d695b6",
    ),
    "silence": (
        partial(write_stressed, with_silence=True),
        {},
        "17014cd9d4b81d45 2ba4dba276e1faf2 c1706625fb2c53ab",
    ),
    "homophones": (
        partial(write_small, more=HOMOPHONES, symbols="#foo\n#bar\n"),
        {
            "extra_word_disambig_syms": "dict/symbols.txt",
            "num_extra_phone_disambig_syms": 3,
            "sil_prob": 0.0,
        },
        "964669db7817227b 70fc28a14892c143 0951011fc8cd8074",
    ),
    "grammar": (
        partial(write_small, nonterminals=GRAMMAR),
        {},
        "87d8d52db9051eff 9efc86d09723fdeb afe5134d80fdb7db",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_file_is_kaldis(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, options, wanted = CASES[name]
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "dict")
    make_lang("dict", "lang", **options)
    assert digests(tmp_path / "lang") == wanted.split()


def test_a_lexicon_alone_is_enough(tmp_path: Path) -> None:
    made = [tmp_path / name for name in ("file", "mapping")]
    lexicon = tmp_path / "mine.txt"
    lexicon.write_text("tea 0.5 t iy\r\n\ntea 1.0 t eh\nhush 1.0 sil\n")
    make_lang(lexicon, made[0])
    make_lang({"tea": ["t iy", "t eh"], "hush": "sil"}, made[1])
    assert digests(made[0])[0] == digests(made[1])[0]
    assert digests(made[0])[1] != digests(made[1])[1]
    words = (made[0] / "words.txt").read_text().split()[::2]
    assert words == ["<eps>", "<unk>", "hush", "tea", "#0", "<s>", "</s>"]
    assert (made[0] / "phones/silence.txt").read_text().split()[::5] == ["sil", "SPN"]
    assert (made[0] / "phones/sets.txt").read_text().split("\n")[2:] == [
        *(" ".join(phone + end for end in ("_B", "_E", "_I", "_S")) for phone in ("eh", "iy", "t")),
        "",
    ]


def test_what_an_earlier_lexicon_left_is_removed(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "dict")
    make_lang(folder, tmp_path / "lang")
    assert (tmp_path / "lang/phones/word_boundary.int").exists()
    make_lang(folder, tmp_path / "lang", position_dependent_phones=False)
    assert not (tmp_path / "lang/phones/word_boundary.int").exists()


@pytest.mark.parametrize(
    ("files", "options", "problem"),
    [
        ({"more": "HM\n"}, {}, "lexicon.txt: line 10: the word 'HM' has no phones"),
        ({"more": "HM Q\n"}, {}, "lexicon.txt: line 10: no phone 'Q'"),
        ({"more": "NO N OW\n"}, {}, "10: the word 'NO' has this pronunciation already, in line 3"),
        ({"more": "#0 N\n"}, {}, "lexicon.txt: line 10: '#0' is a reserved symbol, no word"),
        ({"more": "<s> N\n"}, {}, "'<s>' is a reserved symbol, no word"),
        ({"more": "HM <eps>\n"}, {}, "line 10: '<eps>' is a reserved symbol, no phone"),
        ({"more": "H\u00a0M N\n"}, {}, "line 10: the character U+00A0: only spaces and tabs part"),
        ({"more": "H\0M N\n"}, {}, "line 10: the character U+0000: only spaces and tabs part"),
        ({"lexiconp": "NO 1.5 N\n"}, {}, "lexiconp.txt: line 1: '1.5': a number above 0 and at"),
        (
            {"lexiconp": "NO N OW\n"},
            {},
            "lexiconp.txt: line 1: 'N': a number above 0",
        ),
        ({"lexicon": "\n"}, {}, "lexicon.txt: there is no pronunciation in this file"),
        ({"nonsilence_phones": "N SIL\n"}, {}, "the phone 'SIL' is both silence and not"),
        ({"nonsilence_phones": "N\nN\n"}, {}, "phones.txt: line 2: the phone 'N' comes again"),
        ({"nonsilence_phones": "Y EH S N OW EY AH"}, {}, "no question tells one from the other"),
        ({"optional_silence": "N\n"}, {}, "one phone of silence_phones.txt is wanted"),
        ({"extra_questions": "N\nQ\n"}, {}, "extra_questions.txt: line 2: no phone 'Q'"),
        ({"lexiconp_silprob": "NO 1 1 1 1 N\n"}, {}, "'1': a probability of silence is below 1"),
        (
            {"lexiconp_silprob": "<unk> 1 .1 1 1 SPN\n", "silprob": "<s> 0.5\n"},
            {},
            "a line </s>_s is missing",
        ),
        ({"nonterminals": "contact\n"}, {}, "nonterminals.txt: line 1: one symbol #nonterm:... is"),
        ({"lexicon": "NO N OW\n"}, {}, "the lexicon has no word <unk> or"),
        ({}, {"oov": "YESS"}, "no word YESS (did you mean YES?)"),
        ({}, {"sil_prob": 1.0}, "sil_prob is from 0 to below 1, not 1"),
        ({}, {"num_sil_states": 2}, "num_sil_states is 1, or from 3 to 100, not 2"),
        (
            {"table": "<eps> 0\nSIL 1\n#0 2\n"},
            {"position_dependent_phones": False, "phone_symbol_table": "dict/table.txt"},
            "table.txt: there is no phone 'SPN'",
        ),
        ({"nonsilence_phones": "AH_B\n", "lexicon": "<unk> SPN\n"}, {}, "the phone 'AH_B' ends as"),
        (
            {"symbols": "#7\n"},
            {"extra_word_disambig_syms": "dict/symbols.txt"},
            "line 1: a symbol as",
        ),
    ],
)
def test_mistakes(
    files: dict[str, str],
    options: dict[str, object],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_small(tmp_path / "dict", **files)
    with pytest.raises((ArgumentError, FormatError)) as error:
        make_lang("dict", "lang", **options)
    assert problem in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "lang").exists()
