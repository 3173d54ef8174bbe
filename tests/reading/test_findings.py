"""Findings: what is planted in a network is told with its number, and nothing is told of a healthy one."""

import re

import numpy as np
import pytest
import torch
from torch import nn

from metriscope.reading.findings import Finding, _folded, findings
from metriscope.reading.inspection import Subject, class_activity, class_distances, inspected, partner_notes
from metriscope.reading.points import UserPoints
from metriscope.vq import capture

POINTS = 200


def points(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=(POINTS, *shape)).astype(np.float32)


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


def told(net, x, labels=None):
    subject = Subject("net", capture(net, x), labels, net, UserPoints(x))
    return findings(inspected(subject))


def unusual(found):
    return [one.text for one in found if one.level in ("problem", "notable")]


def dense():
    return nn.Sequential(nn.Linear(10, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))


def conv():
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 3))


@pytest.mark.parametrize(("make", "shape"), [(dense, (10,)), (conv, (1, 8, 8))])
@pytest.mark.parametrize("labeled", [False, True])
def test_of_a_healthy_network_nothing_unusual_is_found_and_that_is_a_finding(make, shape, labeled):
    # Its labels are its own answers: no point is answered wrongly.
    net, x = seeded(make).eval(), points(*shape)
    answers = net(torch.from_numpy(x)).argmax(1).numpy() if labeled else None
    found = told(net, x, answers)
    assert unusual(found) == []
    assert found[0].level == "fine"
    assert found[0].text.startswith("Nothing unusual found")


def plant(weight, bias):
    """Make unit 2 dead, unit 4 a scaled copy of 1, and unit 5 the mirror image of 3."""
    with torch.no_grad():
        weight[2], bias[2] = 0, -1
        weight[4], bias[4] = 2 * weight[1], 2 * bias[1]
        weight[5], bias[5] = -0.5 * weight[3], -0.5 * bias[3]


@pytest.mark.parametrize(
    ("make", "shape", "noun", "count", "name"),
    [(dense, (10,), "unit", 12, "`0` (Linear)"), (conv, (1, 8, 8), "channel", 6, "`0` (Conv2d)")],
)
def test_planted_dead_duplicate_and_mirrored_units_are_told_and_no_others(make, shape, noun, count, name):
    net = seeded(make).eval()
    plant(net[0].weight, net[0].bias)
    found = unusual(told(net, points(*shape)))
    how = "the same zero set within 0.05 deviations"
    assert set(found) == {
        f"1 of {count} {noun}s of {name} is dead on all {POINTS} points ({noun} 2).",
        f"{noun.capitalize()}s 1 and 4 of {name} are duplicates of each other: {how}, on the same side.",
        f"{noun.capitalize()}s 3 and 5 of {name} are mirrored: {how}, on opposite sides.",
    }


def test_functions_and_modules_are_named_by_the_layer_that_computes_what_they_are_given():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.norm, self.fc2 = nn.Linear(10, 7), nn.BatchNorm1d(7), nn.Linear(7, 7)
            self.act = nn.ReLU(inplace=True)

        def forward(self, x):
            return torch.nn.functional.gelu(self.fc2(self.act(self.norm(self.fc1(x)))))

    x, net = points(10), seeded(Net).eval()
    subject = Subject("net", capture(net, x), None, net, UserPoints(x))
    assert [str(name) for name in subject.names] == ["`fc1` (Linear)", "`fc2` (Linear)"]


def test_directions_that_a_layer_has_lost_are_told():
    net = seeded(dense)
    with torch.no_grad():
        # Twelve units in general position that measure four directions only.
        net[0].weight.copy_(torch.randn(12, 4, generator=torch.Generator().manual_seed(1)) @ net[0].weight[:4])
    assert [text for text in unusual(told(net, points(10))) if "lost" in text] == [
        "Layer `0` (Linear) has lost 6 of 10 directions: its 12 units measure 4 of those that they could."
    ]


def test_saturated_units_are_told_and_always_on_ones_if_they_are_many():
    net = nn.Sequential(nn.Linear(10, 8), nn.ReLU6(), nn.Linear(8, 2))
    with torch.no_grad():
        net[0].weight.mul_(0.01)
        net[0].bias.copy_(torch.tensor([10.0, 10, 3, 3, 3, 0, 0, 0]))
    found = unusual(told(net, points(10)))
    assert f"2 of 8 units of `0` (Linear) are saturated on all {POINTS} points (units 0, 1)." in found
    assert f"3 of 8 units of `0` (Linear) are always on: linear on all {POINTS} points (units 2, 3, 4)." in found


def test_an_activation_that_was_not_captured_is_told_first():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(10, 6), nn.Linear(6, 3)

        def forward(self, x):
            hidden = self.fc1(x).relu()
            return torch.sin(self.fc2(hidden))

    first = told(seeded(Net), points(10))[0]
    assert first.level == "problem"
    assert re.match(r"1 activation was not captured: sin", first.text)


def test_a_network_that_answers_the_same_everywhere_is_told():
    net = seeded(dense)
    with torch.no_grad():
        net[4].weight.zero_()
        net[4].bias.copy_(torch.tensor([0.0, 1.0, 0.0]))
    found = told(net, points(10), np.arange(POINTS) % 3)
    assert f"The network gives the same answer, 1, at all {POINTS} points." in unusual(found)


def test_labels_in_words_are_matched_with_the_outputs_that_answer_them():
    net, x = seeded(dense), points(10)
    names = np.array(["ape", "bee", "cat"])
    labels = names[net(torch.from_numpy(x)).argmax(1).numpy()]
    labels[0] = names[(list(names).index(labels[0]) + 1) % 3]
    facts = [one.text for one in told(net, x, labels) if one.level == "fact"]
    assert facts[0] == f"The network answers {POINTS - 1} of {POINTS} points correctly (99.5 %)."


def test_labels_that_are_no_answers_judge_neither_points_nor_units():
    labels = np.array([f"name {i}" for i in np.random.default_rng(1).integers(0, 20, POINTS)])
    assert not [
        one.text for one in told(seeded(dense), points(10), labels) if "answer" in one.text or "uses" in one.text
    ]


def test_points_that_share_their_patterns_are_not_called_novel():
    # Every point twice, the wrong answers all in front: ties must not be broken by the order of the points.
    net, x = seeded(dense), np.repeat(points(10)[:100], 2, 0)
    labels = net(torch.from_numpy(x)).argmax(1).numpy()
    labels[:40] = (labels[:40] + 1) % 3
    subject = Subject("net", capture(net, x), labels, net, UserPoints(x))
    found = inspected(subject)
    assert len(found.novel) == 0
    assert not [one for one in findings(found) if "novel" in one.text]


def test_many_findings_of_a_kind_are_folded_into_one_sentence():
    many = [Finding("problem", f"text {i}", 1 - i / 10, "dead units", f"layer {i}") for i in range(6)]
    assert [one.text for one in _folded(many)] == [
        "text 0",
        "text 1",
        "text 2",
        "Dead units in 3 more layers: layer 3; layer 4; layer 5.",
    ]
    assert [one.text for one in _folded(many[:4])] == [one.text for one in many[:4]]


def test_class_distances_and_activity_are_means_over_pairs_and_points():
    net, x = seeded(conv).eval(), points(1, 8, 8)
    labels = np.arange(POINTS) % 4
    patterns = capture(net, x)
    signs = np.asarray(patterns)
    found = class_distances((signs[:, None] != signs).sum(2), labels)
    one, two = signs[labels == 1], signs[labels == 2]
    assert found.means[1, 2] == pytest.approx((one[:, None] != two).sum(2).mean())
    within = (one[:, None] != one).sum(2)
    assert found.means[1, 1] == pytest.approx(within.sum() / (len(one) * (len(one) - 1)))
    shares = class_activity(patterns, patterns.layers[0], labels)
    with torch.no_grad():
        on = (net[:2](torch.from_numpy(x)) >= 0).double()
    np.testing.assert_allclose(shares[3], on[torch.from_numpy(labels == 3)].mean((0, 2, 3)).numpy())


def test_the_numbers_of_dead_units_are_listed_up_to_six_and_the_rest_counted():
    net = seeded(lambda: nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 2)))
    with torch.no_grad():
        net[0].weight[5:15] = 0
        net[0].bias[5:15] = -1
    (text,) = (one for one in unusual(told(net, points(10))) if "dead" in one)
    assert text.endswith("(units 5, 6, 7, 8, 9, 10, and 4 more).")


def test_all_units_dead_need_no_list_of_numbers():
    net = seeded(lambda: nn.Sequential(nn.Linear(10, 3), nn.ReLU(), nn.Linear(3, 2)))
    with torch.no_grad():
        net[0].weight.zero_()
        net[0].bias.fill_(-1)
    assert f"All 3 units of `0` (Linear) are dead on all {POINTS} points." in unusual(told(net, points(10)))


def test_both_units_of_a_pair_name_each_other():
    net = seeded(dense).eval()
    plant(net[0].weight, net[0].bias)
    subject = Subject("net", capture(net, points(10)), None, net, UserPoints(points(10)))
    units = inspected(subject).units
    notes = partner_notes(units[units["at"] == 0])
    assert {at: note for at, note in enumerate(notes) if note} == {
        1: "duplicate of 4",
        4: "duplicate of 1",
        3: "mirrors 5",
        5: "mirrors 3",
    }


def test_dead_units_are_counted_among_those_that_are_used_as_neither():
    net, x = seeded(dense), points(10)
    with torch.no_grad():
        net[0].weight[:5], net[0].bias[:5] = 0, -1
    labels = net(torch.from_numpy(x)).argmax(1).numpy()
    (text,) = (one.text for one in told(net, x, labels) if "uses" in one.text and "`0`" in one.text)
    found = re.match(r"Of 12 units of `0` \(Linear\), the network uses (.*) \(5 of them dead\)\.$", text)
    assert sum(int(number) for number in re.findall(r"(\d+) as (?:distance|intensity|neither)", found[1])) == 12


def test_a_smooth_unit_that_is_never_positive_is_called_dead_as_in_the_table():
    net = seeded(lambda: nn.Sequential(nn.Linear(10, 8), nn.GELU(), nn.Linear(8, 2)))
    with torch.no_grad():
        net[0].weight[3], net[0].bias[3] = 0, -1
    found = told(net, points(10))
    assert f"1 of 8 units of `0` (Linear) is dead: below zero on all {POINTS} points (unit 3)." in unusual(found)


def test_smooth_units_that_are_always_on_are_not_called_linear():
    net = seeded(lambda: nn.Sequential(nn.Linear(10, 4), nn.GELU(), nn.Linear(4, 2)))
    with torch.no_grad():
        net[0].weight[:2], net[0].bias[:2] = 0, 1
    found = unusual(told(net, points(10)))
    assert any(f"always on: above zero on all {POINTS} points" in text for text in found)
    assert not any("linear on all" in text for text in found)


def test_the_nearest_classes_are_compared_with_all_pairs_of_different_classes():
    net, x = seeded(dense), points(10)
    labels = np.arange(POINTS) % 3
    signs = np.asarray(capture(net, x))
    own = [signs[labels == label] for label in range(3)]
    means = [(own[a][:, None] != own[b]).sum(2).mean() for a, b in ((0, 1), (0, 2), (1, 2))]
    (text,) = (one.text for one in told(net, x, labels) if "nearest to each other" in one.text)
    said = f"{min(means):,.0f} signs on average, against {np.mean(means):,.0f} on average over all pairs of different"
    assert text.endswith(f"{said} classes.")
