"""Distillation with planted answers: soft signs, kernels matched with themselves, and weights chosen by validation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from metriscope.nn import stack_state
from metriscope.report import Page, render
from metriscope.rng import stream
from metriscope.runs import Driver, Store
from metriscope.studies.verdicts import judge
from metriscope.studies.vq.distillation import (
    STATEMENT,
    DistillationResults,
    chosen,
    gram_alignment,
    hidden,
    measure_distillation,
    section,
    soft_signs,
    split,
    taught,
)
from metriscope.studies.vq.networks import METHODS, Distilling, MLPShape, StudentVariant
from metriscope.studies.vq.train import mlp
from metriscope.vq import alignment, capture
from studies.synthetic import check_statement
from studies.vq.tiny import tiny


@pytest.fixture
def pair():
    """Two random networks of different shape on the same points."""
    x = torch.randn(200, 5, generator=stream(0, "points"))
    shapes = MLPShape(5, 3, 12, 4), MLPShape(5, 2, 7, 4)
    return x, shapes, [mlp(shape, stream(1, "start", shape.width)) for shape in shapes]


def signs(pair, index, beta):
    x, shapes, models = pair
    return soft_signs(hidden(shapes[index], stack_state([models[index]]), x)[0], beta)[0].double()


def test_a_kernel_matched_with_itself_has_no_loss(pair):
    own = signs(pair, 0, 3.0)
    assert float(1 - gram_alignment(own, own)) == pytest.approx(0, abs=1e-12)


def test_soft_signs_give_the_alignment_of_vq_kernels_as_beta_grows(pair):
    x, _, models = pair
    hard = float(np.asarray(alignment(capture(models[0], x), capture(models[1], x), "biased").value))
    gaps = [abs(float(gram_alignment(signs(pair, 0, beta), signs(pair, 1, beta))) - hard) for beta in (1, 100, 1e7)]
    assert gaps[0] > 0.01
    assert gaps[1] < gaps[0]
    assert gaps[2] == pytest.approx(0, abs=1e-6)


def test_stacked_layers_are_those_of_each_network(pair):
    x, (_, shape), (_, model) = pair
    other = mlp(shape, stream(2, "start"))
    layers, outputs = hidden(shape, stack_state([model, other]), x)
    for index, network in enumerate((model, other)):
        assert torch.allclose(outputs[index], network(x), atol=1e-6)
        assert torch.allclose(layers[1][index], network[:3](x), atol=1e-6)


def test_soft_signs_have_a_gradient_that_raises_the_alignment(pair):
    x, (_, shape), (_, model) = pair
    target, state = signs(pair, 0, 3.0).float(), stack_state([model])
    leaves = {name: value.requires_grad_() for name, value in state.items()}
    before = gram_alignment(soft_signs(hidden(shape, leaves, x)[0], 3.0), target).sum()
    used = {name: leaf for name, leaf in leaves.items() if not name.startswith("4.")}
    gradients = torch.autograd.grad(before, list(used.values()))
    moved = leaves | {n: v + 0.01 * g for (n, v), g in zip(used.items(), gradients, strict=True)}
    assert (gram_alignment(soft_signs(hidden(shape, moved, x)[0], 3.0), target).sum() > before).item()


def lesson(**changed) -> Distilling:
    return replace(tiny().distillation.lessons()[0], schooling=4, epochs=4, **changed)


def test_a_student_learns_the_same_alone_and_batched():
    whole = lesson(weights=(0.5,))
    points = split(whole.examples, 0, 0)
    _, students = taught(whole, points)
    _, fewer = taught(replace(whole, weights=(0.5, 2.0)), points)
    for variant, model in zip(whole.variants(), students, strict=True):
        other = fewer[replace(whole, weights=(0.5, 2.0)).variants().index(variant)]
        # Batched products round by the size of the batch; the term on signs has the largest gradients.
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_a_matching_term_without_weight_changes_nothing():
    spec = lesson(weights=(0.0,))
    _, students = taught(spec, split(spec.examples, 0, 0))
    by_method = dict(zip((v.method for v in spec.variants()), students, strict=True))
    for one, other in (("logits", "signs"), ("logits", "activations"), ("labels", "signs alone")):
        pairs = zip(by_method[one].parameters(), by_method[other].parameters(), strict=True)
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in pairs)


def test_a_seeds_parts_share_no_example_and_are_standardized_by_the_training_part():
    examples = tiny().distillation.examples[0]
    points = split(examples, 0, 0)
    whole = torch.cat([points.train[0], points.validation[0], points.test[0]])
    assert len(whole.unique(dim=0)) == examples.train + examples.validation + examples.test
    assert float(points.train[0].mean()) == pytest.approx(0, abs=1e-5)
    assert float(points.train[0].std()) == pytest.approx(1, abs=1e-4)


def made(gain, alike=0.1, seeds=10):
    """Return lessons in which matching VQ kernels adds a gain to logits, with a weight that only validation knows."""
    generator, rows = np.random.default_rng(0), []
    for name in ("mnist-5k", "letter"):
        for seed in range(seeds):
            luck = generator.normal()
            for method in ("teacher", *METHODS):
                for weight in (0.1, 2.0) if method in METHODS and METHODS[method].match else (0.0,):
                    best = weight == 2.0
                    test = 90 + luck + (gain if method == "signs" and best else 0) + 0.01 * generator.normal()
                    at = 0.5 + (alike if method == "signs" else 0) + 0.01 * generator.normal()
                    row = {"data": name, "seed": seed, "method": method, "weight": weight}
                    rows.append({**row, "validation": 80 + best, "test": test, "alignment": at, "origin": "run"})
    return DistillationResults(tiny().distillation, pd.DataFrame(rows))


def test_the_weight_is_chosen_by_validation_and_not_by_test():
    rows = made(gain=-5.0).rows
    picked = chosen(rows)
    assert set(picked[picked["method"] == "signs"]["weight"]) == {2.0}
    assert picked.groupby(["data", "seed", "method"]).size().eq(1).all()


@pytest.mark.parametrize(
    ("gain", "alike", "verdict"),
    [(1.0, 0.1, "supported"), (0.1, 0.1, "contradicted"), (1.0, -0.1, "contradicted"), (0.3, 0.1, "undecided")],
)
def test_the_verdict_follows_the_gain_over_logits_and_the_alignment(gain, alike, verdict):
    (claim,) = judge([STATEMENT], made(gain, alike).tables)
    assert claim.verdict == verdict
    if verdict == "contradicted" and gain < 1:
        assert "VQ kernel − kernel of activations 0.1" in claim.reason


def test_the_statement_follows_its_tables():
    check_statement(STATEMENT)


def test_lessons_fill_the_table_and_the_page(tmp_path):
    part = tiny().distillation
    results = measure_distillation(part, Driver(Store(tmp_path)))
    assert len(results.rows) == part.seeds * (1 + len(part.lessons()[0].variants()))
    assert results.rows.query("method == 'teacher'")["alignment"].to_numpy() == pytest.approx(1)
    text = render(Page("Test", "tiny", (section(results),)))
    assert "logits and VQ kernel" in text
    assert StudentVariant("logits") in part.lessons()[0].variants()
