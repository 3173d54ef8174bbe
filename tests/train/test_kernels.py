"""The innermost sums, by vectors of every width and by plain loops, beside the same sums in numpy and float64."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from numba.core import config
from numba.core.codegen import JITCPUCodegen

from metriscope.train import kernels, simd
from metriscope.train.sparse_points import GROUP, PADDING, pack

EPS = np.finfo(np.float32).eps
# Vectors wider than the processor's are split by the compiler, so that all widths run everywhere.
KINDS = {
    "plain": kernels.plain,
    **{
        "x".join(map(str, shape)): lambda shape=shape: kernels.vectors(*shape)
        for shape in [(16, 2, 8), (8, 2, 4), (4, 2, 4), (8, 1, 8), (4, 1, 2)]
    },
}
kinds = pytest.mark.parametrize("kind", KINDS)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@kinds
def test_a_product_with_packed_points_is_numpys(kind):
    _, _, width, accumulate, _ = KINDS[kind]()

    @njit
    def multiply(side, dense, out):
        _, starts, index, values, rows = side
        for group in range(len(starts) - 1):
            for column in range(0, out.shape[1], width):
                accumulate(out, dense, (rows, index, values), (group, starts[group], starts[group + 1], column))

    x = drawn(24, 40) * (drawn(24, 40, seed=1) > 0)
    packed, weight = pack(x, gradient=False), drawn(40, 2 * PADDING, seed=2)
    out = np.ones((24, 2 * PADDING), np.float32)
    multiply(packed.forward.arrays, weight, out)
    points = x[packed.order].astype(np.float64)
    # A sum of n terms is right to n eps of their sizes.
    error = (1 + x.shape[1]) * EPS * (1 + np.abs(points) @ np.abs(weight))
    assert (np.abs(out - (1 + points @ weight)) <= error).all()


@kinds
def test_points_are_pulled_to_prototypes_as_the_formula_says(kind):
    _, lanes, _, _, attract = KINDS[kind]()

    @njit
    def pull_all(points, prototypes, results):
        for column in range(0, points.shape[1], lanes):
            attract(points, prototypes, results, (len(prototypes[0]), column))

    points, mu, weight = drawn(GROUP, PADDING), drawn(5, PADDING, seed=1), drawn(5, PADDING, seed=2)
    share, before = drawn(5, GROUP, seed=3), drawn(5, PADDING, seed=4)
    pull, of_mu, of_alpha = np.full_like(points, np.nan), before.copy(), before.copy()
    pull_all(points, (mu, weight, share), (pull, of_mu, of_alpha))
    difference = points.astype(np.float64) - mu[:, None]
    t = share[:, :, None] * difference
    # Each term is made of four rounded numbers, and of the sum as many roundings come as there are terms.
    for found, start, terms, axis in (
        (pull, 0, weight[:, None] * t, 0),
        (of_mu, before, t, 1),
        (of_alpha, before, t * difference, 1),
    ):
        error = (4 + terms.shape[axis]) * EPS * (np.abs(terms).sum(axis) + np.abs(start))
        assert (np.abs(found - (start + terms.sum(axis))) <= error).all()


@pytest.mark.parametrize("value", ["1", "yes"])
def test_a_word_in_the_environment_switches_vector_code_off(monkeypatch, value):
    monkeypatch.setenv("METRISCOPE_PLAIN_KERNELS", value)
    assert kernels.chosen().name == "plain"


@pytest.mark.parametrize("value", ["", "0"])
def test_vector_code_is_used_unless_it_is_switched_off(monkeypatch, value):
    monkeypatch.setenv("METRISCOPE_PLAIN_KERNELS", value)
    shape = simd.shape_for(simd.target_features())
    assert kernels.chosen()[:3] == ("x".join(map(str, shape)), shape.lanes, shape.width)


def missing(*_):
    raise ImportError("numba has no cgutils")


@pytest.mark.parametrize(
    ("name", "broken", "reason"),
    [
        ("target_features", missing, "ImportError: numba has no cgutils"),
        ("_emitted", lambda *_: missing, "ImportError: numba has no cgutils"),
        ("_accumulate", lambda code, data, stride: code.row(None, None), r".*Error: .*"),
        ("_attract", lambda code, data, stride: None, "RuntimeError: kernels for the vector shape .* give wrong sums"),
    ],
    ids=["not imported", "not written", "not compiled", "wrong"],
)
def test_plain_loops_are_used_where_vector_code_cannot_be_built(monkeypatch, name, broken, reason):
    monkeypatch.delenv("METRISCOPE_PLAIN_KERNELS", raising=False)
    monkeypatch.setattr(simd, name, broken)
    with pytest.warns(RuntimeWarning, match=rf"vector code could not be built \({reason}\); slower plain loops"):
        assert kernels.chosen().name == "plain"


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({"CPU_NAME": "generic", "CPU_FEATURES": ""}, (4, 2, 4)),
        ({"ENABLE_AVX": 0}, (4, 2, 4)),
        ({"CPU_FEATURES": "+sse2,+avx"}, (8, 2, 4)),
        ({"CPU_FEATURES": "+avx,+avx2,+fma,-avx512f"}, (8, 2, 4)),
        ({"CPU_FEATURES": "+avx,+avx2,+fma,+avx512f"}, (16, 2, 8)),
    ],
    ids=str,
)
def test_the_width_of_vectors_follows_numbas_target_and_not_the_host(monkeypatch, settings, shape):
    # Nothing is compiled, so that a target may be named which this processor is not.
    for name, value in settings.items():
        monkeypatch.setattr(config, name, value)
    assert simd.shape_for(simd.target_features(JITCPUCodegen("another target"))) == shape


def test_numbas_own_target_is_what_its_settings_name():
    assert simd.target_features() == simd.target_features(JITCPUCodegen("the same target"))


def test_generated_machine_code_is_behind_two_doors():
    # simd.py uses the internals of numba and may only be imported by kernels.py; sign_kernel.py uses llvmlite alone.
    package = Path(kernels.__file__).parents[1]
    users = {
        path.name
        for path in package.rglob("*.py")
        if "llvmlite" in (text := path.read_text()) or re.search(r"^ *(from|import) .*\bsimd\b", text, re.MULTILINE)
    }
    assert users == {"kernels.py", "simd.py", "sign_kernel.py"}
    assert "numba" not in re.findall(
        r"^ *(?:from|import) (\w+)", (package / "vq/capture/sign_kernel.py").read_text(), re.MULTILINE
    )


def test_the_classifiers_use_the_kernels_that_were_chosen():
    from metriscope.train import classifier_passes

    assert kernels.chosen().name == classifier_passes.KERNELS
