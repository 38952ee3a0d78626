"""nnet3 models as scorers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ...framework.base.errors import OpscopeError
from ...kaldi.tables.tables import RandomAccessTable
from ...nnet3.inference.chunks import ChunkComputer
from ...nnet3.inference.pieces import Utterance
from ...nnet3.network.for_inference import Model
from .options import ScoreOptions
from .scorer import Keyed


class Nnet3Scorer:
    """See `Scorer`; computes what `nnet3-compute` does, to the last bit."""

    def __init__(self, model: Model, options: ScoreOptions) -> None:
        self._computer = ChunkComputer(model, options.chunks(), options.use_priors)
        self.input_dim = self._computer.input_dim
        self.rows_together = self._computer.frames_ahead
        self.skipped: list[tuple[str, str]] = []
        self._exponential = options.apply_exp
        self._period = options.online_ivector_period
        self._ivectors = self._online = None
        if options.ivectors and options.online_ivectors:
            raise OpscopeError("--ivectors and --online-ivectors exclude each other")
        if options.ivectors:
            self._ivectors = RandomAccessTable(options.ivectors, "vector", utt2spk=options.utt2spk)
        if options.online_ivectors:
            if self._period < 1:
                raise OpscopeError("--online-ivectors wants --online-ivector-period above 0")
            self._online = RandomAccessTable(options.online_ivectors, "matrix")

    def score(self, group: Sequence[Keyed]) -> Iterable[Keyed]:
        """See `Scorer`."""
        for key, matrix in self._computer.compute_all(self._with_ivectors(group)):
            if self._exponential:
                with np.errstate(over="ignore"):
                    matrix = np.exp(matrix)
            yield key, matrix

    def _with_ivectors(self, group: Sequence[Keyed]) -> Iterable[Utterance]:
        for key, features in group:
            ivector = None if self._ivectors is None else self._ivectors.get(key)
            online = None if self._online is None else self._online.get(key)
            if self._ivectors is not None and ivector is None:
                self.skipped.append((key, "there is no iVector"))
            elif self._online is not None and online is None:
                self.skipped.append((key, "there are no online iVectors"))
            else:
                yield Utterance(key, features, ivector, online, self._period)
