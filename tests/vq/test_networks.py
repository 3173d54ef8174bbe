"""From a network to its kernel: distances of captured points are those of signs worked out by hand."""

import numpy as np
import pytest

import metriscope as ms
from vq.capture.networks import NETWORKS, drawn, points, signs_by_hand


@pytest.mark.parametrize("name", NETWORKS)
def test_a_networks_kernel_is_the_number_of_signs_that_differ(name):
    kind, shape = NETWORKS[name]
    network, x = drawn(kind()).eval(), points(12, *shape)
    signs = signs_by_hand(network, x)
    kernel = ms.vq_kernel(ms.capture(network, x, batch_size=4))
    assert np.array_equal(kernel, (signs[:, None] != signs[None]).sum(-1))
