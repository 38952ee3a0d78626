"""What a config gives and nothing reads: misspelt names, settings without effect, sections that no
command names.

A parameter is known if the code that a section is for has looked it up, see `Record`. Some that
CNTK looks up mean nothing here; each has its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from ...framework.base.errors import OpscopeError, nearest, one_list, suggestions_ended
from ..base.text import located
from .parameters import ConfigParameters
from .section import Section
from .variables import names_used

_REASONS = {
    "memory is planned from the op list": "shareNodeValueMatrices hyperCompressMemory"
    " optimizeGradientAccumulation maxTempMemSizeInSamplesForCNN traceGPUMemoryAllocations"
    " keepDataInMemory windowSize pageFilePath wsize wrecords",
    "deviceId alone tells the device": "excludedDevices lockGPU",
    "there is one way to run a network": "executionEngine",
    "profilers look at the process from outside": "profilerEnabled profilerBufferSize"
    " profilerSyncGpu numMBsToCUDAProfile",
    "minibatches are read by one thread": "multiThreadedDeserialization",
    "a run gives the same numbers each time": "forceDeterministicAlgorithms",
    "the traceLevel of the reader sets how much it logs": "verbosity",
    "readers and deserializers are found by their names": "module",
    "readers keep no copies of their data in files": "wfile elementSize mapping category",
    "CNTK 2.0 does not use it either": "unitTest oneLinePerFile ignoresentencebegintag isProposal"
    " word2cls cls2index labelEmbeddingSize streamSizes lookupTableOrderSizes",
}
UNUSED = {name.lower(): reason for reason, names in _REASONS.items() for name in names.split()}
"""Parameters that CNTK knows and that change nothing here: name in lower case -> reason."""

NOT_COMPARED = "too many unknown names: the last were not compared with known ones"
"""The last warning where there may be misspelt names that no warning is about."""
_OFF = ("", "0", "false")
_HOMES = ("sgd", "autoadjust", "reader", "cvreader", "writer", "format", "simplenetworkbuilder")
# Sections of fixed names, in which a parameter may belong.
_NEAR = 0.8  # likeness of names at the top level, where users have names of their own


@one_list()
def unread_parameters(config: ConfigParameters) -> list[OpscopeError]:
    """Warnings about what was given in a config and not read, each once; to be asked for once all
    sections that matter were read."""
    return [*_Unread(config).warnings()]


class _Unread:
    def __init__(self, config: ConfigParameters) -> None:
        self.config = config
        self.record = config.record
        self.used = {name.lower() for name in names_used(config.text.string)}
        self.reported: set[tuple[str, str]] = set()

    def warnings(self) -> Iterator[OpscopeError]:
        for path, section in list(self.record.sections.items()):
            if not self._is_foreign(path):
                for name in section:
                    message = self._about(path, section, name)
                    if message:
                        yield located(OpscopeError, message, section.place(name))
        if suggestions_ended():
            yield OpscopeError(NOT_COMPARED)

    def _is_foreign(self, path: str) -> bool:
        return any(path == other or path.startswith(f"{other}:") for other in self.record.left)

    def _about(self, path: str, section: Section, name: str) -> str:
        lower = name.lower()
        full = f"{section.path}:{name}"
        asked, reasons = self.record.asked.get(path, {}), self.record.reasons.get(path, {})
        if lower in asked or lower in self.used:
            return ""
        spelt = {known.lower(): reason for known, reason in reasons.items()}
        reason = spelt.get(lower) or UNUSED.get(lower)
        if reason is None:
            return self._unknown(path, section, name, [*asked.values(), *reasons])
        off = section.has_value(name) and section.raw(name).string.strip().lower() in _OFF
        if (lower, reason) in self.reported or (off and lower in UNUSED):
            return ""
        self.reported.add((lower, reason))
        return f"{full} is not used: {reason}"

    def _unknown(self, path: str, section: Section, name: str, known: list[str]) -> str:
        full = f"{section.path}:{name}"
        if get_close_matches(name.lower(), self.record.missing, n=1):
            return ""  # what it should have been is missing, which was reported
        if section is self.config:
            return self._top(full, section, name, known)
        home = self._home(path, name)
        hint = f" (it belongs in {home})" if home else nearest(name, known)
        partly = any(other.startswith(f"{path}:") for other in self.record.left)
        return "" if partly and not hint else f"unknown parameter {full}{hint}"

    def _top(self, full: str, section: Section, name: str, known: list[str]) -> str:
        if section.is_section(name):
            return "" if self.record.left else f"{full} is not used: no command names this section"
        spelt = {word.lower(): word for word in known}
        near = get_close_matches(name.lower(), spelt, n=1, cutoff=_NEAR)
        if near:
            return f"{full} is not used (did you mean {spelt[near[0]]}?)"
        return "" if self.record.left else f"{full} is not used: nothing reads it"

    def _home(self, path: str, name: str) -> str:
        """The innermost section elsewhere in which the name was looked up."""
        homes = [
            other
            for other, names in self.record.asked.items()
            if name.lower() in names
            and other.rpartition(":")[2] in _HOMES
            and not f"{path}:".startswith(f"{other}:")
        ]
        if not homes:
            return ""
        return self.record.sections[max(homes, key=lambda other: other.count(":"))].path
