"""Training of many independent networks: protocols, engines that take the steps, and the loop."""

from metriscope.common.progress import progress
from metriscope.train.engines import CompiledEngine, Engine, StackedEngine, engine_for
from metriscope.train.loop import Cohort, CohortPass, Diverged, Pace, fit
from metriscope.train.protocol import Protocol, recorded_epochs

__all__ = [
    "Cohort", "CohortPass", "CompiledEngine", "Diverged", "Engine", "Pace", "Protocol", "StackedEngine", "engine_for",
    "fit", "progress", "recorded_epochs",
]  # fmt: skip
