"""`opscope score`: a model's outputs for all utterances of a corpus."""

from __future__ import annotations

from typing import Any

import click

from ...framework.base.options.field_options import field_options
from ...scale.score.options import ScoreOptions


def _word(name: str, value: Any) -> str:
    option = "--" + name.replace("_", "-")
    return option if value is True else f"{option}={value}"


@click.command()
@click.argument("model")
@click.argument("features", metavar="ARK|SCP|WAV.SCP")
@click.argument("out")
@click.option(
    "--shards",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Parts of the list that run as jobs of their own.",
)
@click.option(
    "--on",
    default="local",
    show_default=True,
    metavar="WHERE",
    help="local, slurm, sge, kubernetes, dask or ray, with options as 'slurm.pl --mem 4G' has"
    " them; --max-jobs-run N says how many shards run at a time.",
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    help="How often a shard that was killed or lost is run again.",
)
@click.option(
    "--job-minutes",
    type=click.FloatRange(0),
    default=1440.0,
    show_default=True,
    help="How long a shard may take from its submission on; 0 = for ever.",
)
@click.option("--work", default="", metavar="DIR", help="Folder for shards, where OUT is a table.")
@click.option("--worker", type=int, hidden=True)
@field_options(ScoreOptions)
def score(
    model: str,
    features: str,
    out: str,
    shards: int,
    on: str,
    retries: int,
    job_minutes: float,
    work: str,
    worker: int | None,
    **options: Any,
) -> None:
    """Write what MODEL computes for every utterance of a corpus.

    MODEL is an nnet3 model of Kaldi's, a model of CNTK's, or a saved net (.pb).

    The features are scp:FILE, ark:FILE, or the name of such a file. For a net that takes samples,
    one column, the lines of an scp may name WAV files.

    OUT is one table, as Kaldi's programs write it: ark:FILE, ark,t:FILE, ark,scp:FILE,FILE; its
    bytes do not depend on the number of shards, and for nnet3 are equal to nnet3-compute's. Shards
    lie in FILE.score until it is written, and manifest.json stays there. Or OUT is a folder, which
    gets an archive for each shard, scores.N.ark, and scores.scp over all.

    After an interruption, the same command resumes where it stopped. Finished shards
    are not computed again; with another model, list or option it refuses.
    """
    from ...scale.score.folder import ScoreFolder

    asked = ScoreOptions(**options)
    if worker is not None:
        from ...scale.score.worker import run_shard

        run_shard(ScoreFolder(work), worker, model, asked)
        return
    from ...scale.score.scoring import Patience, Scoring

    roots = (click.get_current_context().find_root().params or {}).get("roots", ())
    words = [f"--threads={asked.threads}", *(f"--root={root}" for root in roots)]
    words += ["score", *(_word(*pair) for pair in asked.changed().items())]
    patience = Patience(retries, job_minutes)
    Scoring(model, features, out, shards, on, asked, work, patience, words, _log).run()


def _log(line: str) -> None:
    click.echo(line, err=True)
