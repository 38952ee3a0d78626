"""Makes recordings of the ten digits with espeak-ng, and a lexicon of their words.

    python make_data.py DATA

DATA gets a folder for each of 8 voices with 20 recordings, of three to six digits each, and their
texts, and `lexicon.txt`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

LEXICON = """zero z ih r ow
one w ah n
two t uw
three th r iy
four f ao r
five f ay v
six s ih k s
seven s eh v ah n
eight ey t
nine n ay n
"""
VOICES = {  # voice of espeak-ng, pitch, words a minute
    "anna": ("en-us+f2", 55, 150),
    "bob": ("en-us+m1", 45, 160),
    "carl": ("en-gb+m3", 40, 145),
    "dora": ("en-gb+f4", 60, 155),
    "emil": ("en-us+m7", 35, 140),
    "fay": ("en-us+f3", 50, 165),
    "gail": ("en-gb+f5", 58, 150),
    "hal": ("en-gb+m4", 48, 155),
}
EACH = 20


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lexicon.txt").write_text(LEXICON)
    words = [line.split()[0] for line in LEXICON.splitlines()]
    rng = np.random.default_rng(1)
    for name, (voice, pitch, speed) in VOICES.items():
        (folder / name).mkdir(exist_ok=True)
        for number in range(EACH):
            said = " ".join(rng.choice(words, rng.integers(3, 7)))
            path = folder / name / f"{number:02}.wav"
            faster = int(rng.integers(-15, 16))
            command = ["espeak-ng", "-v", voice, "-p", str(pitch), "-s", str(speed + faster)]
            subprocess.run([*command, "-w", str(path), said], check=True)
            path.with_suffix(".txt").write_text(f"{said}\n")
    print(f"{folder}: {len(VOICES)} voices, {EACH * len(VOICES)} recordings")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
