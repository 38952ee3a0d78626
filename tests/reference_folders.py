"""Where reference results lie: beside the repository, or where environment variables say."""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

KALDI = Path(os.environ.get("OPSCOPE_KALDI_DATA") or DATA / "kaldi")
CNTK = Path(os.environ.get("OPSCOPE_CNTK_CASES") or DATA / "cntk_cases")
SPEECH = Path(os.environ.get("OPSCOPE_SPEECH_DATA") or DATA / "speech")
