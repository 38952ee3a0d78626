"""Written by `python build.py stubs`; do not edit."""

from .audio.read import read_audio as read_audio
from .audio.resample import Resampler as Resampler
from .audio.resample import resample as resample
from .audio.wav import Audio as Audio
from .audio.wav import read_wav as read_wav
from .features.cmvn import OnlineCmvn as OnlineCmvn
from .features.cmvn import OnlineCmvnOptions as OnlineCmvnOptions
from .features.cmvn import OnlineCmvnState as OnlineCmvnState
from .features.cmvn import apply_cmvn as apply_cmvn
from .features.cmvn import cmvn_stats as cmvn_stats
from .features.computers import Fbank as Fbank
from .features.computers import FeatureStream as FeatureStream
from .features.computers import Mfcc as Mfcc
from .features.computers import mfcc as mfcc
from .features.options import FbankOptions as FbankOptions
from .features.options import MfccOptions as MfccOptions
from .features.sliding import SlidingCmvnOptions as SlidingCmvnOptions
from .features.sliding import sliding_cmvn as sliding_cmvn
from .features.transforms import SpliceOptions as SpliceOptions
from .features.transforms import splice as splice
from .features.transforms import transform as transform
from .ivector.model import IvectorModel as IvectorModel
from .ivector.model import IvectorOptions as IvectorOptions
from .ivector.online import AdaptationState as AdaptationState
from .ivector.online import OnlineIvector as OnlineIvector
from .ivector.silence import SilenceWeights as SilenceWeights
