"""Small claims and tables for tests of verdicts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from metriscope.studies.evidence import TESTS, Above, EvidenceSample
from metriscope.studies.verdicts import Criterion, Statement, Values, judge


def criterion(region=None, **fields):
    values = fields.pop("values", Values.of("runs", "accuracy", network="a"))
    return Criterion("accuracy of a", values, region or Above(1.0), "It was said before.", **fields)


def statement(*criteria, factor="", name="X01"):
    return Statement(name, "It holds.", "a source", criteria, factor)


def table(values, network="a", protocol=True, **more):
    return pd.DataFrame(
        {"network": network, "seed": np.arange(len(values)), "accuracy": values, "protocol": protocol} | more
    )


def said(claim_criteria, tables, factor=""):
    return judge([statement(*claim_criteria, factor=factor)], tables)[0]


def just_above(edge, p=0.04):
    """Return values whose mean is above an edge with just this one-sided p-value."""
    numbers = np.random.default_rng(0).normal(size=5)
    return numbers + edge - TESTS["mean"].interval(EvidenceSample(numbers), 1 - 2 * p)[1]
