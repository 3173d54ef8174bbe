"""What tests and the examples in docstrings share."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded_example(request: pytest.FixtureRequest) -> None:
    """Start every example in a docstring from the same random weights, so that none fails once in a hundred runs."""
    if isinstance(request.node, pytest.DoctestItem):
        torch.manual_seed(0)
