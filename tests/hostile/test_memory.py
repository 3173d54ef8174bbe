"""Peak memory of a fresh process, as benchmarks/memory.py measures it."""

import runpy
from pathlib import Path

import pytest

MEMORY = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "memory.py"))
GB = 1e9 / 2**20  # in MiB


def test_alignment_of_a_million_points_of_256_units_takes_less_than_one_and_a_half_gigabytes():
    points, make, call = MEMORY["ROWS"]["`alignment`"]
    assert points[-1] == 1_000_000
    above, whole = MEMORY["peaks"](points[-1], make, call)
    assert whole < 1.5 * GB
    assert above < 0.5 * GB


@pytest.mark.slow
def test_a_kernel_of_all_pairs_is_seen():
    # 8,000 x 8,000 numbers of 8 bytes: the measurement notices what it should.
    above, _ = MEMORY["peaks"](8_000, "rng.random((n, 4))", "np.abs(given @ given.T)")
    assert above > 0.5 * GB
