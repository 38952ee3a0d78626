"""Written by `python -m opscope.python_api.builder.stubs`; do not edit."""

from . import cntk as cntk
from . import framework as framework
from . import nnet3 as nnet3
from . import operators as operators
from . import proto as proto
from . import python_api as python_api
from .framework.backend import CPUPlace as CPUPlace
from .framework.backend import GPUPlace as GPUPlace
from .framework.context import OpContext as OpContext
from .framework.net import Net as Net
from .framework.scope import Scope as Scope
from .framework.sequence import Sequences as Sequences
from .proto.net_pb2 import NetDesc as NetDesc
from .proto.net_pb2 import OpDesc as OpDesc
from .proto.net_pb2 import VarDesc as VarDesc
from .python_api.builder import NetBuilder as NetBuilder
from .python_api.generation import Generator as Generator
from .python_api.io import load as load
from .python_api.io import save as save
from .python_api.minibatches import Minibatches as Minibatches
from .python_api.nnet3_files import load_nnet as load_nnet
from .python_api.nnet3_files import save_compiled as save_compiled
from .python_api.nnet3_files import save_nnet as save_nnet
from .python_api.training import EarlyStop as EarlyStop
from .python_api.training import train as train

__version__: str
