"""Subtitles for a recording: python subtitles.py MODEL RECORDING [SUBTITLES.srt]"""

from __future__ import annotations

import sys
from pathlib import Path

from opscope.speech import Model, transcribe
from opscope.speech.recognize.formats import as_srt


def main(folder: str, recording: str, output: str = "") -> None:
    """Write the subtitles beside the recording, or where `output` says."""
    target = Path(output or Path(recording).with_suffix(".srt"))
    found = transcribe(recording, Model(folder))
    target.write_text(as_srt(found), encoding="utf-8")
    print(f"{target}: {len(found.words)} words in {found.duration:.1f} seconds")


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
