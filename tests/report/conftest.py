"""A page with one of everything, small enough to render in an instant."""

import numpy as np
import pandas as pd
import pytest

from metriscope.report import (
    Claim,
    Details,
    Evidence,
    Figure,
    Ledger,
    Page,
    Prose,
    Section,
    Table,
    style,
    to_svg,
)


def draw(name: str) -> Figure:
    drawing, axes = style.figure(4, 2)
    axes[0, 0].plot([0, 1, 2], [1.0, 4.0, 9.0], "o-")
    axes[0, 0].set(title="Squares", xlabel="n", ylabel="n²")
    return Figure(name, "Squares of numbers", to_svg(drawing, name), "The first **three**.")


@pytest.fixture(scope="session")
def page() -> Page:
    errors = pd.DataFrame({"network": ["abs", "<relu>"], "ours": [0.0123456, np.nan], "published": [0.2675, 0.4]})
    units = pd.DataFrame({"unit": [0, 1], "alive": [True, False]})
    claims = (
        Claim(
            "C01",
            "Abs learns & ReLU does",
            "S1",
            "supported",
            "It does.",
            (Evidence("MSE", 0.0123456, 0.2675),),
        ),
        Claim("C02", "It <b>whitens</b>", "S1", "depends", "On the dimension."),
        Claim("C03", "It holds on CIFAR-10", "S3", "undecided", "No data here.", strength="not run"),
    )
    inner = Details("Units", (Table("units", "Units one by one", units), draw("inner")))
    return Page(
        "A <title>",
        "What was measured",
        (
            Section("Claims", (Ledger(claims),)),
            Section(
                "Numbers",
                (Prose("First **bold**.\n\nThen `code` & <i>tags</i>."), Table("errors", "Errors", errors)),
            ),
            Section("Drawings", (draw("outer"), inner)),
        ),
        {"profile": "quick", "seeds": [0, 1], "packages": {"numpy": "2.0"}},
    )
