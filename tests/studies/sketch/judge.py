"""The one claim of the sketch."""

from metriscope.studies.evidence import Above
from metriscope.studies.verdicts import Criterion, Statement, Values

STATEMENTS = (
    Statement(
        "X01",
        "Coins fall on heads.",
        "folklore",
        (
            Criterion(
                "share of heads",
                Values.of("coins", "heads"),
                Above(0.2),
                "Far less than half would not be called a coin.",
                unit="coin",
                units="coins",
            ),
        ),
    ),
)
