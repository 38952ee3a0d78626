"""Parameters that CNTK knows and that change nothing here, with the reason: they are about several
processes, the memory of GPUs, or threads."""

from __future__ import annotations

from collections.abc import Iterator

from ...framework.base.errors import OpscopeError
from .parameters import ConfigParameters

_REASONS = {
    "training runs in one process": "parallelTrain ParallelTrain distributedMBReading"
    " enableDistributedMBReading localTimeline",
    "memory is planned from the op list": "shareNodeValueMatrices hyperCompressMemory"
    " optimizeGradientAccumulation maxTempMemSizeInSamplesForCNN traceGPUMemoryAllocations"
    " keepDataInMemory windowSize pageFilePath wsize wrecords",
    "deviceId alone tells the device": "excludedDevices lockGPU",
    "there is one way to run a network": "executionEngine",
    "profilers look at the process from outside": "profilerEnabled profilerBufferSize"
    " profilerSyncGpu numMBsToCUDAProfile",
    "minibatches are read by one thread": "multiThreadedDeserialization",
    "a run gives the same numbers each time": "forceDeterministicAlgorithms",
    "the traceLevel of the reader tells how much it logs": "verbosity",
    "readers and deserializers are found by their names": "module",
    "CNTK 2.0 does not use it either": "unitTest oneLinePerFile ignoresentencebegintag isProposal"
    " word2cls cls2index labelEmbeddingSize streamSizes lookupTableOrderSizes",
}
UNUSED = {name.lower(): reason for reason, names in _REASONS.items() for name in names.split()}
"""Name in lower case -> reason."""

_OFF = ("", "0", "false")
_SCRIPTS = ("ndlnetworkbuilder", "brainscriptnetworkbuilder", "experimentalnetworkbuilder")
# In those sections names are nodes.


def unused_parameters(section: ConfigParameters) -> Iterator[str]:
    """The parameters of a section, and of those in it, that change nothing here, each once:
    `NAME is not used: reason`."""
    seen: set[str] = set()
    for name, path in _given(section):
        lower = name.lower()
        if lower in UNUSED and lower not in seen:
            seen.add(lower)
            yield f"{path}:{name} is not used: {UNUSED[lower]}"


def _given(section: ConfigParameters) -> Iterator[tuple[str, str]]:
    """Names with a value that is not off, and the paths of their sections."""
    for name in section:
        if not section.has_value(name) or name.lower() in _SCRIPTS:
            continue
        if section.raw(name).string.strip().lower() not in _OFF:
            yield name, section.path
        if section.is_section(name):
            try:
                yield from _given(section.section(name))
            except OpscopeError:  # its reader reports the error
                continue
