"""The settings of a training by jobs, beside those that every training has."""

from __future__ import annotations

from dataclasses import dataclass

from ...framework.base.errors import AttributeTypeError
from ...framework.base.options.option_fields import option


@dataclass(frozen=True)
class ParallelOptions:
    """How a training is cut into iterations and jobs, as Kaldi's scripts do it.

    These are options of `opscope nnet3 train`, as its help lists them. `cmd` is for `make_runner`.
    With `single_frames` jobs train as `train_dnn.py` does, else on whole chunks, as
    `train_raw_rnn.py`. `shrink_value` scales parameters where nonlinearities are more saturated
    than the threshold, if it is less than what `proportional_shrink` gives.

    Raises:
        AttributeTypeError: a value out of bounds, or options that exclude each other.
    """

    cmd: str = option(
        "", "Where jobs run: run.pl, slurm.pl, queue.pl, kubernetes or dask, with options."
    )
    jobs_initial: int = option(1, "Jobs of an iteration at the start.")
    jobs_final: int = option(1, "Jobs of an iteration at the end.")
    jobs_step: int = option(1, "Above this, their number is a multiple of it.")
    samples_per_iter: int = option(400000, "About how many examples an archive gets.")
    single_frames: bool = option(
        False, "Train on one frame of each example, another one in each pass."
    )
    egs_dir: str = option("", "Examples that are there, as Kaldi's get_egs.sh makes them.")
    den_fst: str = option(
        "", "Train with LF-MMI on chain examples in --egs-dir: the denominator FST."
    )
    chain_l2_regularize: float = option(0.0, "LF-MMI: L2 regularization of the output.")
    xent_regularize: float = option(0.0, "LF-MMI: scale of the cross-entropy of 'output-xent'.")
    leaky_hmm_coefficient: float = option(1e-5, "LF-MMI: flow from each HMM state to all others.")
    apply_deriv_weights: bool = option(
        True, "LF-MMI: use the weights of derivatives in the examples."
    )
    shuffle_buffer_size: int = option(
        5000, "Examples in memory while an archive is shuffled; 0 = all."
    )
    proportional_shrink: float = option(
        0.0, "Scale parameters by 1 - this times the learning rate."
    )
    shrink_value: float = option(1.0, "Scale of parameters where nonlinearities are saturated.")
    shrink_saturation_threshold: float = option(0.4, "How saturated they must be for that.")
    deriv_truncate_margin: int = option(
        -1, "Frames around a chunk to which derivatives go back; -1 = all."
    )
    max_models_combine: int = option(20, "Models that are combined at the end.")
    max_objective_evaluations: int = option(30, "How often their mean is judged.")
    preserve_model_interval: int = option(100, "Keep the model of every so many-th iteration.")
    job_minutes: float = option(
        1440.0, "How long a job may take from its submission on; 0 = for ever."
    )
    job_tries: int = option(3, "How often a job is run before the training gives up.")

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
