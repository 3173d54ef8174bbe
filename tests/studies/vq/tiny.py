"""A plan of the whole VQ study that takes seconds."""

from __future__ import annotations

from dataclasses import replace

from metriscope.studies.vq.beyond.plan import Beyond
from metriscope.studies.vq.digits.plan import Band
from metriscope.studies.vq.lemmas.plan import Lemmas, TentMaps
from metriscope.studies.vq.networks.plan import Recipe
from metriscope.studies.vq.plan import Options, Plan, plan

__all__ = ["tiny"]

SHORT = Recipe(epochs=3, loss="bce")


def tiny(seeds: int = 3) -> Plan:
    """Return every experiment with a few epochs, small grids and few images."""
    whole = plan(Options(seeds=seeds))
    moons = replace(whole.moons, recipe=Recipe(epochs=6, loss="bce", kept=(2,)), grid=24)
    digits = replace(
        whole.digits,
        recipe=Recipe(epochs=2, loss="cross-entropy", batch=64, kept=(1,)),
        images=replace(whole.digits.images, train=160, test=40),
        permutations=19,
        band=Band(draws=199),
    )
    return replace(
        whole,
        moons=moons,
        spheres=replace(whole.spheres, recipe=SHORT),
        digits=digits,
        lemmas=Lemmas(1, count=2, tents=TentMaps(layers=(1, 2, 3))),
        beyond=Beyond(moons, digits, SHORT, Recipe(epochs=1, loss="cross-entropy", batch=64), depths=(1, 3)),
        explorer=replace(whole.explorer, recipe=SHORT),
    )
