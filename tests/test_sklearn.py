"""All five estimators keep scikit-learn's contract: its checks, its tools, named tables, and files without pickle."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import metriscope as ms
from metriscope.common.errors import StoreError
from metriscope.sklearn import DistanceClassifier, DistanceRegressor, MahalanobisNovelty, PatternTransformer

FRAME, SPECIES = load_iris(return_X_y=True, as_frame=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[SPECIES]
# Few epochs of few steps, because scikit-learn fits hundreds of times.
CHECKED = [
    DistanceClassifier(max_iter=8, batch_size=64),
    DistanceClassifier(None, max_iter=2, batch_size=64),
    DistanceRegressor(max_iter=40, batch_size=64),
    MahalanobisNovelty(),
    MahalanobisNovelty(shrinkage=0.1, contamination=0.25),
    PatternTransformer(n_hyperplanes=16),
    ms.VQMDS(),
    ms.VQMDS(n_components=None),
]
FITTED = [
    DistanceClassifier(4, max_iter=2, class_weight={"setosa": 2.0}).fit(FRAME, NAMES),
    DistanceClassifier((4, 3), max_iter=2).fit(FRAME.to_numpy(), SPECIES),
    DistanceRegressor(4, max_iter=2).fit(FRAME, FRAME[["sepal width (cm)", "petal width (cm)"]]),
    MahalanobisNovelty().fit(FRAME),
    PatternTransformer(n_hyperplanes=16).fit(FRAME),
    ms.VQMDS(2).fit(FRAME - FRAME.mean()),
]


def network():
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3), nn.Tanh())
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=generator)
    return model


@parametrize_with_checks(CHECKED)
def test_every_check_of_scikit_learn_passes(estimator, check):
    # No check is expected to fail. scikit-learn itself skips check_array_api_input unless SCIPY_ARRAY_API is set
    # before anything is imported: it is about other array libraries.
    check(estimator)


@pytest.mark.parametrize("fitted", FITTED, ids=str)
def test_a_clone_has_the_parameters_and_nothing_else(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert set(vars(copy)) == set(copy.get_params())


def outputs(fitted):
    x = FRAME if hasattr(fitted, "feature_names_in_") else FRAME.to_numpy()
    asked = [name for name in ("predict", "predict_proba", "decision_function", "transform") if hasattr(fitted, name)]
    return [getattr(fitted, name)(x) for name in asked]


@pytest.mark.parametrize("fitted", FITTED, ids=str)
def test_a_saved_estimator_comes_back_as_it_was(fitted, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    found = type(fitted).load(tmp_path / "model.safetensors")
    assert found.get_params() == fitted.get_params()
    assert vars(found).keys() == vars(fitted).keys()
    for mine, theirs in zip(outputs(found), outputs(fitted), strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype


@pytest.mark.parametrize("fitted", [FITTED[0], FITTED[3]], ids=str)
def test_a_loaded_estimator_goes_on_as_the_saved_one_would(fitted, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    both = type(fitted).load(tmp_path / "model.safetensors"), type(fitted).load(tmp_path / "model.safetensors")
    answers = [outputs(one.partial_fit(FRAME, NAMES if one is not FITTED[3] else None)) for one in both]
    for mine, theirs in zip(*answers, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_file_that_is_no_such_estimator_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(StoreError, match=r"cannot load the estimator from .*: missing"):
        DistanceClassifier.load(path)
    FITTED[0].save(path)
    with pytest.raises(StoreError, match="the file holds a DistanceClassifier, expected a DistanceRegressor"):
        DistanceRegressor.load(path)
    path.write_bytes(b"not safetensors")
    with pytest.raises(StoreError, match="cannot load the estimator"):
        DistanceClassifier.load(path)


def test_what_is_no_number_word_or_array_is_not_saved(tmp_path):
    model = DistanceClassifier(4, max_iter=1, random_state=np.random.RandomState(0)).fit(FRAME, NAMES)
    with pytest.raises(ValueError, match="random_state must be a number, a word or an array to be saved"):
        model.save(tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_words_are_labels_and_columns_have_names():
    model = FITTED[0]
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert set(model.predict(FRAME)) <= set(model.classes_)
    assert model.feature_names_in_.tolist() == list(FRAME.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(FRAME.rename(columns={"sepal width (cm)": "other"}))


@pytest.mark.parametrize(
    ("transformer", "names"),
    [
        (PatternTransformer(n_hyperplanes=3), [f"patterntransformer{i}" for i in range(3)]),
        (ms.VQMDS(2), ["vqmds0", "vqmds1"]),
    ],
    ids=str,
)
def test_transformers_give_tables_if_asked(transformer, names):
    centered = FRAME - FRAME.mean()
    made = clone(transformer).set_output(transform="pandas")
    for found in (made.fit_transform(centered), made.transform(centered)):
        assert isinstance(found, pd.DataFrame)
        assert list(found.columns) == names == made.get_feature_names_out().tolist()
        assert found.index.equals(FRAME.index)


def test_a_grid_search_over_a_pipeline_finds_the_better_settings():
    pipeline = make_pipeline(PatternTransformer(), LogisticRegression())
    # One hyperplane has two sides: it cannot tell three species apart.
    found = GridSearchCV(pipeline, {"patterntransformer__n_hyperplanes": [1, 64]}, cv=3).fit(FRAME, NAMES)
    assert found.best_params_ == {"patterntransformer__n_hyperplanes": 64}
    assert found.best_score_ > 0.85
    found = GridSearchCV(DistanceClassifier(8, max_iter=10), {"lr": [1e-9, 1e-2]}, cv=3).fit(FRAME, NAMES)
    assert found.best_params_ == {"lr": 1e-2}


def test_random_hyperplanes_pass_between_the_points():
    # Each passes near a point of the data, so hardly any has all points on one side.
    signs = PatternTransformer().fit_transform(FRAME * [1, 100, 0.01, 1] + 7)
    assert set(np.unique(signs)) == {-1, 1}
    assert (np.abs(signs.mean(0)) == 1).mean() < 0.1


def test_signs_of_a_network_are_those_that_capture_finds(tmp_path):
    model, x = network(), FRAME.to_numpy()
    made = PatternTransformer(model).fit(x)
    np.testing.assert_array_equal(made.transform(x), ms.capture(model, x).signs())
    assert made.patterns(x).width == 9 == len(made.get_feature_names_out())
    assert PatternTransformer(model, layers="1").fit(x).transform(x).shape == (150, 6)
    made.save(tmp_path / "patterns.safetensors")
    found = PatternTransformer.load(tmp_path / "patterns.safetensors", network=model)
    np.testing.assert_array_equal(found.transform(x), made.transform(x))
    with pytest.raises(ValueError, match=r"network must be a torch\.nn\.Module, got 'model'"):
        PatternTransformer("model").fit(x)


def test_an_array_is_read_as_pre_activations():
    x = (FRAME - FRAME.mean()).to_numpy(np.float32)
    values, patterns = network()[0](torch.tensor(x)).detach().numpy(), ms.capture(network()[:2], x)
    by_array, by_patterns = ms.VQMDS(2).fit(values), ms.VQMDS(2).fit(patterns)
    np.testing.assert_allclose(by_array.embedding_, by_patterns.embedding_, atol=1e-12)
    np.testing.assert_allclose(by_array.transform(values[:5]), by_array.embedding_[:5], atol=1e-12)


def test_components_of_an_array_beyond_the_rank_are_zero():
    # Two patterns at distance 2 of four points: one component, ± sqrt(2) / 2, as squares of distances are distances.
    found = ms.VQMDS(3).fit([[1.0, 1.0], [-1.0, -1.0], [2.0, 3.0], [-1.0, -2.0]])
    np.testing.assert_allclose(np.abs(found.embedding_), [[np.sqrt(2) / 2, 0, 0]] * 4, atol=1e-12)
    np.testing.assert_allclose(found.eigenvalues_, [2, 0, 0], atol=1e-12)
    assert np.isnan(found.eigenvectors_[:, 1:]).all()
    assert ms.VQMDS(2).fit_transform(np.ones((3, 2))).tolist() == [[0, 0]] * 3
