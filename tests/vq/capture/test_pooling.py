"""The bits of a max pool say which element of each window is the first largest one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from metriscope.vq.capture.capture import capture
from vq.capture.networks import flat, points


def first_largest(plane, starts, kernel, dilation):
    """Return the place, among a window's elements in order, of the first largest that lies in the input."""
    best, place = -np.inf, -1
    for number, steps in enumerate(product(*map(range, kernel))):
        at = tuple(start + step * gap for start, step, gap in zip(starts, steps, dilation, strict=True))
        inside = all(0 <= one < size for one, size in zip(at, plane.shape, strict=True))
        if inside and plane[at] > best:
            best, place = plane[at], number
    return place


def winners_by_hand(x, out, geometry):
    kernel, stride, padding, dilation = geometry
    bits = np.zeros((*out, int(np.prod(kernel))), bool)
    for place in product(*map(range, out)):
        starts = [at * step - pad for at, step, pad in zip(place[2:], stride, padding, strict=True)]
        bits[(*place, first_largest(x[place[:2]].numpy(), starts, kernel, dilation))] = True
    return bits


@st.composite
def pools(draw):
    axes = draw(st.integers(1, 2))
    kernel = tuple(draw(st.integers(1, 4)) for _ in range(axes))
    stride = tuple(draw(st.integers(1, 3)) for _ in range(axes))
    padding = tuple(draw(st.integers(0, size // 2)) for size in kernel)
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(axes))
    sizes = tuple(draw(st.integers(1, 6)) for _ in range(axes))
    spans = (gap * (size - 1) + 1 for gap, size in zip(dilation, kernel, strict=True))
    assume(all(size + 2 * pad >= span for size, pad, span in zip(sizes, padding, spans, strict=True)))
    values = draw(st.lists(st.integers(0, 3), min_size=4 * int(np.prod(sizes)), max_size=4 * int(np.prod(sizes))))
    x = torch.tensor(values, dtype=torch.float32).reshape(2, 2, *sizes)
    return x, (kernel, stride, padding, dilation), draw(st.booleans())


@given(case=pools())
def test_of_equal_elements_the_first_wins(case):
    x, geometry, ceil_mode = case
    module = (nn.MaxPool1d, nn.MaxPool2d)[x.ndim - 3](*geometry, ceil_mode=ceil_mode)
    # A window may lie in the padding with every element, and has no winner then.
    assume(module(x).isfinite().all())
    p, out = capture(module, x), module(x).shape
    assert (p.signs() == flat(torch.from_numpy(winners_by_hand(x, out, geometry)))).all()
    assert p.layers[0].bits_per_unit == np.prod(geometry[0])


def test_a_window_wider_than_its_input_tells_its_elements_apart():
    x = torch.tensor([[[[0.0, 1.0], [2.0, 0.0]]]])
    p = capture(nn.MaxPool2d(3, padding=1, stride=1), x)
    # The largest value stands in the second row and first column; the four windows begin at (-1, -1) to (0, 0).
    places = p.signs().reshape(4, 9).argmax(1)
    assert places.tolist() == [2 * 3 + 1, 2 * 3 + 0, 1 * 3 + 1, 1 * 3 + 0]


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2),
        nn.MaxPool2d(2, return_indices=True),
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.max_pool2d(x, kernel_size=(2, 2), stride=2),
        lambda x: F.max_pool2d_with_indices(x, 2),
        lambda x: torch.max_pool2d(x, 2),
        nn.AdaptiveMaxPool2d((2, 3)),
        nn.AdaptiveMaxPool2d((2, 3), return_indices=True),
    ],
)
def test_a_pool_has_the_same_bits_however_it_is_written_and_returns_what_it_would(pool):
    class Pools(nn.Module):
        def forward(self, x):
            self.result = pool(x)
            return self.result

    x, network = points(5, 3, 4, 6), Pools()
    geometry = ((2, 2), (2, 2), (0, 0), (1, 1))
    expected = winners_by_hand(x, (5, 3, 2, 3), geometry)
    assert (capture(network, x).signs() == flat(torch.from_numpy(expected))).all()
    ours, plain = network.result, pool(x)
    assert isinstance(ours, tuple) == isinstance(plain, tuple)
    pairs = zip(ours, plain, strict=True) if isinstance(plain, tuple) else [(ours, plain)]
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_pool_over_volumes_counts_its_elements_in_row_major_order():
    x = torch.zeros(1, 1, 2, 2, 2)
    x[0, 0, 1, 0, 1] = 1.0
    assert capture(nn.MaxPool3d(2), x).signs().argmax() == 0b101


@pytest.mark.parametrize(("size", "outputs"), [(7, 3), (5, 2), (6, 4), (5, 5), (4, 1)])
def test_windows_of_an_adaptive_pool_begin_where_pytorch_begins_them(size, outputs):
    x = points(4, 2, size)
    p = capture(nn.AdaptiveMaxPool1d(outputs), x)
    starts = [at * size // outputs for at in range(outputs)]
    ends = [-(-(at + 1) * size // outputs) for at in range(outputs)]
    longest = max(b - a for a, b in zip(starts, ends, strict=True))
    bits = np.zeros((4, 2, outputs, longest), bool)
    for n, c, at in product(range(4), range(2), range(outputs)):
        bits[n, c, at, int(x[n, c, starts[at] : ends[at]].argmax())] = True
    assert (p.signs() == flat(torch.from_numpy(bits))).all()


def test_any_two_winners_are_equally_far_apart():
    signs = capture(nn.MaxPool1d(5), torch.eye(5)[:, None]).signs().astype(int)
    distances = (signs[:, None] != signs).sum(-1)
    assert (distances == 2 * (1 - np.eye(5))).all()


def test_nan_and_infinity_in_a_pool_are_refused():
    for bad in (torch.nan, torch.inf):
        x = points(3, 1, 4)
        x[1, 0, 2] = bad
        with pytest.raises(ValueError, match="layer 'max_pool' \\(max_pool\\) has pre-activations that are NaN or inf"):
            capture(nn.MaxPool1d(2), x)
