"""What several folders of tests share."""

import random

import numpy as np
import pytest
import torch
from hypothesis import settings

# A busy machine is no failure: no test has a time limit, and hypothesis would give every example 0.2 seconds.
settings.register_profile("metriscope", deadline=None)
settings.load_profile("metriscope")


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run the slow tests too")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--all"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="takes minutes: ./test --all runs it"))


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
