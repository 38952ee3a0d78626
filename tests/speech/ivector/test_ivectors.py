"""iVectors: against Kaldi's formulas, and stage by stage against Vosk."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from ivector_models import DIM, IVECTOR, OFFSET, extractor, gaussians, matrix, write_model
from opscope.framework.base.cpu.numpy_blas import controllers
from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from opscope.framework.fusion.compiled import native
from opscope.framework.fusion.rows import small_products
from opscope.framework.fusion.rows.small_products import on_one_blas_thread
from opscope.framework.fusion.team import one_blas_thread
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.files.packed import packed, read_packed, unpacked, write_packed
from opscope.speech import (
    AdaptationState,
    IvectorModel,
    IvectorOptions,
    OnlineIvector,
    apply_cmvn,
    cmvn_stats,
    splice,
    transform,
)
from opscope.speech.ivector.estimation import conjugate_gradients, exactly, stepped
from opscope.speech.ivector.extractor import IvectorExtractor
from opscope.speech.ivector.gmm import DiagGmm, posteriors


@pytest.fixture
def model(tmp_path) -> IvectorModel:
    write_model(tmp_path)
    return IvectorModel.from_config(tmp_path / "ivector_extractor.conf")


def frames(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(count, DIM)) * 3 + [60, 2, -3]).astype(np.float32)


def log_likelihoods(model: IvectorModel, row: np.ndarray) -> np.ndarray:
    """Of one frame by each Gaussian, from its mean and variance."""
    gmm = Reader(gaussians())
    gmm.read_token()
    gmm.read_token()
    gmm.read_vector()
    gmm.read_token()
    weights = gmm.read_vector().astype(np.float64)
    variance = 1 / model.gaussians.inverse_variances.astype(np.float64)
    mean = model.gaussians.means * variance
    exponent = -0.5 * ((row - mean) ** 2 / variance).sum(axis=1)
    return np.log(weights) + exponent - 0.5 * np.log(2 * np.pi * variance).sum(axis=1)


def by_kaldi(model: IvectorModel, features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The iVector of all frames by the equations, frame by frame, solved exactly."""
    options, everyone = model.options, model.global_stats
    plain = transform(splice(features, 1, 1), model.transform)
    rows = []
    for frame in range(len(features)):
        stats = cmvn_stats(features[: frame + 1])
        stats += 200 / everyone[0, -1] * everyone
        rows.append(apply_cmvn(features[frame : frame + 1], stats)[0])
    normalized = transform(splice(np.stack(rows), 1, 1), model.transform)
    quadratic, linear, count = np.eye(IVECTOR), np.zeros(IVECTOR), 0.0
    linear[0] = OFFSET
    for row, seen, weight in zip(normalized, plain, weights, strict=True):
        likes = log_likelihoods(model, row)
        best = np.argsort(-likes)[: options.num_gselect]
        share = np.exp(likes[best] - likes[best[0]])
        least = min(options.min_post / abs(weight), 0.99)
        share[share < least * share[likes[best] > likes[best[0]] + np.log(least)].sum()] = 0
        share *= options.posterior_scale * weight / share.sum()
        for gaussian, part in zip(best, share, strict=True):
            projection = model.extractor.projections[gaussian]
            precision = unpacked(model.extractor.precisions[gaussian])
            quadratic += part * projection.T @ precision @ projection
            linear += part * projection.T @ precision @ seen
        count += share.sum()
    growth = max(count, options.max_count) / options.max_count - 1 if options.max_count else 0.0
    quadratic += growth * np.eye(IVECTOR)
    linear[0] += growth * OFFSET
    found = np.linalg.solve(quadratic, linear)
    found[0] -= OFFSET
    return found


@pytest.mark.parametrize("count", [1, 2, 25, 80])
@pytest.mark.parametrize("most", [0.0, 3.0])
def test_ivector(model, count, most):
    model = replace(model, options=replace(model.options, max_count=most))
    features = frames(count)
    ivectors = OnlineIvector(model)
    ivectors.accept(features)
    assert ivectors.frames_ready == max(count - 1, 0)
    ivectors.finish()
    assert ivectors.frames_ready == count
    made = ivectors.ivector()
    assert made.dtype == np.float32 and made.shape == (ivectors.dim,)
    np.testing.assert_allclose(made, by_kaldi(model, features, np.ones(count)), atol=2e-5)
    assert abs(ivectors.frame_count - count) < 1e-4 and ivectors.improvement() > 0
    assert np.array_equal(made, ivectors.ivector(0))  # the most recent one


def test_ivector_of_weighted_frames(model):
    features, weights = frames(40), np.random.default_rng(5).uniform(0.01, 1, 40)
    ivectors = OnlineIvector(model)
    ivectors.accept(features)
    ivectors.finish()
    ivectors.weigh(np.arange(40), weights)
    made = ivectors.ivector()
    np.testing.assert_allclose(made, by_kaldi(model, features, weights), atol=2e-5)
    # What is taken away again has never been there.
    again = OnlineIvector(model)
    again.accept(features)
    again.finish()
    again.weigh(np.arange(40), np.zeros(40))
    again.weigh(np.arange(20), np.ones(20))
    again.ivector(30)
    again.weigh(np.arange(20), -np.ones(20))
    again.ivector(31)
    again.weigh(np.arange(40), weights)
    np.testing.assert_allclose(again.ivector(), made, atol=1e-4)


def test_ivectors_of_frames(model):
    """Without the most recent one, each period has the estimate of its first frame."""
    settings = replace(model.options, use_most_recent_ivector=False, ivector_period=10)
    model, features = replace(model, options=settings), frames(35)
    ivectors = OnlineIvector(model)
    ivectors.accept(features)
    ivectors.finish()
    made = [ivectors.ivector(frame) for frame in range(35)]
    for frame in (0, 9, 10, 34):
        # The first frame of a period has its right neighbor.
        begin = frame // 10 * 10
        asked = OnlineIvector(replace(model, options=IvectorOptions(max_count=3, num_gselect=3)))
        asked.accept(features)
        np.testing.assert_allclose(made[frame], asked.ivector(begin), atol=1e-5)
    again = OnlineIvector(model)
    again.accept(features)
    again.finish()
    again.ivector(34)
    np.testing.assert_allclose([again.ivector(f) for f in range(35)], made, atol=1e-5)


def test_greedy(model, caplog):
    with caplog.at_level(logging.WARNING):
        settings = replace(
            model.options, greedy_ivector_extractor=True, use_most_recent_ivector=False
        )
    assert "implies --use-most-recent-ivector=true" in caplog.text
    greedy, plain = OnlineIvector(replace(model, options=settings)), OnlineIvector(model)
    for each in (greedy, plain):
        each.accept(frames(30))
    assert np.array_equal(greedy.ivector(3), plain.ivector(28))


def test_blocks(model):
    """Where estimates are asked for at the same frames, blocks do not matter."""
    features, results = frames(60), []
    for size in (60, 1, 7):
        ivectors = OnlineIvector(model)
        made, at = [], 0
        for begin in range(0, 60, size):
            ivectors.accept(features[begin : begin + size])
            while at < 60 and at < ivectors.frames_ready:
                made.append(ivectors.ivector(at))
                at += 20
        results.append(made)
    for made in results[1:]:
        np.testing.assert_allclose(made, results[0], atol=1e-5)


def test_adaptation_state(model):
    first, second = frames(50), frames(20, seed=9)
    ivectors = OnlineIvector(model)
    ivectors.accept(first)
    ivectors.finish()
    ivectors.ivector()
    state = ivectors.adaptation_state()
    assert state.cmvn.speaker_stats[0, -1] == 50 and abs(state.stats.count - 5) < 1e-5
    made = []
    for binary in (True, False):
        writer = Writer(binary)
        state.write(writer)
        again = AdaptationState.read(Reader(writer.getvalue()))
        after = OnlineIvector(model, again)
        after.accept(second)
        made.append(after.ivector())
    np.testing.assert_allclose(made[0], made[1], atol=1e-4)
    alone = OnlineIvector(model)
    alone.accept(second)
    assert np.abs(alone.ivector() - made[0]).max() > 0.01
    few = replace(model, options=replace(model.options, max_remembered_frames=10.0))
    short = OnlineIvector(few)
    short.accept(first)
    short.ivector()
    state = short.adaptation_state()
    assert abs(state.cmvn.speaker_stats[0, -1] - 10) < 1e-9
    assert abs(state.stats.count - 1) < 1e-6
    # The statistics shrink with their count, but the prior stays: at no frames it is alone.
    state.stats.scale(0.0)
    empty = AdaptationState.empty(few).stats
    np.testing.assert_allclose(state.stats.linear, empty.linear, atol=1e-9)
    np.testing.assert_allclose(state.stats.quadratic, empty.quadratic, atol=1e-9)


def test_files_in_text(model, tmp_path):
    write_model(tmp_path, binary=False)
    text = IvectorModel.from_config(tmp_path / "ivector_extractor.conf")
    made = []
    for each in (model, text):
        ivectors = OnlineIvector(each)
        ivectors.accept(frames(30))
        made.append(ivectors.ivector())
    np.testing.assert_allclose(made[0], made[1], atol=1e-4)
    vosk = IvectorModel.from_folder(tmp_path)
    assert vosk.options.max_count == 100 and vosk.cmvn.cmn_min_energy == 50
    (tmp_path / "online_cmvn.conf").write_text("--cmn-min-energy=7\n--norm-vars=true\n")
    vosk = IvectorModel.from_folder(tmp_path)
    assert vosk.cmvn.cmn_min_energy == 7 and vosk.cmvn.normalize_variance


def test_posteriors():
    likes = np.array([[0.0, -1.0, -9.0, -0.5], [-3.0, -3.0, -3.0, -30.0]], np.float32)
    chosen, shares, totals = posteriors(likes, 3, np.array([0.025, 0.3], np.float32))
    assert chosen[0].tolist() == [0, 3, 1] and set(chosen[1].tolist()) == {0, 1, 2}
    wanted = np.exp([0, -0.5, -1])
    np.testing.assert_allclose(shares[0], wanted / wanted.sum(), rtol=1e-6)
    np.testing.assert_allclose(shares[1], [1 / 3] * 3, rtol=1e-6)
    np.testing.assert_allclose(totals, [np.log(wanted.sum()), -3 + np.log(3)], rtol=1e-6)
    for least, kept in ((0.99, 1), (0.3, 2), (0.0, 4)):
        shares = posteriors(likes[:1], 9, np.array([least]))[1]
        assert np.count_nonzero(shares) == kept and abs(shares.sum() - 1) < 1e-6


def test_conjugate_gradients():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(9, 9))
    spd, vector = root @ root.T + np.eye(9), rng.normal(size=9)
    exact = np.linalg.solve(spd, vector)
    np.testing.assert_allclose(conjugate_gradients(spd, vector, np.zeros(9), 15), exact, rtol=1e-8)
    assert np.abs(conjugate_gradients(spd, vector, np.zeros(9), 2) - exact).max() > 1e-6
    assert np.array_equal(conjugate_gradients(spd, vector, exact, 0), exact)
    assert np.array_equal(conjugate_gradients(spd, spd @ exact * 0, np.zeros(9), 15), np.zeros(9))


compiled = pytest.mark.skipif(native.load("ivectors") is None, reason="no native library")


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_has_no_finite_solution(wrong: float) -> None:
    """LAPACK would not end with it."""
    for square, vector in ((np.diag([1, wrong]), np.ones(2)), (np.eye(2), np.array([1, wrong]))):
        assert np.isnan(exactly(square, vector, np.zeros(2))).all()
        assert not np.isfinite(conjugate_gradients(square, vector, np.zeros(2), 15)).all()


@compiled
@pytest.mark.parametrize("dim", [1, 2, 7, 8, 40, 127, 300])
def test_conjugate_gradients_in_c_have_the_same_bits(dim: int) -> None:
    rng = np.random.default_rng(dim)
    root, start = rng.normal(size=(dim, dim)), rng.normal(size=dim)
    vector = rng.normal(size=dim) * 1e3
    solved = 0
    for square in (root @ root.T / dim + np.eye(dim), root @ root.T, np.zeros((dim, dim))):
        for steps in (0, 1, 2, 15, dim + 5):
            steps = min(steps, dim + 5)
            wanted = stepped(square, vector, start, steps)
            solved += wanted is not None
            if wanted is None:  # they lead away: the matrix is solved by its eigenvalues
                wanted = exactly(square, vector, start)
            assert np.array_equal(conjugate_gradients(square, vector, start, steps), wanted)
    assert solved >= 10


@compiled
@pytest.mark.parametrize(
    "changes", [{}, {"num_gselect": 1}, {"num_gselect": 99}, {"min_post": 0.0}, {"max_count": 3.0}]
)
def test_frames_are_counted_in_c_as_in_numpy(model, changes, monkeypatch) -> None:
    """Blocks of frames, weights that change, no frame at all."""
    model = replace(model, options=replace(model.options, **changes))
    features, weights = frames(60), np.random.default_rng(5).uniform(0.01, 1, 60)

    def estimated() -> tuple[OnlineIvector, list[np.ndarray]]:
        ivectors, found = OnlineIvector(model), []
        for begin in range(0, 60, 20):
            ivectors.accept(features[begin : begin + 20])
            ivectors.weigh(np.arange(begin, begin + 20), weights[begin : begin + 20])
            if begin:
                ivectors.weigh(np.arange(begin - 9, begin), -0.5 * weights[begin - 9 : begin])
            found += [ivectors.ivector(), ivectors.ivector()]
        return ivectors, found

    ours, made = estimated()
    monkeypatch.setattr("opscope.framework.fusion.compiled.native.load", lambda *_: None)
    theirs, wanted = estimated()
    assert ours.stats.count == pytest.approx(theirs.stats.count, rel=1e-12)
    for name in ("linear", "quadratic"):
        one, other = getattr(ours.stats, name), getattr(theirs.stats, name)
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * np.abs(other).max())
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
    assert ours.log_likelihood() == pytest.approx(theirs.log_likelihood(), rel=1e-6)


def test_packed_matrices():
    whole = np.array([[1.0, 2, 4], [2, 3, 5], [4, 5, 6]])
    assert packed(whole).tolist() == [1, 2, 3, 4, 5, 6]
    assert np.array_equal(unpacked(packed(whole)), whole)
    for binary in (True, False):
        writer = Writer(binary)
        write_packed(writer, packed(whole))
        assert np.array_equal(read_packed(Reader(writer.getvalue())), packed(whole))
    single = b"\0BFP \4\2\0\0\0" + np.array([1, 2, 3], "<f4").tobytes()
    assert read_packed(Reader(single)).tolist() == [1, 2, 3]
    for text, part in ((b"[ 1 2 ]", "no lower triangle"), (b"[ 1", "closing bracket")):
        with pytest.raises(FormatError, match=part):
            read_packed(Reader(text))


def test_parts_that_do_not_go_together(model, tmp_path):
    weighted = IvectorExtractor.read(Reader(extractor()))
    weighted.weights, weighted.weight_projections = np.zeros(0), np.zeros((7, IVECTOR))
    writer = Writer()
    weighted.write_to(writer)
    for name, data, part in (
        ("splice.conf", b"--left-context=2\n", "LDA 2 x 10 does not take"),
        ("final.mat", matrix(np.ones((3, 10), np.float32)), "the Gaussians take 2"),
        ("final.mat", matrix(np.full((2, 10), np.nan, np.float32)), "final.mat.*not finite"),
        ("global_cmvn.stats", matrix(np.zeros((2, 4))), "global_cmvn.stats: statistics of CMVN"),
        ("global_cmvn.stats", matrix(np.ones((1, 4))), r"\[1, 4\] are no statistics"),
        ("splice.conf", b"--left=1\n", "splice.conf:1: invalid option"),
        ("online_cmvn.conf", b"--cmn-window=0\n", "online_cmvn.conf: --cmn-window=0"),
        ("final.ie", gaussians(), "<IvectorExtractor> was expected"),
        ("final.ie", extractor()[:500], "final.ie: .*wanted"),
        ("final.ie", writer.getvalue(), "weights depend on the iVector"),
        ("final.dubm", extractor(), "<DiagGMM> or"),
    ):
        write_model(tmp_path)
        (tmp_path / name).write_bytes(data)
        with pytest.raises(OpscopeError, match=part):
            IvectorModel.from_folder(tmp_path)
    (tmp_path / "final.mat").unlink()
    with pytest.raises(FormatError, match=r"final.mat missing \(looked for final.mat, global"):
        IvectorModel.from_folder(tmp_path)
    (tmp_path / "some.conf").write_text("--num-gselect=5\n")
    with pytest.raises(FormatError, match="--lda-matrix must be given"):
        IvectorModel.from_config(tmp_path / "some.conf")


def test_readers_refuse():
    data = gaussians(binary=False)
    for change, part in (
        ((b"<INV_VARS>  [\n  ", b"<INV_VARS>  [\n  -"), "negative weights or variances"),
        ((b"<WEIGHTS>  [ ", b"<WEIGHTS>  [ 1 "), "8 weights, means"),
    ):
        assert change[0] in data
        with pytest.raises(FormatError, match=part):
            DiagGmm.read(Reader(data.replace(*change)))
    data = extractor(binary=False)
    for change, part in (
        ((b"<M> 7", b"<M> 6"), "6 projections for 7 weights"),
        ((b"<w>  [ ]", b"<w>  [\n 1 2 ]"), "7 projections for 8 weights"),
        ((b"<IvectorOffset> 5", b"<IvectorOffset> nan"), "not finite"),
    ):
        assert change[0] in data
        with pytest.raises(FormatError, match=part):
            IvectorExtractor.read(Reader(data.replace(*change)))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"num_gselect": 0}, "num-gselect=0 must be positive"),
        ({"min_post": 0.5}, "min-post=0.5"),
        ({"posterior_scale": 0.0}, "posterior-scale=0 must"),
        ({"max_count": float("nan")}, "max-count=nan"),
        ({"max_remembered_frames": -1.0}, "max-remembered-frames=-1 must"),
        ({"ivector_period": 0}, "ivector-period=0"),
    ],
)
def test_options_that_do_not_go(changes, part):
    with pytest.raises(OpscopeError, match=part):
        IvectorOptions(**changes)


def test_calls_that_do_not_go(model):
    ivectors = OnlineIvector(model)
    with pytest.raises(OpscopeError, match="no iVector for frame -1: 0 frames are ready"):
        ivectors.ivector()
    with pytest.raises(ShapeError, match="for statistics of 3 columns"):
        ivectors.accept(np.zeros((4, 7)))
    ivectors.accept(frames(9))
    with pytest.raises(OpscopeError, match="frame 8: 8 frames are ready"):
        ivectors.ivector(8)
    ivectors.ivector(3)
    with pytest.raises(OpscopeError, match="weigh from the start"):
        ivectors.weigh(np.arange(9), np.ones(9))
    ivectors.finish()
    with pytest.raises(OpscopeError, match="is finished"):
        ivectors.accept(frames(9))
    weighted = OnlineIvector(model)
    weighted.accept(frames(9))
    weighted.weigh(np.arange(3), np.ones(3))
    with pytest.raises(OpscopeError, match="weights were given up to frame 2"):
        weighted.ivector(5)
    with pytest.raises(OpscopeError, match="frame -1 has no weight"):
        weighted.weigh(np.array([-1]), np.ones(1))
    with pytest.raises(OpscopeError, match="must be finite"):
        weighted.weigh(np.array([1]), np.array([np.nan]))
    other = AdaptationState.empty(model)
    other.stats.linear = other.stats.linear[:2]
    with pytest.raises(ShapeError, match="2 elements for a model of 4"):
        OnlineIvector(model, other)


class Blas:
    """A library as threadpoolctl tells of it."""

    filepath = "no library"

    def __init__(self) -> None:
        self.number = 2

    def get_num_threads(self) -> int:
        return self.number

    def set_num_threads(self, number: int) -> None:
        self.number = number


def test_products_have_one_thread_and_give_the_others_back() -> None:
    """Threads of BLAS that wait awake would cost as much processor time again."""
    if one_blas_thread() is None:
        pytest.skip("nothing keeps NumPy's BLAS at one thread here")
    (library,) = controllers()
    before = library.get_num_threads()
    library.set_num_threads(2)
    try:
        with on_one_blas_thread():
            assert library.get_num_threads() == 1
        assert library.get_num_threads() == 2
    finally:
        library.set_num_threads(before)


def test_products_have_one_thread_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = small_products.Counted(library := Blas())
    monkeypatch.setattr(small_products, "one_blas_thread", lambda: None)
    monkeypatch.setattr(small_products, "_counted", lambda: counted)
    with on_one_blas_thread():
        with on_one_blas_thread():
            assert library.number == 1
        assert library.number == 1 and counted.threads(0) == 2
        assert counted.threads(3) == 3  # somebody chooses another number meanwhile
        assert library.number == 1
    assert library.number == 3 and counted.threads(2) == 2 and library.number == 2
