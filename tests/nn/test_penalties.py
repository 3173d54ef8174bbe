"""Penalties: known values at known matrices, gradients, and networks that are left as they were."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from metriscope.nn import (
    PENALTIES,
    AbsReLU,
    Penalty,
    double_soft_orthogonality,
    hyperplane_spread,
    soft_orthogonality,
    srip,
    whitening,
)
from metriscope.rng import stream

sizes = st.integers(1, 6)


def matrix(rows: int, columns: int, name: str = "w") -> torch.Tensor:
    return torch.randn(rows, columns, generator=stream(rows * 10 + columns, name), dtype=torch.float64)


@given(sizes, sizes)
def test_orthogonal_rows_or_columns_cost_nothing(rows, columns):
    weight = torch.linalg.svd(matrix(rows, columns), full_matrices=False)
    orthogonal = weight.U @ weight.Vh
    assert float(soft_orthogonality(orthogonal)) < 1e-20
    assert float(srip(orthogonal)) < 1e-10
    assert float(double_soft_orthogonality(orthogonal)) == pytest.approx(abs(rows - columns))


@given(sizes, sizes)
def test_penalties_follow_from_the_singular_values(rows, columns):
    weight = matrix(rows, columns)
    excess = torch.linalg.svdvals(weight).square() - 1
    assert float(soft_orthogonality(weight)) == pytest.approx(float(excess.square().sum()))
    grams = (weight @ weight.mT - torch.eye(rows), weight.mT @ weight - torch.eye(columns))
    assert float(double_soft_orthogonality(weight)) == pytest.approx(sum(float(g.square().sum()) for g in grams))
    # Power iteration approaches the largest absolute eigenvalue from below.
    assert float(srip(weight)) <= float(excess.abs().max()) * (1 + 1e-9)


def test_srip_finds_the_largest_eigenvalue_and_its_gradient_where_it_stands_out():
    weight = torch.diag(torch.tensor([3.0, 1.1, 0.9], dtype=torch.float64)).requires_grad_()
    value = srip(weight)
    value.backward()
    assert float(value.detach()) == pytest.approx(8.0, rel=1e-6)
    known = torch.zeros(3, 3, dtype=torch.float64)
    known[0, 0] = 6.0
    assert torch.allclose(weight.grad, known, atol=1e-3)


@pytest.mark.parametrize("name", [name for name, row in PENALTIES.items() if not row.of_outputs])
def test_penalties_on_weights_do_not_change_under_rotations_of_the_inputs(name):
    weight, turn = matrix(3, 4), torch.linalg.qr(matrix(4, 4, "turn")).Q
    function = PENALTIES[name].function
    assert float(function(weight @ turn)) == pytest.approx(float(function(weight)), rel=1e-6)


# Not srip: its vector is held fixed, which is exact only where the power iteration has converged (see above).
@pytest.mark.parametrize("function", [soft_orthogonality, double_soft_orthogonality, hyperplane_spread, whitening])
def test_gradients_are_right(function):
    assert torch.autograd.gradcheck(function, (matrix(3, 4).requires_grad_(),))


def test_spread_is_the_mean_squared_cosine_of_pairs_and_ignores_lengths_and_signs():
    weight = matrix(5, 3)
    unit = (weight / weight.norm(dim=1, keepdim=True)).numpy()
    cosines = (unit @ unit.T)[np.triu_indices(5, 1)]
    scaled = weight * torch.tensor([1.0, -2.0, 3.0, 0.5, -0.1], dtype=torch.float64)[:, None]
    assert float(hyperplane_spread(weight)) == pytest.approx(float((cosines**2).mean()))
    assert float(hyperplane_spread(scaled)) == pytest.approx(float((cosines**2).mean()))
    assert float(hyperplane_spread(weight[:1])) == 0


def test_whitening_is_zero_for_white_activations_and_sees_scale_and_correlation():
    z = matrix(500, 3)
    centered = z - z.mean(0)
    white = centered @ torch.linalg.inv(torch.linalg.cholesky(centered.mT @ centered / len(z))).mT
    assert float(whitening(white + 7)) < 1e-20
    # Doubling makes every variance 4: three differences of 3 among nine entries.
    assert float(whitening(2 * white)) == pytest.approx(3 * 9 / 9)
    assert float(whitening(white.reshape(50, 10, 3))) < 1e-20


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8), AbsReLU(), nn.Linear(8, 3)
    )


@pytest.mark.parametrize("kind", PENALTIES)
def test_a_penalty_lowers_itself_in_an_ordinary_loop_and_leaves_no_hook(kind):
    torch.manual_seed(0)
    model, x, y = network(), torch.randn(20, 1, 6, 6), torch.randint(3, (20,))
    penalty, optimizer, values = Penalty(kind, 1.0), torch.optim.Adam(model.parameters(), 0.01), []
    for _ in range(30):
        with penalty.on(model) as extra:
            loss = nn.functional.cross_entropy(model(x), y) + extra()
            values.append(float(extra().detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert values[-1] < values[0]
    assert not any(module._forward_hooks for module in model.modules())


def test_the_layer_of_the_logits_is_left_alone_but_not_the_one_before_a_distance_head():
    from metriscope.nn import build_head

    plain = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    distances = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), build_head("offset-l2", 2, 2))
    for model in (plain, distances):
        with Penalty("soft-orthogonality", 2.0).on(model) as extra:
            assert float(extra().detach()) == pytest.approx(2 * float(soft_orthogonality(model[0].weight).detach()))


def test_convolutions_are_penalized_by_channel_and_position():
    model, x = network(), torch.randn(5, 1, 6, 6, generator=stream(0, "x"))
    with Penalty("whitening", 1.0, layers=("0",)).on(model) as extra:
        model(x)
        found = float(extra().detach())
    known = model[0](x).movedim(1, -1).reshape(-1, 4)
    assert found == pytest.approx(float(whitening(known).detach()), rel=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Penalty("orthogonal", 1.0), "kind must be one of soft-orthogonality"),
        (lambda: Penalty("srip", -1.0), "strength must lie in"),
        (lambda: Penalty("srip", 1.0, ("9",)).on(network()).__enter__(), "named '9'; it has 0, 4, 6"),
        (lambda: Penalty("srip", 1.0).on(nn.Linear(2, 2)).__enter__(), "name the layers"),
        (lambda: Penalty("whitening", 1.0).on(network()).__enter__()(), r"call the model first \(nothing of 0, 4\)"),
        (lambda: whitening(torch.ones(1, 2)), "at least two points, got 1"),
        (lambda: AbsReLU(1.5), "share must lie in"),
    ],
)
def test_bad_input_is_named_in_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_abs_relu_is_abs_on_its_share_and_relu_on_the_rest(share):
    x = torch.randn(6, 8, generator=stream(0, "x"))
    found, first = AbsReLU(share)(x), round(share * 8)
    assert found[:, :first].equal(x[:, :first].abs())
    assert found[:, first:].equal(x[:, first:].relu())
