"""Statistics of layers over shards: merged in any order, they are those of all rows but for rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from metriscope import LayerNovelty
from metriscope.reading.unit_statistics import ClassCovariances, ClassMoments, NearestPoints

CLASSES = 3
orders = st.permutations(range(4))
patient = settings(max_examples=25)


def rows(seed, count=60):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(count, 4, generator=generator).double() * 3 + 100
    return z, torch.randint(CLASSES, (count,), generator=generator)


def merged(kind, z, codes, order):
    """Return the merge of four shards of rows, in some order, begun with a state that has seen nothing."""
    found, size = kind(), len(z) // 4
    for number in order:
        part, some = kind(), slice(number * size, (number + 1) * size)
        part.add(z[some], codes[some])
        found.merge(part)
        found.merge(kind())
    return found


def gathered(kind, z, codes):
    found = kind()
    found.add(z, codes)
    return found


@patient
@given(seed=st.integers(0, 99), order=orders, pooled=st.booleans())
def test_moments_by_class(seed, order, pooled):
    z, codes = rows(seed)
    found, whole = (
        merged(lambda: ClassMoments(CLASSES), z, codes, order),
        gathered(lambda: ClassMoments(CLASSES), z, codes),
    )
    for one, other in zip(found.moments(pooled), whole.moments(pooled), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.correlations(), whole.correlations(), atol=1e-9)
    assert torch.equal(found.extremes, whole.extremes)
    assert torch.equal(found.positive, whole.positive)


@patient
@given(seed=st.integers(0, 99), order=orders, room=st.sampled_from([16, 1000]))
def test_covariances_by_class_or_of_all(seed, order, room):
    z, codes = rows(seed)
    found = merged(lambda: ClassCovariances(CLASSES, room), z, codes, order)
    whole = gathered(lambda: ClassCovariances(CLASSES, room), z, codes)
    assert found.by_class == whole.by_class == (room == 1000)
    for group in (None, *range(CLASSES * found.by_class)):
        for one, other in zip(found.of(group), whole.of(group), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@patient
@given(seed=st.integers(0, 99), order=orders)
def test_the_nearest_points_are_the_same_also_among_equal_scores(seed, order):
    scores = torch.randint(4, (40, 3), generator=torch.Generator().manual_seed(seed)).double()
    whole, found = NearestPoints(), NearestPoints()
    whole.add(scores, 0)
    for number in order:
        part = NearestPoints()
        part.add(scores[10 * number : 10 * number + 10], 10 * number)
        found.merge(part)
    assert found.tuples() == whole.tuples()


@patient
@given(seed=st.integers(0, 99), order=orders)
def test_novelty_fitted_shard_by_shard_scores_alike(seed, order):
    torch.manual_seed(1)
    model, (z, codes) = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), rows(seed)
    x, labels = z.float() - 100, codes.numpy()
    whole = LayerNovelty(model).partial_fit(x, labels)
    found = LayerNovelty(model)
    for number in order:
        some = slice(15 * number, 15 * number + 15)
        found.merge(LayerNovelty(model).partial_fit(x[some], labels[some]))
    np.testing.assert_allclose(found.layer_scores(x), whole.layer_scores(x), rtol=1e-4)


def test_detectors_of_other_layers_do_not_merge():
    x, labels = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), np.arange(20) % 2
    one = LayerNovelty(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))).partial_fit(x, labels)
    other = LayerNovelty(nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU())).partial_fit(x, labels)
    with pytest.raises(ValueError, match="the layers must stay the same"):
        one.merge(other)
