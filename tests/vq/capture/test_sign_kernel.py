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
