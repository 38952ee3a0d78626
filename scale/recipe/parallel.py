"""Training by jobs, as Kaldi's `train_raw_rnn.py`, `train_dnn.py` and `chain/train.py` do it.

An iteration trains several networks at once, each a job on one archive of examples, and averages
them. Every file appears in one piece, so a training that was cut off continues where it was: jobs
that are under way are waited for, finished ones are not run again.

    0.raw               the initial network; NUMBER.raw, that after so many iterations
    NUMBER.JOB.raw      what a job has made of the network before; removed with the iteration
    log/                what jobs print, in Kaldi's words
    jobs/               what is known of jobs; see `jobs/pool.py`
    iterations.json     a row for each iteration
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...framework.base.cpu.cores import usable_cores
from ...framework.base.errors import AttributeTypeError, OpscopeError
from ...framework.base.files.atomic import write_atomically
from ...framework.base.options.settings import SWITCHES
from ...framework.base.untrusted.records import AnyFloat, json_file, record_file, typed
from ...framework.training.folder_lock import folder_lock
from ...framework.training.history import EVAL_PREFIX, History
from ...nnet3.network.averaging import average
from ...nnet3.network.nnet import Nnet
from ...nnet3.training.progress import Log
from ...nnet3.training.schedule import (
    NO_OBJECTIVE,
    Schedule,
    dropout_edits,
    halved,
    kept_jobs,
    saturation,
)
from ..jobs.command import make_runner
from ..jobs.job import Job, JobRunner
from ..jobs.pool import JobPool, carried_environment
from .egs_folder import EgsFolder, given_examples, made_examples
from .experiment import EXAMPLES, keep_settings, make_folder
from .nnet3_data import make_network
from .nnet3_options import RecipeOptions
from .parallel_options import ParallelOptions
from .train_job import AnyJob, Chain, CombineJob, ProbJob, TrainJob, write_job

_ROWS = "iterations.json"
_ANYWHERE = ("cmd", "job_minutes", "job_tries")
"""Settings that a training which goes on may change."""
_BACKSTITCH_ITERATIONS = 15
"""With LF-MMI the scale of backstitch rises over so many iterations."""
_PRINT_INTERVAL = 10
_LEAST_SHRINKAGE = 0.5


@dataclass(frozen=True)
class _Objective:
    """What a job that trains tells."""

    objective: AnyFloat


@dataclass(frozen=True)
class _Judgment:
    """What a job that judges reports of each part: name -> value."""

    train: dict[str, AnyFloat] = field(default_factory=dict)
    valid: dict[str, AnyFloat] = field(default_factory=dict)


class ParallelRecipe:
    """One training by jobs; see the text of this module.

    Args:
        use_gpu: of the jobs: yes, no, optional or wait.
        log: takes lines on what happens.
        runner: of the jobs; by default the one that `cmd` asks for.
    """

    def __init__(
        self,
        options: RecipeOptions,
        parallel: ParallelOptions,
        use_gpu: str = "no",
        log: Log = print,
        runner: JobRunner | None = None,
    ) -> None:
        self.options = options
        self.parallel = parallel
        self.use_gpu = use_gpu
        self.log = log
        self.history = History()
        self._runner = runner
        self._rows: list[dict[str, Any]] = []

    def path(self, *names: str) -> str:
        """A file of the experiment, absolute: jobs may begin in another folder."""
        return os.path.abspath(os.path.join(self.options.dir, *names))

    def run(self) -> Nnet:
        """Do all that is not done yet; returns the final network.

        Raises:
            OpscopeError: bad input; a job failed as often as it may, or did not come back; a file
                cannot be written; the folder holds another experiment, or another run is under way
                there.
        """
        runner = self._runner or make_runner(self.parallel.cmd or "local")
        make_folder(self.options.dir)
        try:
            with folder_lock(self.options.dir):
                return self._run(runner)
        finally:
            if (close := getattr(runner, "close", None)) is not None and self._runner is None:
                close()

    def _run(self, runner: JobRunner) -> Nnet:
        self._begin()
        final = self.path("final.raw")
        if os.path.exists(final):
            self.log(f"{final} is there already")
            return Nnet.read(final)
        make_network(self.options, self.path("0.raw"), self.path("lda.mat"), self.log)
        self._initial = Nnet.read(self.path("0.raw"))
        egs = self._examples()
        schedule = self._schedule(egs)
        self.log(f"Training: {self.options.epochs} epochs = {schedule.iterations} iterations")
        os.makedirs(self.path("log"), exist_ok=True)
        pool = self._pool(runner)
        start = self._resume()
        for iteration in range(start, schedule.iterations):
            self._iterate(pool, schedule, egs, iteration)
            self._remove_model(iteration - 2, schedule)
        return self._finish(pool, schedule, egs)

    def _begin(self) -> None:
        """Print the settings, and compare them with the settings of a run before."""
        settings = dataclasses.asdict(self.options)
        settings |= dataclasses.asdict(self.parallel) | {"use_gpu": self.use_gpu}
        for name, value in settings.items():
            self.log(f"  {name.replace('_', '-')}: {value}")
        kept = {name: value for name, value in settings.items() if name not in _ANYWHERE}
        keep_settings(self.options.dir, kept)

    def _examples(self) -> EgsFolder:
        if self.parallel.egs_dir:
            return given_examples(
                os.path.abspath(self.parallel.egs_dir), chain=bool(self.parallel.den_fst)
            )
        return made_examples(
            *(self.options, self.parallel, self._initial, self.path(EXAMPLES), self.log)
        )

    def _schedule(self, egs: EgsFolder) -> Schedule:
        options, parallel = self.options, self.parallel
        copies = 1
        if egs.chain:
            copies = options.frame_subsampling_factor
        elif parallel.single_frames:
            copies = egs.frames
        return Schedule(
            *(options.epochs, egs.archives, copies),
            *(parallel.jobs_initial, parallel.jobs_final, parallel.jobs_step),
            *(options.initial_lr, options.final_lr),
        )

    def _pool(self, runner: JobRunner) -> JobPool:
        environment = carried_environment()
        if SWITCHES["OPSCOPE_THREADS"].name not in environment:
            at_once = runner.most or max(self.parallel.jobs_initial, self.parallel.jobs_final)
            threads = runner.threads or max(1, usable_cores() // at_once)
            environment["OPSCOPE_THREADS"] = str(threads)
        tries, minutes = self.parallel.job_tries, self.parallel.job_minutes
        return JobPool(self.path("jobs"), runner, self.log, tries, minutes, environment)

    # Iterations

    def _resume(self) -> int:
        """The iteration to begin with: the number of the newest model."""
        numbers = [
            int(match[1])
            for name in os.listdir(self.path())
            if (match := re.fullmatch(r"(\d+)\.raw", name)) is not None
        ]
        path = self.path(_ROWS)
        start = max(numbers)
        self._rows = typed(json_file(path, missing=[]), list[dict[str, AnyFloat]], path)[:start]
        if start:
            self.log(f"Going on from {self.path(f'{start}.raw')}")
        for name in os.listdir(self.path()):  # what a run that was cut off had still to remove
            match = re.fullmatch(r"(\d+)\.\d+\.raw", name)
            if match is not None and int(match[1]) <= start:
                _remove(self.path(name))
        return start

    def _iterate(self, pool: JobPool, schedule: Schedule, egs: EgsFolder, iteration: int) -> None:
        """Train networks by jobs, and make the next network of them."""
        begun = time.monotonic()
        rate, jobs = schedule.learning_rate(iteration), schedule.jobs(iteration)
        scale = self._shrinkage(iteration, rate)
        self.log(
            f"Iter: {iteration}/{schedule.iterations - 1}   Jobs: {jobs}   Epoch:"
            f" {schedule.share(iteration) * schedule.epochs:.2f}/{schedule.epochs:.1f}"
            f" ({100 * schedule.share(iteration):.1f}% complete)   lr: {rate:.6f}"
            + (f"   shrink: {scale:.5f}" if scale != 1.0 else "")
        )
        trained = [
            self._train_job(schedule, egs, iteration, job, rate, scale)
            for job in range(1, jobs + 1)
        ]
        parts = egs.judged()
        judge = self._prob_job(str(iteration), parts)
        names = [f"train.{iteration}.{job}" for job in range(1, jobs + 1)]
        listed = [self._job(name, job) for name, job in zip(names, trained, strict=True)]
        pool.run([*listed, self._job(f"prob.{iteration}", judge, optional=True)])
        objectives = [self._objective(job.result) for job in trained]
        kept, best = kept_jobs(objectives)
        if len(kept) != jobs:
            self.log(f"Only {len(kept)}/{jobs} of the models are averaged: jobs {kept}")
        row = {
            "epoch": schedule.share(iteration + 1) * schedule.epochs,
            "iteration": iteration + 1,
            "jobs": jobs,
            "kept": len(kept) if iteration else 1,
            "learning_rate": rate,
            "loss": -objectives[best - 1],
            **self._judgment(judge.result),
            "seconds": round(time.monotonic() - begun, 3),
        }
        self._tell(row)
        self._next_model(iteration, [trained[job - 1].output for job in kept], trained[best - 1])
        for job in trained:
            _remove(job.output)
            _remove(job.result)
        _remove(judge.result)
        _remove(self.path(f"cache.{iteration}"))
        for name in (*names, f"prob.{iteration}"):
            pool.forget(f"{name}.")

    def _next_model(self, iteration: int, outputs: Sequence[str], best: TrainJob) -> None:
        """The mean of what the jobs have made; after the first iteration the best one, since means
        of networks that change fast are worse than each."""
        nnet = (
            average(map(Nnet.read, outputs), [1.0] * len(outputs))
            if iteration
            else Nnet.read(best.output)
        )
        nnet.write(self.path(f"{iteration + 1}.raw"))

    def _train_job(
        self,
        schedule: Schedule,
        egs: EgsFolder,
        iteration: int,
        job: int,
        rate: float,
        scale: float,
    ) -> TrainJob:
        options, parallel = self.options, self.parallel
        largest, minibatch = options.max_param_change, options.minibatch
        if not iteration:  # smaller steps while the network changes fast
            largest = largest / math.sqrt(2)
            minibatch = halved(minibatch)
        stitch = options.backstitch_training_scale
        if egs.chain and iteration < _BACKSTITCH_ITERATIONS:
            stitch = stitch * iteration / _BACKSTITCH_ITERATIONS
        turn = schedule.turn(iteration, job)
        return TrainJob(
            model=self.path(f"{iteration}.raw"),
            output=self.path(f"{iteration + 1}.{job}.raw"),
            result=self.path("jobs", f"train.{iteration}.{job}.result"),
            archive=egs.archive(schedule.place(iteration, job)[0]),
            frame=turn if parallel.single_frames else -1,
            shift=turn if egs.chain else 0,
            learning_rate=rate,
            scale=scale,
            edits=dropout_edits(options.dropout_schedule, schedule.share(iteration)),
            minibatch=minibatch,
            buffer=parallel.shuffle_buffer_size,
            seed=options.seed + iteration,
            trainer={
                "print_interval": _PRINT_INTERVAL,
                "momentum": options.momentum,
                "max_param_change": largest,
                "l2_regularize_factor": options.l2_regularize_factor / schedule.jobs(iteration),
                "backstitch_training_scale": stitch,
                "backstitch_training_interval": options.backstitch_training_interval,
            },
            passes=self._deriv_times(),
            read_cache=self.path(f"cache.{iteration}") if iteration else "",
            write_cache=self.path(f"cache.{iteration + 1}") if job == 1 else "",
            use_gpu=self.use_gpu,
            chain=self._chain(),
        )

    def _deriv_times(self) -> dict[str, int]:
        margin = self.parallel.deriv_truncate_margin
        if margin < 0:
            return {}
        left, right = self._initial.context()
        return {"min_deriv_time": -margin - left, "max_deriv_time_relative": margin + right}

    def _chain(self) -> Chain | None:
        parallel = self.parallel
        if not parallel.den_fst:
            return None
        return Chain(
            *(os.path.abspath(parallel.den_fst), parallel.chain_l2_regularize),
            *(parallel.xent_regularize, parallel.leaky_hmm_coefficient),
            parallel.apply_deriv_weights,
        )

    def _shrinkage(self, iteration: int, rate: float) -> float:
        """The factor of all parameters before an iteration."""
        parallel = self.parallel
        scale = 1.0 - parallel.proportional_shrink * rate
        if scale <= _LEAST_SHRINKAGE:
            raise AttributeTypeError(
                f"proportional_shrink={parallel.proportional_shrink:g} is too large: parameters"
                f" would be scaled by {scale:g}"
            )
        if parallel.shrink_value >= scale:
            return scale
        if not iteration:
            return parallel.shrink_value
        nnet = Nnet.read(self.path(f"{iteration}.raw"))
        value = saturation(nnet.components.values())
        return parallel.shrink_value if value > parallel.shrink_saturation_threshold else scale

    # Jobs

    def _job(self, name: str, job: AnyJob, optional: bool = False) -> Job:
        """A job of the pool; what it does is written down."""
        path = self.path("jobs", f"{name}.job")
        write_job(path, job)
        program = __name__.partition(".")[0]
        command = (sys.executable, "-P", "-m", program, "nnet3", "job", path)
        return Job(name, command, self.path("log", f"{name}.log"), optional)

    def _prob_job(self, model: str, parts: dict[str, list[str]]) -> ProbJob:
        result = self.path("jobs", f"prob.{model}.result")
        return ProbJob(self.path(f"{model}.raw"), result, parts, self.use_gpu, self._chain())

    def _objective(self, result: str) -> float:
        value = record_file(result, _Objective).objective
        return NO_OBJECTIVE if math.isnan(value) else value

    def _judgment(self, result: str) -> dict[str, float]:
        """What the model before the iteration was worth; empty if its job failed."""
        if not os.path.exists(result):
            return {}
        prefixes = {"train": "", "valid": EVAL_PREFIX}
        return {
            f"{prefixes[part]}{name}": value
            for part, values in vars(record_file(result, _Judgment)).items()
            for name, value in values.items()
            if prefixes[part] or name != "loss"
        }

    def _tell(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        write_atomically(self.path(_ROWS), (json.dumps(self._rows, indent=1) + "\n").encode())
        self.history.rows = self._rows
        self.history.to_csv(self.path("history.csv"))

    # End

    def _remove_model(self, iteration: int, schedule: Schedule) -> None:
        """Remove the model of an iteration that nothing needs any more."""
        combined = schedule.combined(self.parallel.max_models_combine)
        if iteration > 0 and iteration not in combined:
            if iteration % self.parallel.preserve_model_interval:
                _remove(self.path(f"{iteration}.raw"))

    def _finish(self, pool: JobPool, schedule: Schedule, egs: EgsFolder) -> Nnet:
        """The final network: the mean of the last iterations' that does best."""
        numbers = schedule.combined(self.parallel.max_models_combine)
        combine = CombineJob(
            models=[self.path(f"{number}.raw") for number in reversed(numbers)],
            output=self.path("combined.raw"),
            result=self.path("jobs", "combine.result"),
            archives=egs.combined(),
            minibatch=self._combining_minibatch(egs),
            evaluations=self.parallel.max_objective_evaluations,
            use_gpu=self.use_gpu,
            chain=self._chain(),
        )
        self.log(f"Combining the models of iterations {', '.join(map(str, numbers))}")
        pool.run([self._job("combine", combine)])
        judge = self._prob_job("combined", egs.judged())
        pool.run([self._job("prob.final", judge, optional=True)])
        for name, value in self._judgment(judge.result).items():
            self.log(f"final {name}: {value:g}")
        nnet = Nnet.read(combine.output)
        os.replace(combine.output, self.path("final.raw"))
        for iteration in range(1, schedule.iterations):
            if iteration % self.parallel.preserve_model_interval:
                _remove(self.path(f"{iteration}.raw"))
        _remove(self.path(f"cache.{schedule.iterations}"))
        shutil.rmtree(self.path("jobs"), ignore_errors=True)
        self.log(f"Wrote {self.path('final.raw')}")
        return nnet

    def _combining_minibatch(self, egs: EgsFolder) -> str:
        """Minibatches for examples of which none may be left over."""
        minibatch = self.options.minibatch
        return minibatch if egs.chain or "=" in minibatch else f"1:{minibatch}"


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise OpscopeError(f"cannot remove {path}: {error.strerror}") from error
