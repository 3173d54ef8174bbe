"""The factorial experiment on ReLU2: weighed gradients, dead outputs by construction, planted effects."""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from metriscope.nn import build
from metriscope.rng import stream
from metriscope.studies.representation import collapse as train
from metriscope.studies.representation.collapse import asked, cells_of, effects, gather, half_dead_epoch
from metriscope.studies.representation.collapse_page import STATEMENT, section
from metriscope.studies.representation.experiments import EVENED, FACTORS, CollapseCell, baselines, cells, controls
from metriscope.studies.verdicts import judge
from metriscope.train.classifiers import Classifier, advance, examples, measure
from studies.synthetic import check_statement

BASE = CollapseCell("relu2", "raw", 1e-3, starts=(0, 1), epochs=4, train_size=64)


def points(n=40, d=6):
    x = torch.randn(n, d, generator=stream(0, "points"))
    return x, torch.arange(n) % 3


def weighed_gradient(model, x, y, weights):
    """Return the gradient by hand: softmax less one-hot, the entry of the target multiplied by its class's weight."""
    hidden = x @ model[0].weight.mT + model[0].bias
    h = hidden.clamp(min=0)
    z = h @ model[2].weight.mT
    own = F.one_hot(y, 3).float()
    delta = (torch.softmax(z.clamp(min=0), 1) - own) * (1 + own * (weights - 1)) * (z > 0) / len(x)
    return delta.mT @ h, ((delta @ model[2].weight) * (hidden > 0)).mT @ x


@pytest.mark.parametrize("weights", [(9.0, 9.0, 9.0), (1.0, 1.0, 1.0), (2.0, 0.5, 7.0)])
def test_a_step_with_weighed_targets_is_the_one_computed_by_hand(weights):
    x, y = points()
    model = build("relu2", 6, 5, 3, generator=stream(0, "start")).requires_grad_(False)
    network = Classifier("relu2", model.state_dict(), target=weights[0])
    network.targets[:] = weights
    advance([network], examples(x.numpy(), y.numpy()), 1, lr=0.1)
    head, first = weighed_gradient(model, x, y, torch.tensor(weights))
    state = network.state()
    torch.testing.assert_close(state["2.weight"], model[2].weight - 0.1 * head)
    torch.testing.assert_close(state["0.weight"], model[0].weight - 0.1 * first)


def test_without_relu_every_image_pushes_down_as_much_as_up():
    z, y = 5 + torch.rand(20, 3, dtype=torch.float64, generator=stream(0, "z")), torch.arange(20) % 3
    up, down = train.pushes(z, y)
    assert float(up.sum()) == pytest.approx(float(down.sum()))


def test_evened_targets_push_an_output_up_as_much_as_all_others_push_it_down():
    z, y = torch.randn(60, 3, dtype=torch.float64, generator=stream(1, "z")), torch.arange(60) % 3
    up, down = train.pushes(z, y)
    assert not torch.allclose(up, down, rtol=0.05)
    torch.testing.assert_close(train.even(up, down) * up, down)


def test_outputs_with_negative_weights_are_dead_by_construction():
    x, y = points()
    model = build("relu2", 6, 5, 3, generator=stream(0, "start")).requires_grad_(False)
    model[2].weight[:2] = -model[2].weight[:2].abs()
    network = Classifier("relu2", model.state_dict())
    scores = measure([network], examples(x.numpy(), y.numpy()))
    assert (scores.outputs[0][:2] == 0).all()
    before = network.state()["2.weight"][:2]
    advance([network], examples(x.numpy(), y.numpy()), 3, lr=1.0)
    assert network.state()["2.weight"][:2].equal(before)


def test_a_lifted_bias_is_one_deviation_of_the_outputs_at_the_start():
    x, _ = points()
    model = build("relu2", 6, 5, 3, generator=stream(0, "start")).requires_grad_(False)
    state = train.lifted(model, x, 2.0)
    assert state["2.bias"].tolist() == pytest.approx([2 * float(model[:3](x).std())] * 3)


def test_the_rate_rises_linearly_and_every_epoch_is_trained_once():
    cell = replace(BASE, warmup=10, lr=2.0)
    steps = [step for cut in ((0, 3), (3, 12), (12, 20)) for step in train.rates(cell, *cut)]
    assert sum(epochs for epochs, _ in steps) == 20
    assert [rate for _, rate in steps[:10]] == pytest.approx(np.arange(1, 11) / 5)
    assert {rate for _, rate in steps[10:]} == {2.0}


def test_the_sixteen_cells_differ_and_the_plain_one_is_the_papers_protocol():
    base = replace(BASE, epochs=1_000)
    found = list(cells(base))
    assert len({tuple(cell.on.values()) for cell in found}) == 16
    assert [cell for cell in found if not any(cell.on.values())] == [base]
    assert len(set(asked(0))) == len(asked(0))


@dataclass
class Made:
    """Stands for a stored cell."""

    tables: dict

    def table(self, name):
        return self.tables[name]


def made(cell, accuracy, never, loss=1.0):
    """Return a cell whose outputs die at epoch 1, and whose starts differ by a fixed amount."""
    rows = [(s, e, never if e else 0, loss, 0.5) for s in cell.starts for e in (0, 1, cell.epochs)]
    ends = pd.DataFrame({"seed": cell.starts, "test_accuracy": [accuracy + s / 1000 for s in cell.starts]})
    deaths = pd.DataFrame(rows, columns=["seed", "epoch", "never", "train_loss", "train_accuracy"])
    pushes = pd.DataFrame({"seed": cell.starts, "epoch": 0, "up": 0.5, "down": 1.0})
    return Made({"ends": ends, "dead": deaths, "pushes": pushes})


def world(evened=0.9, plain=0.5):
    """Return all cells: ReLU at 95 %, the bias saves ReLU2, and so do evened pushes as far as asked."""
    base = replace(BASE, epochs=1_000, starts=tuple(range(5)))
    found = {cell: made(cell, 0.95, 0) for cell in baselines(base)}
    found |= {cell: made(cell, 0.93 if cell.lift else plain, 0 if cell.lift else 4) for cell in cells(base)}
    return found | {
        c: made(c, evened if c.evened else plain, 0 if c.evened and evened > 0.9 else 4) for c in controls(base)
    }


def test_planted_effects_are_recovered():
    rows = []
    for on in product((False, True), repeat=4):
        cell = dict(zip(FACTORS, on, strict=True))
        for seed in range(5):
            planted = 50 + 10 * cell["warm"] - 4 * cell["lifted"] + 6 * cell["warm"] * cell["unit"]
            # What a start adds to all its cells cancels; what it adds to one effect is its spread.
            noise = seed + (seed - 2) / 10 * cell["warm"]
            rows.append({**cell, "seed": seed, "test_accuracy": planted + noise, "dead": 0.5 - 0.25 * cell["balanced"]})
    found = effects(pd.DataFrame(rows)).set_index(["outcome", "factor", "with"])["mean"]
    accuracy, dead = found["test_accuracy"], found["dead"]
    assert accuracy["warm-up", ""] == pytest.approx(10 + 6 / 2)
    assert accuracy["unit pixels", ""] == pytest.approx(6 / 2)
    assert accuracy["positive bias", ""] == pytest.approx(-4)
    assert accuracy["warm-up", "unit pixels"] == pytest.approx(6)
    assert accuracy["warm-up", "positive bias"] == pytest.approx(0)
    assert dead["target × 9", ""] == pytest.approx(-0.25)
    low, high = effects(pd.DataFrame(rows)).query("outcome == 'test_accuracy'")[["low", "high"]].iloc[0]
    # The spread over starts is 0.1 times that of -2, ..., 2: t(4) at 97.5 % is 2.776.
    assert (high - low) / 2 == pytest.approx(2.776 * 0.1 * np.sqrt(2.5 / 5), rel=1e-3)


@pytest.mark.parametrize(("never", "epoch"), [((0, 4, 4, 8), 1), ((0, 0, 0, 1), 3), ((0, 2, 3, 0), np.nan)])
def test_half_of_the_finally_dead_are_dead_at(never, epoch):
    assert half_dead_epoch(np.arange(4), np.array(never)) == pytest.approx(epoch, nan_ok=True)


def test_outputs_of_a_diverged_network_are_counted_while_it_was_finite():
    cell = replace(BASE, epochs=1_000)
    run = made(cell, 0.1, 3)
    run.tables["dead"].loc[run.tables["dead"]["epoch"] == 1_000, ["never", "train_loss"]] = 10, np.nan
    table = gather({cell: run}, "run")["collapse"]
    assert table["dead"].tolist() == [0.3, 0.3]
    assert table["diverged"].all()


def test_criteria_decide_and_sentences_state_the_numbers():
    check_statement(STATEMENT)


@pytest.mark.parametrize(("evened", "verdict"), [(0.94, "supported"), (0.6, "contradicted")])
def test_the_claim_stands_or_falls_with_evened_pushes(evened, verdict):
    claim = judge([STATEMENT], gather(world(evened), "record"))[0]
    assert (claim.verdict, claim.strength, claim.origin) == (verdict, "hint", "record")
    assert "positive bias +43.0 [43, 43]" in claim.reason


def test_a_record_gives_the_cell_it_was_made_from():
    from metriscope.runs import Record
    from metriscope.runs.address import plain

    cell = next(cell for cell in controls(BASE) if cell.evened)
    record = Record(plain(cell, "spec"), {}, made(cell, 0.5, 1).tables)
    assert list(cells_of([record])) == [cell]
    assert cell.factors == EVENED


def test_the_section_shows_all_cells_and_says_where_there_are_none():
    shown = section(gather(world(), "record"))
    text = "".join(getattr(block, "text", "") for block in shown.blocks)
    assert "pushes down are 2 times the pushes up on raw pixels" in text
    table = next(block for block in shown.blocks if getattr(block, "name", "") == "collapse-cells-table")
    assert len(table.frame) == 18
    assert "No record" in section(gather({}, "")).blocks[-1].text


@pytest.mark.slow  # compiles
def test_a_small_cell_is_trained_and_observed():
    found = train.compute(replace(BASE, evened=True, warmup=2)).tables
    assert found["ends"]["seed"].tolist() == [0, 1]
    assert set(found["dead"]["epoch"]) == {0, 1, 2, 3, 4}
    assert found["dead"]["never"].between(0, 10).all()
    first = found["pushes"].query("epoch == 0")
    assert (first["down"] > first["up"]).all()
