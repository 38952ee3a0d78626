"""Decoding graphs beside Kaldi's programs: time and memory of HCLG, and whether both are one graph.

    python benchmarks/graphs.py --kaldi BIN [--words yesno 1000 10000] [--folder DIR] [--json FILE]

`yesno` is Kaldi's example of two words: phones without contexts, and a unigram model. A number
makes a lexicon of so many words with random pronunciations (one word in ten has two, one in twenty
sounds as another does), a trigram model of a text in which the word of rank r comes with a share of
1 / r, ten words for each of the lexicon, and a chain model with outputs for all pairs of phones.
Both sides read the lang folder with its G.fst: `opscope make-graph`, and the programs that
mkgraph.sh calls, one after the other. Each process has one thread; time is CPU time, memory that of
the largest process. OpenFst's `fstequivalent` compares random paths where it is installed: costs
are rounded in between, and of 14 million arcs a few lie on either side of a border.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

PHONES = 40
WORDS_OF_TEXT = 10
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPSCOPE_THREADS")
OURS = (sys.executable, "-m", "opscope")
PATHS = 200
DIFFERENCE = 0.05  # of the costs of a path, whose arcs both sides round to 1 / 1024
YESNO = "yesno"
YESNO_ARPA = """\\data\\
ngram 1=4

\\1-grams:
-1 NO
-1 YES
-99 <s>
-1 </s>

\\end\\
"""
YESNO_DICT = {
    "lexicon.txt": "<SIL> SIL\nYES Y\nNO N\n",
    "silence_phones.txt": "SIL\n",
    "optional_silence.txt": "SIL\n",
    "nonsilence_phones.txt": "Y\nN\n",
}
TOPOLOGY = """<Topology> <TopologyEntry> <ForPhones> {} </ForPhones>
<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1
<Transition> 0 0.5 <Transition> 1 0.5 </State> <State> 1 </State> </TopologyEntry> </Topology>
"""


@dataclass
class Used:
    """What processes took: CPU time in seconds; memory of the largest, in MiB."""

    seconds: float = 0.0
    memory: float = 0.0

    def run(self, *command: str) -> None:
        """Run a command, and add what it took."""
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr is not None
        said = process.stderr.read()
        _, code, usage = os.wait4(process.pid, 0)
        if code:
            raise SystemExit(f"{' '.join(command)}: {said.decode()[-2000:]}")
        self.seconds += usage.ru_utime + usage.ru_stime
        self.memory = max(self.memory, usage.ru_maxrss / 1024)


def write_sources(folder: pathlib.Path, words: int) -> None:
    """The lexicon and the text."""
    rng = random.Random(words)
    phones = [f"p{number}" for number in range(PHONES)]
    known: list[str] = []
    with open(folder / "lexicon.txt", "w") as file:
        file.write("<unk> SPN\n")
        for word in range(words):
            mine: set[str] = set()
            for _ in range(2 if rng.random() < 0.1 else 1):
                alike = known and rng.random() < 0.05
                drawn = " ".join(rng.choices(phones, k=rng.randint(2, 8)))
                mine.add(rng.choice(known) if alike else drawn)
            known += sorted(mine)
            file.writelines(f"w{word} {text}\n" for text in sorted(mine))
    total, shares = 0.0, []
    for rank in range(1, words + 1):
        shares.append(total := total + 1 / rank)
    names = [f"w{word}" for word in range(words)]
    said = iter(rng.choices(names, cum_weights=shares, k=WORDS_OF_TEXT * words))
    with open(folder / "text", "w") as file:
        while sentence := [word for _, word in zip(range(rng.randint(2, 16)), said, strict=False)]:
            file.write(" ".join(sentence) + "\n")


def prepare(folder: pathlib.Path, words: int | str) -> None:
    """The lang folder with G.fst, and the model."""
    lang, model = folder / "lang", folder / "model"
    model.mkdir(parents=True)
    made = Used()
    files = [str(model / name) for name in ("topo", "final.mdl", "tree")]
    arpa, table = str(folder / "lm.arpa"), str(lang / "words.txt")
    make_lang = *OURS, "make-lang", "--position-dependent-phones=false"
    if words == YESNO:
        (folder / "dict").mkdir()
        for name, text in YESNO_DICT.items():
            (folder / "dict" / name).write_text(text)
        made.run(*make_lang, "--oov", "<SIL>", str(folder / "dict"), str(lang))
        (folder / "lm.arpa").write_text(YESNO_ARPA)
        made.run(*OURS, "gmm-init-mono", str(lang / "topo"), "39", *files[1:])
    else:
        write_sources(folder, int(words))
        made.run(*make_lang, str(folder / "lexicon.txt"), str(lang))
        made.run(*OURS, "make-lm", str(folder / "text"), "--words", table, "--out", arpa)
        (model / "topo").write_text(_topology(lang))
        made.run(*OURS, "gmm-init-biphone", files[0], "1", *files[1:])
    symbols = "--disambig-symbol=#0", f"--read-symbol-table={table}"
    made.run(*OURS, "arpa2fst", *symbols, arpa, str(lang / "G.fst"))


def _topology(lang: pathlib.Path) -> str:
    """Of chain models, for the phones of a lang folder."""
    listed = (lang / "phones.txt").read_text().split("\n")[1:-1]
    phones = [line.split()[1] for line in listed if not line.startswith("#")]
    return TOPOLOGY.format(" ".join(phones))


def kaldi(folder: pathlib.Path, programs: pathlib.Path, width: int, scale: float) -> Used:
    """HCLG in `kaldi/`, by the programs that mkgraph.sh calls.

    Args:
        width: of phones in context, the last one in the middle. scale: of self-loops.
    """
    used = Used()
    lang, model, out = (folder / name for name in ("lang", "model", "kaldi"))
    out.mkdir()
    path = {name: str(out / name) for name in ("1", "2", "3", "LG", "CLG", "labels", "tids", "H")}
    lines = (
        ("fsttablecompose", lang / "L_disambig.fst", lang / "G.fst", path["1"]),
        ("fstdeterminizestar", "--use-log=true", path["1"], path["2"]),
        ("fstminimizeencoded", path["2"], path["3"]),
        ("fstpushspecial", path["3"], path["LG"]),
        (
            *("fstcomposecontext", f"--context-size={width}", f"--central-position={width - 1}"),
            f"--read-disambig-syms={lang / 'phones' / 'disambig.int'}",
            *(path["labels"], path["LG"], path["CLG"]),
        ),
        (
            *("make-h-transducer", f"--disambig-syms-out={path['tids']}"),
            *(path["labels"], model / "tree", model / "final.mdl", path["H"]),
        ),
        ("fsttablecompose", path["H"], path["CLG"], path["1"]),
        ("fstdeterminizestar", "--use-log=true", path["1"], path["2"]),
        ("fstrmsymbols", path["tids"], path["2"], path["3"]),
        ("fstrmepslocal", path["3"], path["1"]),
        ("fstminimizeencoded", path["1"], path["2"]),
        (
            *("add-self-loops", f"--self-loop-scale={scale}"),
            *(model / "final.mdl", path["2"], out / "HCLG"),
        ),
    )
    for program, *arguments in lines:
        used.run(str(programs / program), *map(str, arguments))
    for name in path.values():
        os.remove(name)
    return used


def ours(folder: pathlib.Path, scale: float) -> Used:
    """HCLG in `ours/`."""
    used = Used()
    names = (str(folder / name) for name in ("lang", "model", "ours"))
    used.run(*OURS, "make-graph", "--self-loop-scale", str(scale), *names)
    return used


def measured(
    folder: pathlib.Path, words: int | str, programs: pathlib.Path | None
) -> dict[str, object]:
    """A row of the table."""
    width, scale = (1, 0.1) if words == YESNO else (2, 1.0)
    if not (folder / "lang").exists():
        prepare(folder, words)
    for name in ("ours", "kaldi"):
        shutil.rmtree(folder / name, ignore_errors=True)
    mine = ours(folder, scale)
    row: dict[str, object] = {"words": words, "ours": mine.__dict__}
    if programs is not None:
        theirs = kaldi(folder, programs, width, scale)
        row |= {"kaldi": theirs.__dict__}
        row["time"] = mine.seconds / theirs.seconds
        row["memory"] = mine.memory / theirs.memory
        if tool := shutil.which("fstequivalent"):
            graphs = str(folder / "ours" / "HCLG.fst"), str(folder / "kaldi" / "HCLG")
            command = tool, "--random", f"--npath={PATHS}", f"--delta={DIFFERENCE}", *graphs
            row["same"] = not subprocess.run(command, check=False).returncode
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", nargs="+", default=[YESNO, "1000", "10000"])
    parser.add_argument("--kaldi", type=pathlib.Path, help="the folder of Kaldi's programs")
    parser.add_argument("--folder", type=pathlib.Path, help="where files are kept")
    parser.add_argument("--json", type=pathlib.Path)
    given = parser.parse_args(arguments)
    os.environ.update(dict.fromkeys(THREADS, "1"))
    with tempfile.TemporaryDirectory() as temporary:
        top = given.folder or pathlib.Path(temporary)
        rows = []
        for words in given.words:
            rows.append(measured(top / str(words), words, given.kaldi))
            print(json.dumps(rows[-1]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
