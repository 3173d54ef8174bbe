"""What several folders of tests share."""

import random

import numpy as np
import pytest
import torch


def _global_states():
    torch_state = torch.get_rng_state().tolist()
    numpy_state = np.random.get_state()  # noqa: NPY002  the legacy state is what must not be touched
    return torch_state, [np.asarray(part).tolist() for part in numpy_state], random.getstate()


@pytest.fixture
def undrawn():
    """Fail a test that draws from a global random state."""
    before = _global_states()
    yield
    assert _global_states() == before
