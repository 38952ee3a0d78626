"""Kaldi's nnet3 networks, compiled to op lists.

Names are looked up on first use (PEP 562).
"""

from importlib import import_module

_HOMES = {
    "Nnet": ".nnet",
    "AmNnetSimple": ".model",
    "ComputationRequest": ".request",
    "IoSpecification": ".request",
    "simple_request": ".request",
    "compile_request": ".pipeline",
    "compile_segments": ".pipeline",
    "CachingCompiler": ".caching",
    "compile_computation": ".pipeline",
    "compile_forward": ".pipeline",
    "prepare_for_test": ".collapse",
    "xconfig_to_config": ".xconfig",
    **dict.fromkeys(("apply_edits", "parse_edits"), ".edits"),
    "NnetComputer": ".computer",
    **dict.fromkeys(("NnetTrainer", "NnetTrainerOptions"), ".training"),
    **dict.fromkeys(("ChunkComputer", "ChunkOptions", "Utterance"), ".chunks"),
    **dict.fromkeys(("LoopedComputer", "LoopedOptions", "Stream"), ".looped_computer"),
    "SegmentComputer": ".segment_computer",
    **dict.fromkeys(("read_table", "RandomAccessTable", "TableWriter"), ".tables"),
}
__all__ = list(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__():
    return sorted({*globals(), *__all__})
