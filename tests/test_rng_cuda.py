"""The CUDA generator as pure functions: its authors' reference vectors, known numbers of PyTorch, distributions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from metriscope.rng import cuda_advance, cuda_integers, cuda_normal, cuda_uniform, philox

# From the known-answer tests of Random123 (Salmon et al. 2011): counter, key, output.
VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
SEEDS = st.integers(0, 2**64 - 1)
DRAWS = [cuda_uniform, cuda_normal, lambda *where: cuda_integers(*where, high=1_000)]


def _words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "output"), VECTORS)
def test_philox_gives_the_reference_vectors_of_its_authors(counter, key, output):
    found = philox(np.array(_words(counter), dtype=np.uint32), tuple(_words(key)))
    assert found.tolist() == _words(output)


def test_philox_works_on_many_counters_at_once():
    counters = np.array([_words(counter) for counter, key, _ in VECTORS[:1] * 3], dtype=np.uint32)
    assert philox(counters, (0, 0)).tolist() == [_words(VECTORS[0][2])] * 3


# What `torch.cuda.manual_seed(0)` is followed by in many public notebooks: torch.rand and torch.randn on the GPU.
def test_the_first_numbers_are_those_that_gpus_print_for_seed_zero():
    assert cuda_uniform(3, 0).tolist() == pytest.approx([0.3990, 0.5167, 0.0249], abs=5e-5)
    assert cuda_normal(3, 0).tolist() == pytest.approx([-0.9247, -0.4253, -2.6438], abs=5e-5)


@pytest.mark.parametrize("draw", DRAWS)
@given(seed=SEEDS, start=st.integers(0, 1_000), count=st.integers(1, 700))
def test_a_number_does_not_depend_on_how_many_follow_it(draw, seed, start, count):
    whole = draw(count, seed, 4 * start)
    assert torch.equal(draw(count // 2, seed, 4 * start), whole[: count // 2])


@pytest.mark.parametrize("draw", DRAWS)
def test_a_thread_gives_four_numbers_and_then_takes_the_next_counter(draw):
    threads, passes = 256, 3
    whole = draw(4 * threads * passes, 47, 8, threads)
    each = whole.reshape(passes, 4, threads)
    for step in range(passes):
        assert torch.equal(each[step].flatten(), draw(4 * threads, 47, 8 + 4 * step, threads))
    # With at least as many threads as numbers, every number is the first of its thread.
    assert torch.equal(each[0, 0], draw(threads, 47, 8))


@given(count=st.integers(0, 10**7), threads=st.one_of(st.none(), st.integers(1, 2_000).map(lambda n: 256 * n)))
def test_the_offset_advances_by_four_per_pass(count, threads):
    grid = threads if threads is not None and threads < count else max(count, 1)
    expected = 4 * int(np.ceil(count / (4 * grid))) if count else 0
    assert cuda_advance(count, threads) == expected


@pytest.mark.parametrize("threads", [None, 256 * 82 * 6])
def test_the_numbers_have_the_distributions_they_should(threads):
    count = 600_000
    uniform, normal = cuda_uniform(count, 47, 0, threads), cuda_normal(count, 47, 0, threads)
    assert uniform.dtype == normal.dtype == torch.float32
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert stats.kstest(uniform.numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(normal.numpy(), "norm").pvalue > 1e-3
    integers = cuda_integers(count, 47, 0, threads, high=7)
    assert integers.dtype == torch.int64
    assert stats.chisquare(np.bincount(integers.numpy(), minlength=7)).pvalue > 1e-3


@given(seed=SEEDS, low=st.floats(-100, 100), width=st.floats(0.001, 100))
def test_a_uniform_number_reaches_low_and_never_high(seed, low, width):
    found = cuda_uniform(2_000, seed, 0, low=low, high=low + width)
    assert found.min() >= np.float32(low)
    assert found.max() < np.float32(low + width)


def test_both_halves_of_the_seed_count():
    assert not torch.equal(cuda_uniform(4, 1), cuda_uniform(4, 1 + 2**32))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_numbers():
    cuda = torch.cuda.get_device_properties(0)
    threads = cuda.multi_processor_count * (cuda.max_threads_per_multi_processor // 256) * 256
    for count in (1_000, 5 * threads + 3):
        torch.cuda.manual_seed(47)
        drawn = [torch.rand(count, device="cuda"), torch.randn(count, device="cuda")]
        offset = cuda_advance(count, threads)
        assert torch.allclose(drawn[0].cpu(), cuda_uniform(count, 47, 0, threads), atol=1e-6)
        assert torch.allclose(drawn[1].cpu(), cuda_normal(count, 47, offset, threads), atol=1e-5)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: cuda_uniform(-1, 0), "count"),
        (lambda: cuda_uniform(4, -1), "seed"),
        (lambda: cuda_uniform(4, 2**64), "less than 2"),
        (lambda: cuda_normal(4, 0, 3), "multiple of 4"),
        (lambda: cuda_normal(4, 0, 0, 0), "threads"),
        (lambda: cuda_integers(4, 0, high=0), "high"),
        (lambda: cuda_integers(4, 0, high=2**32), "less than 2"),
        (lambda: cuda_uniform(4, 0, low=float("nan")), "low"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(call, match):
    with pytest.raises(ValueError, match=match):
        call()
