"""A plan of the whole VQ study that takes seconds."""

from __future__ import annotations

from dataclasses import replace

from metriscope.studies.vq.experiments import Band, Starts
from metriscope.studies.vq.networks import Distillation, ExampleSplit, VQRecipe
from metriscope.studies.vq.plan import Beyond, Lemmas, TentMaps, VQOptions, VQPlan, plan

__all__ = ["tiny"]

SHORT = VQRecipe(epochs=3, loss="bce")


def tiny(seeds: int = 3) -> VQPlan:
    """Return every experiment with a few epochs, small grids and few images."""
    whole = plan(VQOptions(seeds=seeds))
    moons = replace(whole.moons, recipe=VQRecipe(epochs=6, loss="bce", kept=(2,)), grid=24)
    digits = replace(
        whole.digits,
        recipe=VQRecipe(epochs=2, loss="cross-entropy", batch=64, kept=(1,)),
        images=replace(whole.digits.images, train=160, test=40),
        permutations=19,
        further=9,
        band=Band(draws=199),
    )
    return replace(
        whole,
        moons=moons,
        spheres=replace(whole.spheres, recipe=SHORT),
        digits=digits,
        lemmas=Lemmas(1, count=2, tents=TentMaps(layers=(1, 2, 3))),
        beyond=Beyond(moons, digits, SHORT, VQRecipe(epochs=1, loss="cross-entropy", batch=64), depths=(1, 3)),
        explorer=replace(whole.explorer, recipe=SHORT),
        prediction=replace(
            whole.prediction,
            images=replace(whole.prediction.images, train=300, test=40),
            computed=True,
            depths=(1, 2),
            widths=(8, 16, 32),
            starts=1,
            permutations=19,
        ),
        distillation=Distillation(
            (ExampleSplit("mnist-5k", "", 784, 10, 300, 60, 60, together=True),), ("mnist-5k",), seeds=2
        ),
        sample_sizes=replace(whole.sample_sizes, computed=True, counts=(20, 40), seeds=2, recipe=SHORT),
        starts=Starts(digits),
    )
