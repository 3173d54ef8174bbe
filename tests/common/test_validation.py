"""What the door lets in, what it makes of it, and what it says to the rest."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from metriscope.common import validation
from metriscope.common.validation import (
    broadcast_axes,
    check_shape,
    covariance,
    described,
    integer,
    label_array,
    number,
    real_array,
    real_tensor,
    require_tensors,
    same_precision,
    whole_array,
)

REAL = arrays.arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_]),
    arrays.array_shapes(min_dims=1, max_dims=3, max_side=4),
)


@given(values=REAL, axis=st.integers(0, 2))
def test_finite_numbers_come_out_as_they_went_in_whatever_their_strides(values, axis):
    if not np.isfinite(values).all():
        return
    turned = np.flip(values, axis % values.ndim)
    for found in (real_array(turned, "x"), real_tensor(turned, "x").numpy()):
        assert found.flags["C_CONTIGUOUS"]
        np.testing.assert_array_equal(found, turned)
    assert real_array(turned, "x").dtype == np.float64


@given(values=arrays.arrays(np.float64, arrays.array_shapes(max_dims=3, max_side=4)))
def test_what_is_not_finite_is_counted_and_its_first_place_named(values):
    bad = ~np.isfinite(values)
    if not bad.any():
        real_array(values, "x")
        return
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    sentence = (
        f"x must be finite, got {bad.sum()} NaN or infinite of {values.size} entries, "
        f"the first at {place if len(place) > 1 else place[0]}"
    )
    for call in (real_array, real_tensor):
        with pytest.raises(ValueError, match="must be finite") as caught:
            call(values, "x")
        assert str(caught.value) == sentence


def test_the_input_is_never_written_to_and_read_only_memory_is_fine():
    x = np.arange(6.0).reshape(2, 3)
    x.flags.writeable = False
    real_tensor(x, "x").add_(1)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_tensor_keeps_its_precision_device_and_gradient():
    x = torch.ones(2, dtype=torch.float16, requires_grad=True)
    found = real_tensor(x, "x")
    assert found.dtype == torch.float16
    found.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_a_table_is_an_array_and_an_index_of_its_own_does_not_matter():
    table = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4]}, index=["x", "y"])
    assert real_array(table, "x", "points features").tolist() == [[1, 3], [2, 4]]
    with pytest.raises(ValueError, match="x must hold real numbers, got objects"):
        real_array(table.assign(b=["u", "v"]), "x")


@pytest.mark.parametrize(
    ("shape", "axes", "sizes", "sentence"),
    [
        ((3,), "points features", {}, "x must have the shape (points, features), got (3,)"),
        ((3, 2), "points features", {"features": 4}, "x must have the shape (points, 4), got (3, 2)"),
        ((3, 2), "features features", {}, "x must have the shape (features, features), got (3, 2)"),
        ((3, 2), "points 3", {}, "x must have the shape (points, 3), got (3, 2)"),
        ((3,), "* units features", {}, "x must have the shape (..., units, features), got (3,)"),
        ((), "points ...", {}, "x must have the shape (points, ...), got ()"),
        ((2,), "3", {}, "x must have the shape (3,), got (2,)"),
        ((0, 2), "points features", {}, "x must hold at least one number, got the shape (0, 2)"),
    ],
)
def test_a_shape_that_does_not_fit_is_told_with_the_names_of_its_axes(shape, axes, sizes, sentence):
    with pytest.raises(ValueError, match="x must") as caught:
        check_shape(shape, "x", axes, sizes, empty=False)
    assert str(caught.value) == sentence


def test_sizes_are_remembered_from_one_array_to_the_next_but_not_from_one_refused():
    sizes = {}
    check_shape((3, 2), "x", "points features", sizes, empty=False)
    assert sizes == {"points": 3, "features": 2}
    with pytest.raises(ValueError, match="x must have"):
        check_shape((5, 9), "x", "units features", sizes, empty=False)
    assert sizes == {"points": 3, "features": 2}


@given(
    st.lists(st.lists(st.integers(1, 3), max_size=3), min_size=2, max_size=3),
)
def test_axes_in_front_broadcast_where_numpy_broadcasts_them(fronts):
    tensors = {f"t{i}": torch.zeros(*front, 2) for i, front in enumerate(fronts)}
    try:
        np.broadcast_shapes(*map(tuple, fronts))
    except ValueError:
        with pytest.raises(ValueError, match=r"the axes in front must be the same or 1, got .* of t0"):
            broadcast_axes(1, **tensors)
    else:
        broadcast_axes(1, **tensors)


def test_a_covariance_is_square_symmetric_and_in_float64():
    assert covariance(np.eye(2, dtype=np.float32)).dtype == torch.float64
    assert covariance(torch.eye(2).expand(4, 2, 2)).shape == (4, 2, 2)
    with pytest.raises(ValueError, match="cov must be symmetric, got entries that differ from their mirror by up to 1"):
        covariance([[2.0, 1.0], [0.0, 2.0]])


def test_whole_numbers_may_be_floats_that_are_whole():
    assert whole_array(torch.tensor([1.0, 2.0]), "y").tolist() == [1, 2]
    for value, sentence in [
        ([0.5], "y must hold whole numbers, got for example 0.5"),
        ([True], "y must hold whole numbers, got booleans"),
        ([-1], "y must hold whole numbers of at least 0 and below 2^63, got -1"),
        ([1e300], "y must hold whole numbers of at least 0 and below 2^63, got 1e+300"),
        ([math.nan], "y must be finite, got 1 NaN or infinite of 1 entries, the first at 0"),
    ]:
        with pytest.raises(ValueError, match="y must") as caught:
            whole_array(value, "y")
        assert str(caught.value) == sentence


def test_labels_are_numbers_or_words():
    assert label_array(pd.Series(["u", "v"]), "labels", 2).tolist() == ["u", "v"]
    assert label_array([True, False], "labels", 2).tolist() == [True, False]
    with pytest.raises(ValueError, match="labels must hold numbers or words, got objects"):
        label_array(np.array([None, "v"], object), "labels", 2)
    with pytest.raises(ValueError, match=r"labels must have the shape \(3,\), got \(2,\)"):
        label_array([1, 2], "labels", 3)


def test_numbers_lie_in_their_interval_with_or_without_its_ends():
    assert number(1, "x", "(0, 1]") == 1.0
    assert number(np.float32(0.5), "x", "[0, 1)") == 0.5
    assert number(torch.tensor(0.5), "x") == 0.5
    for value, interval in [(0, "(0, 1]"), (1, "[0, 1)"), (math.inf, "(0, inf)"), (math.nan, "[0, inf]")]:
        with pytest.raises(ValueError, match="x must lie in"):
            number(value, "x", interval)
    with pytest.raises(ValueError, match="x must be a finite number, got -inf"):
        number(-math.inf, "x")


def test_integers_have_bounds_and_are_no_booleans():
    assert integer(np.uint8(3), "k") == integer(torch.tensor(3), "k") == 3
    for value, bounds, sentence in [
        (0, {}, "k must be a positive integer, got 0"),
        (True, {}, "k must be a positive integer, got True"),
        (4, {"most": 3}, "k must be an integer from 1 to 3, got 4"),
        (-1, {"least": 0}, "k must be an integer of at least 0, got -1"),
        (1.0, {"least": None}, "k must be an integer, got 1.0"),
    ]:
        with pytest.raises(ValueError, match="k must be") as caught:
            integer(value, "k", **bounds)
        assert str(caught.value) == sentence


def test_long_values_are_told_by_their_kind_or_cut():
    assert described(list(range(1000))) == "a list"
    assert described("x" * 1000).endswith("...")
    assert described(torch.zeros(2, 3)) == "a float32 tensor of shape (2, 3)"
    assert described(torch.nn.Linear) == "the class Linear"


def test_forward_passes_are_asked_for_tensors_but_their_values_are_not_read():
    require_tensors(x=torch.tensor([math.nan]), y=torch.empty(3, device="meta"))
    with pytest.raises(ValueError, match=r"x must be a torch\.Tensor, got a float64 array of shape \(2,\)"):
        require_tensors(x=np.zeros(2))


def test_precisions_meet_in_the_widest_and_equal_ones_are_left_alone():
    x, y = torch.zeros(2), torch.zeros(2, dtype=torch.float64)
    assert same_precision(x, x)[0] is x
    assert {one.dtype for one in same_precision(x, y)} == {torch.float64}
    assert same_precision(torch.zeros(2, dtype=torch.int64))[0].dtype == torch.get_default_dtype()


def test_transformed_tensors_are_let_through_unread():
    weight = torch.eye(2)
    found = torch.func.vmap(lambda x: real_tensor(x, "x", "features") @ weight)(torch.full((3, 2), math.nan))
    assert found.isnan().all()


def test_every_public_name_is_there():
    assert all(hasattr(validation, name) for name in validation.__all__)
