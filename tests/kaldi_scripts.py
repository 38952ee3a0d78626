"""Which of Kaldi's programs, with which options, the scripts of its recipes call.

    python tests/kaldi_scripts.py KALDI.git

reads Kaldi's repository (bare, or the folder `.git` of a clone) and writes
`conformance/kaldi_scripts.json`: names of programs and options, and how often they occur; nothing
else of the scripts.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

LISTED = Path(__file__).with_name("conformance") / "kaldi_scripts.json"
FOLDERS = ("egs/wsj/s5/steps/nnet3/", "egs/wsj/s5/steps/libs/")
_PROGRAM_FILE = re.compile(r"src/\w*bin/([\w-]+)\.cc$")
_OPTION = re.compile(r"(?<![\w-])--((?:optimization\.)?[a-z][\w-]*)(?![\w.-])")
_SHELL_VALUE = re.compile(r"""\b(\w+)\+?=("(?:[^"\\]|\\.)*"|'[^']*'|\S*)""")
_SHELL_NAME = re.compile(r"\$\{?(\w+)")
_PYTHON_VALUE = re.compile(r"\b(\w+)\s*\+?=(?!=)(.*?)(?=\n\s*\n|,\n|\)\n|\n\s*\w+\s*=|\Z)", re.S)
_PYTHON_NAME = re.compile(r"\{(\w+)")
_ENDS = {".py": re.compile(r'\||;|&&|"""|\.format\('), "": re.compile(r"\||;|&&|\n|\)\s")}
Calls = dict[str, Counter[str]]


def walked(repository: str) -> dict[str, dict[str, dict[str, int] | int]]:
    """The programs that scripts of the repository call, with counts of calls and of options."""

    def git(*words: str) -> str:
        command = ["git", f"--git-dir={repository}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    files = git("ls-tree", "-r", "--name-only", "HEAD").splitlines()
    programs = {found[1] for found in map(_PROGRAM_FILE.match, files) if found}
    counts: Counter[str] = Counter()
    options: Calls = defaultdict(Counter)
    for path in files:
        if path.startswith(FOLDERS) and path.endswith((".sh", ".py", ".pl")):
            for program, passed in calls(git("show", f"HEAD:{path}"), path[-3:], programs):
                counts[program] += 1
                options[program].update(passed)
    return {
        name: {"calls": counts[name], "options": dict(sorted(options[name].items()))}
        for name in sorted(counts)
    }


def calls(text: str, ending: str, programs: set[str]) -> Iterator[tuple[str, set[str]]]:
    """Each call of a program in a script, with the options that it may be given there.

    Options in variables count wherever a variable of the name is set in the script.
    """
    python = ending == ".py"
    lines = [line for line in text.split("\n") if not line.lstrip().startswith(("#", "echo "))]
    text = "\n".join(lines).replace("\\\n", " ").replace("\\|", "|")
    if python:
        text = re.sub(r'["\']\s*\n\s*["\']', " ", text)
    word = re.compile(r"(?<![\w./$-])(" + "|".join(sorted(programs)) + r")(?![\w./=-])")
    names = _PYTHON_NAME if python else _SHELL_NAME

    def words(part: str) -> set[str]:
        return {f"--{each}" for each in _OPTION.findall(part)} | set(names.findall(part))

    held: dict[str, set[str]] = defaultdict(set)
    endings: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, value in (_PYTHON_VALUE if python else _SHELL_VALUE).findall(text):
        if not word.search(value):
            held[name] |= words(value)
        endings[name].append((value.strip("\"'").partition(" ")[0], value))
    for found in word.finditer(text):
        rest = text[found.end() :]
        ends = [each.search(rest) for each in (_ENDS[".py" if python else ""], word)]
        span = rest[: min((end.start() for end in ends if end), default=len(rest))]
        glued = "" if python else re.match(r"(?:\$\{?(\w+)\}?)?", span)[1] or ""
        span = span[len(glued) :]
        yield found[1], options_in(words(span) - {glued}, held)
        for ending_of, value in endings[glued]:  # as in nnet3-latgen-faster$thread_string
            if found[1] + ending_of in programs and ending_of:
                yield found[1] + ending_of, options_in(words(span) - {glued} | words(value), held)


def options_in(words: set[str], held: dict[str, set[str]]) -> set[str]:
    """The options among words, and those that variables among them hold, in any number of steps."""
    seen: set[str] = set()
    waiting = set(words)
    while waiting:
        each = waiting.pop()
        if each not in seen:
            seen.add(each)
            waiting |= held.get(each, set())
    return {each[2:].rstrip(".-").replace("_", "-") for each in seen if each.startswith("--")}


if __name__ == "__main__":
    found = walked(sys.argv[1])
    LISTED.write_text(json.dumps({"made": __doc__, "programs": found}, indent=1) + "\n")
    print(f"{len(found)} programs in {LISTED}")
