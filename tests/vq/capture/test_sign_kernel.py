"""Generated code packs signs as NumPy does, and sees every value that is not finite."""

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import metriscope as ms
from metriscope.vq.capture.sign_kernel import pack_signs

widths = st.sampled_from((1, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100))


@given(
    st.data(), widths, st.integers(1, 5), st.sampled_from((np.float32, np.float64)), st.sampled_from((0.0, -0.5, 6.0))
)
def test_signs_are_packed_as_numpy_packs_them(data, units, rows, dtype, level):
    numbers = st.floats(width=32) | st.sampled_from((0.0, -0.0, level))
    values = data.draw(arrays(dtype, (rows, units), elements=numbers))
    packed, finite = pack_signs(values, level)
    np.testing.assert_array_equal(packed, np.packbits(values >= level, axis=1))
    assert finite == np.isfinite(values).all()


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("shape", [(1, 40_000), (3, 20_001), (1_000, 33), (40_000, 1)])
def test_threads_pack_what_one_thread_packs_also_into_columns_of_a_larger_array(shape, three_threads):
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = np.packbits(values >= 0.25, axis=1)
    rows = np.full((shape[0], expected.shape[1] + 3), 7, np.uint8)
    packed, finite = pack_signs(values, 0.25, rows[:, 1:-2])
    assert finite
    assert np.shares_memory(packed, rows)
    np.testing.assert_array_equal(rows[:, 1:-2], expected)
    assert (rows[:, [0, -2, -1]] == 7).all()


@pytest.mark.parametrize("row", [0, 499, 999])
def test_every_thread_sees_values_that_are_not_finite(row, three_threads):
    values = np.ones((1_000, 64))
    assert pack_signs(values)[1]
    values[row, 63] = np.inf
    assert not pack_signs(values)[1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("units", [5, 16, 40])
def test_one_value_that_is_not_finite_is_seen_wherever_it_is(bad, units):
    for place in range(3 * units):
        values = np.ones((3, units), np.float32)
        values.ravel()[place] = bad
        assert not pack_signs(values)[1]


def test_a_capture_is_the_same_without_generated_code(tmp_path):
    script = (
        "import sys, numpy as np, torch, metriscope as ms\n"
        "torch.manual_seed(0)\n"
        "net = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(),\n"
        "    torch.nn.Linear(108, 21), torch.nn.GELU())\n"
        "np.save(sys.argv[1], ms.capture(net, torch.randn(50, 1, 8, 8)).signs())\n"
    )
    found = []
    for plain in ("0", "1"):
        path = tmp_path / f"{plain}.npy"
        environment = {**os.environ, "METRISCOPE_PLAIN_KERNELS": plain}
        subprocess.run([sys.executable, "-c", script, str(path)], check=True, env=environment)
        found.append(np.load(path))
    np.testing.assert_array_equal(*found)


def test_parts_of_any_width_stand_side_by_side():
    torch.manual_seed(0)
    for widths in ((128, 128), (128, 8), (24, 3, 16), (5,)):
        layers = [module for a, b in pairwise((4, *widths)) for module in (torch.nn.Linear(a, b), torch.nn.ReLU())]
        net, x = torch.nn.Sequential(*layers), torch.randn(37, 4)
        p, signs = ms.capture(net, x, batch_size=10), []
        with torch.no_grad():
            for module in net:
                if isinstance(module, torch.nn.ReLU):
                    signs.append(np.where(x.numpy() >= 0, 1, -1))
                x = module(x)
        np.testing.assert_array_equal(p.signs(), np.concatenate(signs, axis=1))


def test_modules_that_are_read_at_their_input_are_read_as_in_a_pass_of_their_own():
    torch.manual_seed(0)
    twice = torch.nn.Tanh()
    body = [torch.nn.Linear(4, 6), torch.nn.ReLU(inplace=True), torch.nn.Linear(6, 6), twice, torch.nn.Linear(6, 6)]
    net = torch.nn.Sequential(*body, twice, torch.nn.Linear(6, 5), torch.nn.Hardtanh(-0.1, 0.2))
    x = torch.randn(29, 4)
    at_once = ms.capture(net, x, batch_size=29)
    for batch_size in (1, 4, 28):
        np.testing.assert_array_equal(ms.capture(net, x, batch_size=batch_size).packed, at_once.packed)
    x[27] = torch.nan
    with pytest.raises(ValueError, match=r"layer '1' \(relu\) has pre-activations that are NaN"):
        ms.capture(net, x, batch_size=4)
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in net.modules())
