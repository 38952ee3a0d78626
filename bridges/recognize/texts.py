"""Which kind a file of text is, by its first lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .kinds import KINDS, SCRIPTS

_SLF = re.compile(r"^\s*(N|NODES)=\d+\s+(L|LINKS)=\d+", re.M)
_MEL = re.compile(
    r"^\s*(\w+\s*=\s*)?(Load|Save|Dump|SetDefault|Copy|Unload)(Default)?(Model|Node|SubTree|"
    r"Subtree|NDLSnippet)?(WithName)?\s*\(",
    re.M | re.I,
)
_CONFIG = re.compile(r"^\s*(command|action|RunRootDir|modelPath|precision)\s*=", re.M | re.I)
_SECTION = re.compile(r"^\s*\w+\s*=\s*[\[(]\s*$", re.M)
_NDL = re.compile(r"^\s*(load|run)\s*=\s*\w+\s*$|^\s*\w+\s*=\s*\[\s*$", re.M | re.I)
_MACRO = re.compile(r"^\s*\w+\s*\([^()=\n]*\)\s*[{\[]", re.M)  # BrainScript has `=` there
_CALL = re.compile(r"\s*\w[\w.]*\s*=\s*\w+\s*\(")
_NUMBER = re.compile(r"\s*\w[\w.]*\s*=\s*[-+.\d]+\s*$|\s*\w+Nodes\s*=\s*\([\w\s,.]*\)\s*$", re.I)
_OBJECT = re.compile(r"^\w+\s*=\s*new\s+\w+", re.M)
_FUNCTION = re.compile(r"=>|^\s*\w+\s*\{[^}\n]*\}\s*[(=]", re.M)
_BRACES = re.compile(r"^\s*\w+\s*(\([^()\n]*\)\s*)?=[^\n]*[{(]?", re.M)
_ARCHIVE = re.compile(r"\S+\s+\[(\s|$)")
_SCRIPT = re.compile(r"\S+\s+(\S+:\d+(\[\S*\])?|\S*/\S+\.(ark|mat|vec)\S*|.*\|)\s*$")
_ARC = re.compile(r"-?\d+\t-?\d+\t-?\d+(\t-?\d+)?(\t[-+.\deE]+|\tInfinity)?\s*$")
_FINAL = re.compile(r"\d+(\t[-+.\deE]+|\tInfinity)?\s*$")
_CTF = re.compile(r"(\d+\s*)?\|[A-Za-z_#]\w*(\s|$)")
_HTK_LIST = re.compile(r"[^=\s]+=[^=\s]+\[\d+,\d+\]\s*$")
_OPTION = re.compile(r"--[a-z][-\w.]*=")

SUFFIXES = {KINDS[kind].named: kind for kind in SCRIPTS}
"""The languages of CNTK by the suffixes of their files."""
_COMMENTS = ("#", "//", "%")


def kind_of_text(text: str, suffix: str) -> str:
    """The kind of a text, or "".

    Args:
        text: its first lines. suffix: of the file's name, which decides between the languages of
            CNTK, as it does for CNTK's own commands.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    if lines[0].strip() == "#!MLF!#":
        return "mlf"
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if _SLF.search(text):
        return "htk lattice"
    plain = [line for line in lines if not line.lstrip().startswith(_COMMENTS)]
    if not plain:
        return ""
    for kind, pattern in (
        ("ctf", _CTF),
        ("htk list", _HTK_LIST),
        ("options", _OPTION),
        ("archive", _ARCHIVE),
        ("script file", _SCRIPT),
    ):
        if pattern.match(plain[0]):
            return kind
    if _ARC.match(plain[0]) and all(_ARC.match(line) or _FINAL.match(line) for line in plain[:-1]):
        return "fst"
    return _language(text, plain)


def _language(text: str, lines: Sequence[str]) -> str:
    """Which language of CNTK's a text is in."""
    if _MEL.search(text):
        return "mel"
    code = "\n".join(lines)
    if _OBJECT.search(code):
        return "brainscript"
    if _CONFIG.search(text) and ("[" in text or "{" in text or "command" in text):
        return "cntk config"
    if not _NDL.search(text) and _FUNCTION.search(code):
        return "brainscript"
    calls = [bool(_CALL.match(line)) for line in lines]
    if _NDL.search(text) or _MACRO.search(text) or all(calls):
        return "ndl"
    if any(calls) and all(
        call or _NUMBER.match(line) for call, line in zip(calls, lines, strict=True)
    ):
        return "ndl"
    if ("{" in text and _BRACES.search(text)) or _SECTION.search(text):
        return "brainscript"
    return ""
