"""`compare`: two models on the same inputs, and the first layer where they part ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...framework.base.errors import VariableError
from .comparison import DIFFERS, MADE_UP, SAME, SCALED, Comparison, LayerRow
from .inputs import feeds_of
from .layers import Computed, Form, Wanted
from .matching import Pair, made_up_for, match, rounded_in, same_graph, scaled_of
from .opening import coarsest, open_form

ROWS = 8
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 3e-2, "bfloat16": 2e-1}
"""The tolerance where none is given, by the dtype with the fewest digits."""


def compare(
    a: Any,
    b: Any = None,
    *,
    inputs: Any = None,
    runtimes: Sequence[str] | None = None,
    dtypes: Sequence[str] | None = None,
    tolerance: float | None = None,
    rows: int = ROWS,
    seed: int = 0,
    network: str = "",
    run_code: bool = False,
) -> Comparison:
    """Run two models, or one in two ways, on the same inputs, and compare them layer by layer.

    Layers are variables of nets of operators, nodes of Kaldi's and CNTK's networks and of ONNX
    graphs, modules of PyTorch. Layers of the same name are paired first, then layers with the same
    values, then layers of one type between the same neighbors. Models of different forms may have
    other layouts, which are turned until they fit. Both run in test mode.

    Args:
        a, b: paths of files (saved nets; models, networks and configs of Kaldi's and CNTK's; ONNX
            files; folders of `to-torch`), or objects that `opscope.view` takes. `b` None: `a` under
            two runtimes or in two dtypes.
        inputs: None: random ones. Arrays by input, or the array of the only input; or paths in
            their place (`.npy`, `.npz`, an archive of Kaldi's, whose first entry is taken unless
            `FILE:KEY` names one, lines of numbers). A network of Kaldi's takes the frames of an
            utterance, and the first and the last are repeated as its context asks for.
        runtimes: what runs each of both: "opscope"; "plain", opscope with nothing fused, optimized
            or reused; "bf16", opscope with large products of factors in bfloat16; "onnxruntime";
            "onnx-reference"; "torch". What has another form is exported.
        dtypes: of each of both, in place of float32: "float64", "float16", "bfloat16".
        tolerance: an error `|a - b| / max(1, |a|)` above it counts. None: 1e-4 where both compute
            in float32 or have different forms; else see `TOLERANCES`.
        rows: of what is drawn: samples, or frames.
        seed: of what is drawn. Whole numbers that are drawn are 0.
        network: the command of a config of CNTK's whose network is meant.
        run_code: whether the Python source in a folder of `to-torch` may be executed. Without it
            nothing that a file holds or names is.

    Raises:
        FormatError: a file is missing or damaged.
        VariableError: the models take other inputs, do not run so, or have no layer in common.
        ShapeError: inputs do not fit.
        OpscopeError: a model does not run on these inputs.
    """
    if rows < 1 or not (tolerance is None or tolerance >= 0):
        raise VariableError(
            f"rows={rows}, tolerance={tolerance}: rows from 1 and a tolerance from 0 are wanted"
        )
    pairs = [_two(each, what) for each, what in ((runtimes, "runtimes"), (dtypes, "dtypes"))]
    if b is None and not runtimes and not dtypes:
        raise VariableError(
            "one model is given: give another one, two runtimes (--runtimes A B) or two dtypes"
            " (--dtypes A B)"
        )
    first, other = (
        open_form(given, Wanted(runtime, dtype, run_code, network))
        for given, runtime, dtype in zip((a, a if b is None else b), *pairs, strict=True)
    )
    bound = _tolerance(first, other, pairs[0]) if tolerance is None else tolerance
    mine, theirs, summary = feeds_of(first, other, inputs, rows, seed)
    left, right = first.compute(mine), other.compute(theirs)
    titles = _titles((first, other), pairs)
    return _compared(titles, (first, other), left, right, bound, summary)


def _tolerance(first: Form, other: Form, runtimes: tuple[str, str]) -> float:
    """By the dtype with the fewest digits; a conversion has put float32 into what it made."""
    if "bf16" in runtimes:
        return TOLERANCES["bfloat16"]
    least = TOLERANCES["float32"] if first.kind != other.kind else 0.0
    return max(TOLERANCES[coarsest(first, other).name], least)


def _two(given: Sequence[str] | None, what: str) -> tuple[str, str]:
    """What is said for each of both models; "" where nothing is."""
    if given is None or (not isinstance(given, str) and not given):
        return "", ""
    if isinstance(given, str) or len(given) != 2:
        raise VariableError(f"{what}={given!r}: two are wanted, one for each model")
    return str(given[0]), str(given[1])


def _titles(forms: Sequence[Form], pairs: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Names of both, with runtime and dtype where they were said."""
    titles = []
    for at, form in enumerate(forms):
        said = [pair[at] for pair in pairs if pair[at]]
        titles.append(f"{form.title} ({', '.join(said)})" if said else form.title)
    return titles[0], titles[1]


def _compared(
    titles: tuple[str, str],
    forms: tuple[Form, Form],
    left: Computed,
    right: Computed,
    bound: float,
    summary: str,
) -> Comparison:
    alike = forms[0].kind == forms[1].kind
    pairs = match(left.layers, right.layers, alike=alike, tolerance=bound)
    if not pairs:
        raise VariableError(f"{titles[0]} and {titles[1]} have no layer in common")
    if alike and same_graph(left.layers, right.layers):
        others = dict.fromkeys(rounded_in(pairs, left.layers, bound), MADE_UP)
    else:
        others = dict.fromkeys(made_up_for(pairs, left.layers, bound), MADE_UP)
        others |= dict.fromkeys(scaled_of(pairs, bound), SCALED)
    taken = [{p.first.name for p in pairs}, {p.other.name for p in pairs}]
    only = [
        [name for name in computed.layers if name not in there]
        for computed, there in zip((left, right), taken, strict=True)
    ]
    rows = [_row(pair, others.get(pair.first.name, DIFFERS), bound) for pair in pairs]
    notes = [*left.notes, *(note for note in right.notes if note not in left.notes)]
    return Comparison(titles, rows, (only[0], only[1]), bound, summary, notes)


def _row(pair: Pair, otherwise: str, bound: float) -> LayerRow:
    """A row of the table; `otherwise` is the state of a layer that is not the same."""
    apart = pair.apart
    state = SAME if apart.largest <= bound else otherwise
    return LayerRow(
        pair.first.name,
        pair.other.name,
        pair.first.kind,
        (pair.first.value.shape, pair.other.value.shape),
        apart.largest,
        apart.mean,
        apart.place,
        apart.values,
        pair.how,
        state,
    )
