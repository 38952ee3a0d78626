"""Written by `python build.py stubs`; do not edit."""

from ..kaldi.tables.tables import RandomAccessTable as RandomAccessTable
from ..kaldi.tables.tables import TableWriter as TableWriter
from ..kaldi.tables.tables import read_table as read_table
from .cache.computations import CachingCompiler as CachingCompiler
from .compiler.command import Command as Command
from .compiler.computation import Computation as Computation
from .graph.graph import NotComputableError as NotComputableError
from .graph.request import ComputationRequest as ComputationRequest
from .graph.request import IoSpecification as IoSpecification
from .inference.batches import BatchComputer as BatchComputer
from .inference.batches import BatchOptions as BatchOptions
from .inference.chunks import ChunkComputer as ChunkComputer
from .inference.looped_computer import LoopedComputer as LoopedComputer
from .inference.looped_computer import Stream as Stream
from .inference.pieces import ChunkOptions as ChunkOptions
from .inference.pieces import LoopedOptions as LoopedOptions
from .inference.pieces import Utterance as Utterance
from .inference.pipeline import compile_computation as compile_computation
from .inference.pipeline import compile_request as compile_request
from .inference.pipeline import compile_segments as compile_segments
from .inspect.compiled import CompiledRequest as CompiledRequest
from .inspect.compiled import compile as compile
from .inspect.settings import CompileOptions as CompileOptions
from .language.descriptor import BinarySumDescriptor as BinarySumDescriptor
from .language.descriptor import ConstantSumDescriptor as ConstantSumDescriptor
from .language.descriptor import Descriptor as Descriptor
from .language.descriptor import ForwardingDescriptor as ForwardingDescriptor
from .language.descriptor import OffsetForwardingDescriptor as OffsetForwardingDescriptor
from .language.descriptor import OptionalSumDescriptor as OptionalSumDescriptor
from .language.descriptor import (
    ReplaceIndexForwardingDescriptor as ReplaceIndexForwardingDescriptor,
)
from .language.descriptor import RoundingForwardingDescriptor as RoundingForwardingDescriptor
from .language.descriptor import SimpleForwardingDescriptor as SimpleForwardingDescriptor
from .language.descriptor import SimpleSumDescriptor as SimpleSumDescriptor
from .language.descriptor import SumDescriptor as SumDescriptor
from .language.descriptor import SwitchingForwardingDescriptor as SwitchingForwardingDescriptor
from .language.descriptor_parse import parse_descriptor as parse_descriptor
from .network.collapse import prepare_for_test as prepare_for_test
from .network.edits import apply_edits as apply_edits
from .network.edits import parse_edits as parse_edits
from .network.for_inference import for_inference as for_inference
from .network.model import AmNnetSimple as AmNnetSimple
from .network.nnet import Nnet as Nnet
from .network.short_request import parse_request as parse_request
from .network.simple_request import simple_request as simple_request
from .optimize import OptimizeOptions as OptimizeOptions
from .run.computer import NnetComputer as NnetComputer
from .run.segment_computer import SegmentComputer as SegmentComputer
from .training import NnetTrainer as NnetTrainer
from .training import NnetTrainerOptions as NnetTrainerOptions
from .xconfig import xconfig_to_config as xconfig_to_config
