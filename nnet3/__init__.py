"""Kaldi's nnet3 networks, compiled to op lists.

Names are looked up on first use (PEP 562).
"""

from ..framework.base.python.lazy_names import lazy_names
from ..kaldi.tables import KIND_MODULES as _KIND_MODULES

_KIND_MODULES.append(f"{__name__}.egs.table_kinds")

_HOMES = {
    "Nnet": ".network.nnet",
    "AmNnetSimple": ".network.model",
    "ComputationRequest": ".graph.request",
    "IoSpecification": ".graph.request",
    "NotComputableError": ".graph.graph",
    "simple_request": ".network.simple_request",
    "parse_request": ".network.short_request",
    **dict.fromkeys(("compile", "CompiledRequest"), ".inspect.compiled"),
    "CompileOptions": ".inspect.settings",
    "OptimizeOptions": ".optimize",
    "Computation": ".compiler.computation",
    "Command": ".compiler.command",
    "compile_request": ".inference.pipeline",
    "compile_segments": ".inference.pipeline",
    "CachingCompiler": ".cache.computations",
    "compile_computation": ".inference.pipeline",
    "prepare_for_test": ".network.collapse",
    "for_inference": ".network.for_inference",
    "xconfig_to_config": ".xconfig",
    "parse_descriptor": ".language.descriptor_parse",
    **dict.fromkeys(
        (
            "Descriptor",
            "SumDescriptor",
            "SimpleSumDescriptor",
            "OptionalSumDescriptor",
            "ConstantSumDescriptor",
            "BinarySumDescriptor",
            "ForwardingDescriptor",
            "SimpleForwardingDescriptor",
            "OffsetForwardingDescriptor",
            "SwitchingForwardingDescriptor",
            "RoundingForwardingDescriptor",
            "ReplaceIndexForwardingDescriptor",
        ),
        ".language.descriptor",
    ),
    **dict.fromkeys(("apply_edits", "parse_edits"), ".network.edits"),
    "NnetComputer": ".run.computer",
    **dict.fromkeys(("NnetTrainer", "NnetTrainerOptions"), ".training"),
    "ChunkComputer": ".inference.chunks",
    **dict.fromkeys(("BatchComputer", "BatchOptions"), ".inference.batches"),
    **dict.fromkeys(("ChunkOptions", "LoopedOptions", "Utterance"), ".inference.pieces"),
    **dict.fromkeys(("LoopedComputer", "Stream"), ".inference.looped_computer"),
    "SegmentComputer": ".run.segment_computer",
    **dict.fromkeys(("read_table", "RandomAccessTable", "TableWriter"), "..kaldi.tables.tables"),
}
__all__ = list(_HOMES)
__getattr__, __dir__ = lazy_names(__name__, globals(), _HOMES)
