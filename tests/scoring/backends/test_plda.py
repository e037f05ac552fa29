"""Two-covariance PLDA against the Gaussian densities that it stands for, and EM against what it promises."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

from svtoolkit.data.trials import Trials
from svtoolkit.scoring.backends.covariance import diagonalise
from svtoolkit.scoring.backends.likelihood_ratio import LikelihoodRatio
from svtoolkit.scoring.backends.plda import Prior, TwoCovariance, em_step, initial_model, log_likelihood
from svtoolkit.scoring.backends.training_data import LabelledEmbeddings
from svtoolkit.scoring.cosine import EmbeddingTable
from svtoolkit.scoring.enrolment import enrol_models
from svtoolkit.scoring.normalisation import METHODS, normalise_scores


def covariance(seed: int, size: int = 4) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T + 0.1 * np.eye(size)


def stacked(vectors: np.ndarray, model: TwoCovariance) -> float:
    """Log density of recordings of one speaker, by the covariance of all their values together."""
    count = len(vectors)
    whole = np.kron(np.ones((count, count)), model.between) + block_diag(*[model.within] * count)
    return float(multivariate_normal(np.tile(model.mean, count), whole).logpdf(vectors.ravel()))


MODEL = TwoCovariance(np.array([1.0, -2.0, 0.5, 0.0]), covariance(1), covariance(2))
TURN, VARIANCES = diagonalise(MODEL.between, MODEL.within)


def turned(vectors: np.ndarray, names: list[str]) -> EmbeddingTable:
    return EmbeddingTable(names, (vectors - MODEL.mean) @ TURN.T)


@pytest.mark.parametrize("sessions", [1, 2, 5])
def test_the_ratio_is_that_of_the_densities_of_stacked_recordings(sessions):
    vectors = np.random.default_rng(3).normal(0, 2, size=(sessions + 1, 4))
    enrolled, test = vectors[:-1], vectors[-1:]
    expected = stacked(vectors, MODEL) - stacked(enrolled, MODEL) - stacked(test, MODEL)
    names = [f"e{n}" for n in range(sessions)]
    table = turned(vectors, [*names, "t"])
    listed = Trials(["anna"], ["t"], np.array([True]))
    models = enrol_models(table, listed, {"anna": names}, mean="embeddings", allow_missing=False)
    found = LikelihoodRatio(VARIANCES).scores(models.table, models.trials)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_one_recording_a_side_scores_the_same_the_other_way_round():
    table = turned(np.random.default_rng(4).normal(size=(6, 4)), list("abcdef"))
    there, back = Trials(list("abc"), list("def"), np.ones(3, bool)), Trials(list("def"), list("abc"), np.ones(3, bool))
    ratio = LikelihoodRatio(VARIANCES)
    np.testing.assert_allclose(ratio.scores(table, there), ratio.scores(table, back), rtol=1e-12)


def test_the_likelihood_is_that_of_the_densities(drawn):
    table, utt2spk = drawn(speakers=7, dimension=4)
    statistics = LabelledEmbeddings.of(table, utt2spk).statistics()
    names = np.array([utt2spk[name] for name in table.utterances])
    expected = sum(stacked(table.matrix[names == speaker], MODEL) for speaker in sorted(set(names)))
    assert log_likelihood(MODEL, statistics) == pytest.approx(expected, rel=1e-12)


def test_em_never_lowers_the_likelihood_and_with_a_prior_their_product(drawn):
    table, utt2spk = drawn(speakers=12, dimension=6)
    statistics = LabelledEmbeddings.of(table, utt2spk).statistics()
    count, speakers = statistics.counts.sum(), len(statistics.counts)

    def penalty(model: TwoCovariance, prior: Prior) -> float:
        """Log of the inverse Wishart densities, but for their constants."""
        total = 0.0
        for matrix, share, scale, weight in (
            (model.within, prior.within_share, prior.within_scale, count),
            (model.between, prior.between_share, prior.between_scale, speakers),
        ):
            strength = weight * share / (1 - share)
            total -= strength / 2 * (np.linalg.slogdet(matrix)[1] + scale * np.trace(np.linalg.inv(matrix)))
        return total

    for prior in (Prior(), Prior(0.1, 0.7, 0.3, 1.5)):
        model, _ = initial_model(statistics, 0.5)
        objective = []
        for _ in range(15):
            objective.append(log_likelihood(model, statistics) + penalty(model, prior))
            model = em_step(model, statistics, prior)
        steps = np.diff(objective)
        assert steps.min() > -1e-9 * abs(objective[0])
        assert steps[:3].min() > 1e-4


def test_known_covariances_are_found(drawn):
    between, within = covariance(7, 3), covariance(8, 3)
    table, utt2spk = drawn(speakers=4000, dimension=3, between=between, within=within, offset=2.0)
    statistics = LabelledEmbeddings.of(table, utt2spk).statistics()
    model, prior = initial_model(statistics, None)
    for _ in range(100):
        model = em_step(model, statistics, Prior())
    np.testing.assert_allclose(model.mean, 2.0, atol=0.15)
    np.testing.assert_allclose(model.within, within, atol=0.04 * np.trace(within))
    np.testing.assert_allclose(model.between, between, atol=0.06 * np.trace(between))
    assert max(prior.within_share, prior.between_share) < 0.01
    assert prior.between_scale == pytest.approx(np.trace(between) / 3, rel=0.1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sessions", [1, 3])
def test_normalised_ratios_are_those_of_a_loop(method, sessions):
    rng = np.random.default_rng(5)
    table = turned(rng.normal(size=(8, 4)), [f"u{n}" for n in range(8)])
    cohort = turned(rng.normal(size=(9, 4)), [f"c{n}" for n in range(9)])
    listed = Trials(["x", "y", "x"], ["u6", "u7", "u7"], np.array([True, False, True]))
    models = {"x": [f"u{n}" for n in range(sessions)], "y": [f"u{n}" for n in range(3, 3 + sessions)]}
    enrolled = enrol_models(table, listed, models, mean="embeddings", allow_missing=False)
    ratio = LikelihoodRatio(VARIANCES)
    raw = ratio.scores(enrolled.table, enrolled.trials)
    top = 4 if method == "as-norm" else None
    found = normalise_scores(raw, enrolled.trials, enrolled.table, cohort, method=method, top_n=top, comparison=ratio)
    both = EmbeddingTable(
        [*enrolled.table.utterances, *cohort.utterances],
        np.concatenate([enrolled.table.matrix, cohort.matrix]),
        np.concatenate([enrolled.table.recordings, np.ones(9, int)]),
    )

    def term(score: float, pairs: list[tuple[str, str]]) -> float:
        one, other = zip(*pairs, strict=True)
        scores = np.sort(ratio.scores(both, Trials(one, other, np.ones(len(one), bool))))[-(top or 9) :]
        return (score - scores.mean()) / scores.std()

    for score, model, test, result in zip(raw, enrolled.trials.enrol, enrolled.trials.test, found, strict=True):
        terms = {
            "z-norm": term(score, [(model, member) for member in cohort.utterances]),
            "t-norm": term(score, [(member, test) for member in cohort.utterances]),
        }
        assert result == pytest.approx(terms.get(method, sum(terms.values()) / 2), rel=1e-4)
