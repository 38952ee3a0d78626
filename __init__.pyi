"""Written by `python -m opscope.python_api.to_python.stubs`; do not edit."""

from . import cntk as cntk
from . import framework as framework
from . import nnet3 as nnet3
from . import operators as operators
from . import proto as proto
from . import python_api as python_api
from .framework.base.backend import CPUPlace as CPUPlace
from .framework.base.backend import GPUPlace as GPUPlace
from .framework.base.context import OpContext as OpContext
from .framework.base.scope import Scope as Scope
from .framework.base.sequence import Sequences as Sequences
from .framework.files.saved import load as load
from .framework.files.saved import save as save
from .framework.passes.loss_scaling import LossScale as LossScale
from .framework.runtime.net import Net as Net
from .nnet3.inference.saved import load_nnet as load_nnet
from .nnet3.inference.saved import save_compiled as save_compiled
from .nnet3.inference.saved import save_nnet as save_nnet
from .proto.net_pb2 import NetDesc as NetDesc
from .proto.net_pb2 import OpDesc as OpDesc
from .proto.net_pb2 import VarDesc as VarDesc
from .python_api.builder import NetBuilder as NetBuilder
from .python_api.generate.generation import Generator as Generator
from .python_api.train.half import to_half as to_half
from .python_api.train.minibatches import Minibatches as Minibatches
from .python_api.train.training import EarlyStop as EarlyStop
from .python_api.train.training import train as train

__version__: str
