"""Ask how accurate and how fast the estimators are with their defaults, beside those of scikit-learn.

Tables: random quarters of each table are held out, the same for all; of large tables a random part is used. All have
their default settings. Ours takes features as they come; the networks of scikit-learn stand behind a
``StandardScaler``, and the regressor's targets are standardized too, since without that they would do worse. Trees
need neither. Seconds are those of ``fit`` on one core, the models of a split one after the other.

Speed: the same number of epochs on letter, 20,000 x 16, interleaved, best of several rounds.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from metriscope.benching import processor
from metriscope.data import load
from metriscope.sklearn import DistanceClassifier, DistanceRegressor

# Splits of each table, and the most rows that are used.
TABLES = {
    "wine": 6,
    "breast_cancer": 6,
    "digits": 3,
    "ecg5000": 2,
    "spambase": 2,
    "adult": 2,
    "covertype": 2,
    "letter": 2,
}
ROWS, EPOCHS, ROUNDS, SPLITS = 6_000, 10, 3, 3

# The defaults were chosen on splits 0 to 9 of the same tables; these are others.
FIRST_SPLIT = 100

Make = Callable[[int], Any]


class Score(NamedTuple):
    """Means over the splits: accuracy in per cent and log-loss, or R² and none, and seconds."""

    value: float
    loss: float
    seconds: float


def points_of(name: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return training and test points of a table together, at most so many, drawn at random."""
    found = load(name)
    x = np.concatenate([np.asarray(part.x, np.float64).reshape(len(part.x), -1) for part in (found.train, found.test)])
    y = np.concatenate([np.asarray(part.y) for part in (found.train, found.test)])
    chosen = np.sort(np.random.default_rng(0).permutation(len(x))[:rows])
    return x[chosen], y[chosen]


def classifiers() -> dict[str, Make]:
    return {
        "DistanceClassifier": lambda seed: DistanceClassifier(random_state=seed),
        "MLPClassifier": lambda seed: make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
        "HistGradientBoosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
    }


def _scaled_regressor(seed: int) -> Any:
    inner = make_pipeline(StandardScaler(), MLPRegressor(random_state=seed))
    return TransformedTargetRegressor(inner, transformer=StandardScaler())


def regressors() -> dict[str, Make]:
    return {
        "DistanceRegressor": lambda seed: DistanceRegressor(random_state=seed),
        "MLPRegressor": _scaled_regressor,
        "HistGradientBoosting": lambda seed: HistGradientBoostingRegressor(random_state=seed),
    }


def scores(makes: dict[str, Make], x: np.ndarray, y: np.ndarray, splits: int) -> dict[str, Score]:
    """Return the score of each model, the mean over random splits."""
    found: dict[str, list[Score]] = {name: [] for name in makes}
    classes = y.dtype.kind in "iu"
    shares = y if classes and np.unique(y, return_counts=True)[1].min() >= 4 else None
    for seed in range(FIRST_SPLIT, FIRST_SPLIT + splits):
        train_x, test_x, train_y, test_y = train_test_split(x, y, random_state=seed, stratify=shares)
        for name, make in makes.items():
            started = time.perf_counter()
            model = make(seed).fit(train_x, train_y)
            seconds = time.perf_counter() - started
            value, loss = model.score(test_x, test_y), np.nan
            if classes:
                loss = log_loss(test_y, model.predict_proba(test_x), labels=model.classes_)
            found[name].append(Score(value, loss, seconds))
    return {name: Score(*np.mean(each, axis=0)) for name, each in found.items()}


def asked(name: str, value: float, bound: float) -> str:
    return f"{name} {value:+.2f} (asked at least {bound:g}: {'met' if value >= bound else 'MISSED'})"


def table_lines() -> Iterator[str]:
    names = list(classifiers())
    yield f"\nAccuracy in per cent, log-loss, seconds of fit; {', '.join(names)}"
    every = []
    for name, splits in TABLES.items():
        x, y = points_of(name, ROWS)
        found = scores(classifiers(), x, y, splits)
        every.append([found[one] for one in names])
        cells = " | ".join(f"{100 * s.value:6.2f} {s.loss:.3f} {s.seconds:6.2f}" for s in every[-1])
        yield f"    {name:14} {len(x):6,} x {x.shape[1]:3}, {splits} splits: {cells}"
    table = np.array(every)
    cells = " | ".join(f"{100 * v:6.2f} {loss:.3f} {seconds:6.2f}" for v, loss, seconds in table.mean(0))
    yield f"    {'mean':14} {'':24}  {cells}"
    ahead = 100 * (table[:, 0, 0] - table[:, 1, 0])
    yield "    points of accuracy above MLPClassifier: " + asked("mean", ahead.mean(), 0)
    yield "    " + asked(f"the least, on {list(TABLES)[ahead.argmin()]},", ahead.min(), -1)
    lower = int((table[:, 0, 1] < table[:, 1, 1]).sum())
    yield f"    log-loss lower on {lower} of {len(table)} tables: " + asked(
        "mean difference", table[:, 1, 1].mean() - table[:, 0, 1].mean(), 0
    )
    ratio = table[:, 1, 2] / table[:, 0, 2]
    yield f"    {ratio.min():.1f} to {ratio.max():.1f} times as fast to fit: " + asked("least", ratio.min(), 1)


def regression_lines() -> Iterator[str]:
    names = list(regressors())
    yield f"\nR², seconds of fit; {', '.join(names)}"
    tables = {
        "diabetes": load_diabetes(return_X_y=True),
        "friedman1": make_friedman1(3_000, noise=1.0, random_state=0),
        "friedman2": make_friedman2(3_000, noise=50.0, random_state=0),
    }
    for name, (x, y) in tables.items():
        found = scores(regressors(), x, y, SPLITS)
        cells = " | ".join(f"{s.value:6.3f} {s.seconds:6.2f}" for s in found.values())
        yield f"    {name:14} {len(x):6,} x {x.shape[1]:3}, {SPLITS} splits: {cells}"


def speed_lines() -> Iterator[str]:
    x, y = points_of("letter", 20_000)
    yield f"\nfit on letter, {len(x):,} x {x.shape[1]}, {EPOCHS} epochs, best of {ROUNDS} interleaved rounds, seconds"
    scaled = StandardScaler().fit_transform(x)
    peer = MLPClassifier(max_iter=EPOCHS, n_iter_no_change=EPOCHS, random_state=0)
    runs = {"ours": partial(DistanceClassifier(max_iter=EPOCHS).fit, x, y), "peer": partial(peer.fit, scaled, y)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - started)
    ours, theirs = min(times["ours"]), min(times["peer"])
    yield f"    DistanceClassifier {ours:.2f}, MLPClassifier {theirs:.2f}: " + asked("ratio", theirs / ours, 1)


def main() -> None:
    print(processor())
    # Networks that end at their last epoch are what the defaults give.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        for lines in (speed_lines, regression_lines, table_lines):
            for line in lines():
                print(line, flush=True)


if __name__ == "__main__":
    main()
