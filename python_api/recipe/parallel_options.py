"""The settings of a training by jobs, beside those that every training has."""

from __future__ import annotations

from dataclasses import dataclass

from ...framework.base.errors import AttributeTypeError


@dataclass(frozen=True)
class ParallelOptions:
    """How a training is cut into iterations and jobs, as Kaldi's scripts do it.

    Attributes:
        cmd: where jobs run, as `run.pl`, `slurm.pl --mem 4G`, `queue.pl`, `kubernetes ...`,
            `dask [ADDRESS]`; see `make_runner`.
        jobs_initial, jobs_final, jobs_step: how many there are at the start and at the end; above
            `jobs_step` their number is a multiple of it.
        samples_per_iter: about how many examples an archive gets.
        single_frames: jobs train on one frame of each example, another one in each pass, as
            `train_dnn.py` does; else on whole chunks, as `train_raw_rnn.py`.
        egs_dir: examples that are there already, in the layout of Kaldi's `get_egs.sh`.
        den_fst: with chain examples in `egs_dir`, the denominator FST: then LF-MMI is what is
            trained for. chain_l2_regularize, xent_regularize, leaky_hmm_coefficient,
            apply_deriv_weights: its settings.
        shuffle_buffer_size: examples in memory while a job shuffles its archive; 0 = all.
        proportional_shrink: parameters are scaled by 1 - this times the learning rate.
        shrink_value, shrink_saturation_threshold: where nonlinearities are more saturated than the
            threshold, they are scaled by this, if that is less.
        deriv_truncate_margin: frames around a chunk to which derivatives go back; -1 = to its ends.
        max_models_combine, max_objective_evaluations: models of the last iterations that are
            combined, and how often their mean is judged.
        preserve_model_interval: models of every so many-th iteration are kept.
        job_minutes: how long a job may take from its submission on; 0 = for ever.
        job_tries: how often a job is run before the training gives up.
    """

    cmd: str = ""
    jobs_initial: int = 1
    jobs_final: int = 1
    jobs_step: int = 1
    samples_per_iter: int = 400000
    single_frames: bool = False
    egs_dir: str = ""
    den_fst: str = ""
    chain_l2_regularize: float = 0.0
    xent_regularize: float = 0.0
    leaky_hmm_coefficient: float = 1e-5
    apply_deriv_weights: bool = True
    shuffle_buffer_size: int = 5000
    proportional_shrink: float = 0.0
    shrink_value: float = 1.0
    shrink_saturation_threshold: float = 0.4
    deriv_truncate_margin: int = -1
    max_models_combine: int = 20
    max_objective_evaluations: int = 30
    preserve_model_interval: int = 100
    job_minutes: float = 1440.0
    job_tries: int = 3

    def __post_init__(self) -> None:
        positive = ("jobs_initial", "jobs_final", "jobs_step", "samples_per_iter", "job_tries")
        positive += ("max_models_combine", "max_objective_evaluations", "preserve_model_interval")
        for name in positive:
            if not getattr(self, name) > 0:
                raise AttributeTypeError(f"{name}={getattr(self, name)} must be positive")
        for name in ("job_minutes", "shuffle_buffer_size", "proportional_shrink"):
            if not getattr(self, name) >= 0:
                raise AttributeTypeError(f"{name}={getattr(self, name)} must not be negative")
        if not 0 < self.shrink_value <= 1:
            raise AttributeTypeError(f"shrink_value={self.shrink_value} must be in 0 to 1")
        if self.den_fst and not self.egs_dir:
            raise AttributeTypeError("den_fst wants chain examples in egs_dir")
        if self.den_fst and self.single_frames:
            raise AttributeTypeError("single_frames: LF-MMI is trained on whole chunks")

    @property
    def by_jobs(self) -> bool:
        """Whether any of this asks for a training by jobs; else it runs in one process."""
        return bool(self.cmd or self.egs_dir) or max(self.jobs_initial, self.jobs_final) > 1
