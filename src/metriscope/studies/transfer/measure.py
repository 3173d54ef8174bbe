"""The tables of the study: accuracies of every network and start, and the contests of heads that it shares."""

from __future__ import annotations

from metriscope.runs import Driver, Finished
from metriscope.studies.heads.measure import measure_contests
from metriscope.studies.tidy_tables import TidyTables, joined
from metriscope.studies.transfer.plan import TransferPlan

__all__ = ["measure"]

COLUMNS = ("network", "data", "body", "seed", "test_accuracy")


def measure(plan: TransferPlan, runs: Finished, driver: Driver) -> TidyTables:
    """Return what the finished runs show, or what was recorded of them."""
    # The digest of CIFAR-10 depends on which of its files are present; the record is used for any of them.
    found = runs if plan.computed else driver.recorded(plan.trainings, ignored=("sha256",))
    origin = "run" if plan.computed else "record"
    rows = (
        run.table("ends").assign(network=job.model, data=job.data, body=job.body, protocol=False, origin=origin)
        for job, run in found.items()
    )
    contests = measure_contests(plan.contests, plan.computed, driver)
    return TidyTables({"constrained": joined(rows, COLUMNS), **contests})
