"""All that iVectors of a model are computed from, and the config files that name its parts.

Source: Kaldi's `OnlineIvectorExtractionConfig` in `online2/online-ivector-feature.h`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, ShapeError
from ...framework.base.options.option_fields import option
from ...framework.base.python.cached import cached_property
from ...framework.base.untrusted.opener import path_text
from ...kaldi.files.kaldi_io import Reader
from ...nnet3.language.nodes import warn
from ..features.cmvn import OnlineCmvnOptions, checked_stats
from ..features.options import config_lines, read_config
from ..features.transforms import SpliceOptions
from .compiled import CompiledFrames
from .extractor import IvectorExtractor
from .gmm import DiagGmm

VOSK_MAX_COUNT = 100.0
VOSK_MIN_ENERGY = 50.0


@dataclass(frozen=True)
class IvectorOptions:
    """How iVectors are estimated, with Kaldi's names and defaults.

    Raises:
        OpscopeError: a value is out of range.
    """

    ivector_period: int = option(10, "Frames from one estimate to the next")
    num_gselect: int = option(5, "Number of Gaussians of a frame")
    min_post: float = option(0.025, "Posteriors below it are pruned")
    posterior_scale: float = option(0.1, "Scale of posteriors")
    max_count: float = option(
        0.0, "Scaled count of frames beyond which their weight falls; 0.0: it never does"
    )
    num_cg_iters: int = 15
    use_most_recent_ivector: bool = option(
        True, "Use the latest iVector, not the one of the frame asked for"
    )
    greedy_ivector_extractor: bool = option(
        False, "Read as far ahead as there are frames when an iVector is asked for"
    )
    max_remembered_frames: float = option(
        1000.0, "Frames of a speaker's utterances before that count at most"
    )
    online_cmvn_iextractor: bool = option(False, "Give the extractor frames after online CMVN")

    def __post_init__(self) -> None:
        single = np.float32
        checks = (
            ("ivector_period", self.ivector_period >= 1, "must be positive"),
            ("num_gselect", self.num_gselect >= 1, "must be positive"),
            ("num_cg_iters", self.num_cg_iters >= 1, "must be positive"),
            ("min_post", 0 <= single(self.min_post) < 0.5, "must lie from 0 to 0.5"),
            ("posterior_scale", 0 < self.posterior_scale <= 1, "must lie from 0 to 1"),
            ("max_count", 0 <= self.max_count < np.inf, "must not be negative"),
            (
                "max_remembered_frames",
                0 <= self.max_remembered_frames < np.inf,
                "must not be negative",
            ),
        )
        for name, holds, wanted in checks:
            if not holds:
                raise OpscopeError(f"{name.replace('_', '-')}={getattr(self, name):g} {wanted}")
        if self.greedy_ivector_extractor and not self.use_most_recent_ivector:
            warn("--greedy-ivector-extractor=true implies --use-most-recent-ivector=true")
            object.__setattr__(self, "use_most_recent_ivector", True)


@dataclass(frozen=True)
class IvectorFiles:
    """The files of an `ivector_extractor.conf`, with Kaldi's names."""

    lda_matrix: str = option("", "LDA matrix, e.g. final.mat")
    global_cmvn_stats: str = option("", "Global CMVN statistics, e.g. global_cmvn.stats")
    cmvn_config: str = option("", "Config file of online CMVN, e.g. online_cmvn.conf")
    splice_config: str = option("", "Config file of splicing, e.g. splice.conf")
    diag_ubm: str = option("", "Gaussians that give posteriors, e.g. final.dubm")
    ivector_extractor: str = option("", "iVector extractor, e.g. final.ie")


@dataclass(frozen=True)
class _Config(IvectorFiles, IvectorOptions):
    """All lines of an `ivector_extractor.conf`."""


@dataclass(frozen=True, eq=False)
class IvectorModel:
    """What iVectors are computed from.

    Attributes:
        transform: LDA, float32, [dim, spliced dim] or with a column of offsets.
        global_stats: of CMVN, float64, [2, feature dim + 1].
        gaussians, extractor: see there.
        cmvn, splice, options: see there.

    Raises:
        ShapeError: the parts do not go together.
    """

    transform: np.ndarray
    global_stats: np.ndarray
    gaussians: DiagGmm
    extractor: IvectorExtractor
    cmvn: OnlineCmvnOptions = OnlineCmvnOptions()
    splice: SpliceOptions = SpliceOptions()
    options: IvectorOptions = IvectorOptions()

    def __post_init__(self) -> None:
        spliced = self.feature_dim * self.splice.width
        rows, columns = self.transform.shape
        if columns not in (spliced, spliced + 1):
            raise ShapeError(
                f"LDA {rows} x {columns} does not take {self.splice.width} frames of"
                f" {self.feature_dim} features side by side: {spliced} columns are wanted, or one"
                " more"
            )
        if self.extractor.weight_projections is not None:
            raise ShapeError(
                "an extractor whose weights depend on the iVector, which online estimation cannot"
                " have"
            )
        if not rows == self.gaussians.dim == self.extractor.feature_dim:
            raise ShapeError(
                f"LDA gives {rows} features, the Gaussians take {self.gaussians.dim}, the"
                f" extractor {self.extractor.feature_dim}"
            )
        count = len(self.extractor.projections)
        if len(self.gaussians.constants) != count:
            raise ShapeError(
                f"{len(self.gaussians.constants)} Gaussians for an extractor of {count}"
            )

    @property
    def feature_dim(self) -> int:
        """Columns of the features, before splicing."""
        return self.global_stats.shape[1] - 1

    @property
    def dim(self) -> int:
        """Elements of an iVector."""
        return self.extractor.dim

    @cached_property
    def compiled(self) -> CompiledFrames:
        """What counts frames in C."""
        return CompiledFrames(self.gaussians, self.extractor)

    @classmethod
    def read(cls, files: IvectorFiles, options: IvectorOptions | None = None) -> IvectorModel:
        """Read the parts from their files.

        Raises:
            FormatError: a file is not named, missing or damaged. ShapeError: they do not go
                together.
        """
        for name in IvectorFiles.__dataclass_fields__:
            if not getattr(files, name):
                raise FormatError(
                    f"--{name.replace('_', '-')} must be given (perhaps in the file of"
                    " --ivector-extractor-config)"
                )
        cmvn = read_config(OnlineCmvnOptions, files.cmvn_config)
        splice = read_config(SpliceOptions, files.splice_config)
        return cls._of_files(files, cmvn, splice, options or IvectorOptions())

    @classmethod
    def from_config(cls, path: str | os.PathLike[str]) -> IvectorModel:
        """Read an `ivector_extractor.conf` and the files that it names.

        Raises:
            FormatError, ShapeError: as `read`; or the config has a line that is none.
        """
        config = read_config(_Config, path)
        files = {name: getattr(config, name) for name in IvectorFiles.__dataclass_fields__}
        options = {name: getattr(config, name) for name in IvectorOptions.__dataclass_fields__}
        return cls.read(IvectorFiles(**files), IvectorOptions(**options))

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str]) -> IvectorModel:
        """Read the folder `ivector` of a Vosk model, with the settings that Vosk has.

        These are `--max-count=100`, and `--cmn-min-energy=50` where `online_cmvn.conf` has no
        other.

        Raises:
            FormatError: a file is missing or damaged. ShapeError: they do not go together.
        """
        folder = Path(path_text(folder))
        named = {
            "lda_matrix": "final.mat",
            "global_cmvn_stats": "global_cmvn.stats",
            "cmvn_config": "online_cmvn.conf",
            "splice_config": "splice.conf",
            "diag_ubm": "final.dubm",
            "ivector_extractor": "final.ie",
        }
        missing = [name for name in named.values() if not (folder / name).is_file()]
        if missing:
            raise FormatError(
                f"{folder}: no folder of an iVector extractor: {', '.join(missing)} missing (looked"
                f" for {', '.join(named.values())})"
            )
        files = IvectorFiles(**{name: str(folder / each) for name, each in named.items()})
        cmvn = read_config(OnlineCmvnOptions, files.cmvn_config)
        if all(name != "cmn-min-energy" for name, _, _ in config_lines(files.cmvn_config)):
            cmvn = replace(cmvn, cmn_min_energy=VOSK_MIN_ENERGY)
        splice = read_config(SpliceOptions, files.splice_config)
        return cls._of_files(files, cmvn, splice, IvectorOptions(max_count=VOSK_MAX_COUNT))

    @classmethod
    def _of_files(
        cls,
        files: IvectorFiles,
        cmvn: OnlineCmvnOptions,
        splice: SpliceOptions,
        options: IvectorOptions,
    ) -> IvectorModel:
        transform = Reader(files.lda_matrix).read_matrix(np.float32)
        if not transform.size or not np.isfinite(transform).all():
            raise FormatError(f"{files.lda_matrix}: a transform that is empty or not finite")
        stats = Reader(files.global_cmvn_stats).read_matrix(np.float64)
        try:
            return cls(
                transform,
                checked_stats(stats, files.global_cmvn_stats),
                DiagGmm.read(Reader(files.diag_ubm)),
                IvectorExtractor.read(Reader(files.ivector_extractor)),
                cmvn,
                splice,
                options,
            )
        except ShapeError as error:
            where = os.path.dirname(files.ivector_extractor) or "."
            raise ShapeError(f"{where}: {error}") from None
