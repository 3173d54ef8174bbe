"""Runs on disk: their addresses, the store that writes each run once, checkpoints, and the driver."""

from __future__ import annotations

from metriscope.common.errors import StoreError, Unfinished
from metriscope.runs.checkpoint import Checkpoint
from metriscope.runs.driver import Driver, Finished
from metriscope.runs.integrity import Problem
from metriscope.runs.jobs import Job, Pass, Result, Work, once
from metriscope.runs.mirror import Mirror
from metriscope.runs.records import Record
from metriscope.runs.run import Run
from metriscope.runs.shards import Deadline, Executor, InProcess, Shard
from metriscope.runs.store import Store

__all__ = [
    "Checkpoint", "Deadline", "Driver", "Executor", "Finished", "InProcess", "Job", "Mirror", "Pass", "Problem",
    "Record", "Result", "Run", "Shard", "Store", "StoreError", "Unfinished", "Work", "once",
]  # fmt: skip
