"""Which random networks are cut into regions, and how deep the tent map is stacked."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.vq.networks.plan import STUDY

__all__ = ["KINDS", "Kind", "Lemmas", "Lot", "TentMaps"]

Bounds = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Kind:
    """Depths and widths of random networks; every combination, with ReLU and with Abs, comes in its turn."""

    name: str
    depths: tuple[int, ...]
    widths: tuple[int, ...]
    activations: tuple[str, ...] = ("relu", "abs")


KINDS = (Kind("shallow", (1,), (4, 8, 12, 16, 20)), Kind("deep", (2, 3, 4, 5), (4, 6, 8, 10)))


@dataclass(frozen=True)
class Lot:
    """Random networks of one kind, compared region by region: what is computed and stored at once.

    A window cuts off ways that lead outside it, so that distances in the graph of regions may be longer than on the
    whole plane. How much is told by a second window, ``wider`` times as wide.
    """

    networks: Kind
    number: int
    count: int = 20
    bounds: Bounds = ((-2.0, 2.0), (-2.0, 2.0))
    wider: float = 4.0
    seed: int = 0
    method: int = 2  # raised when the same request would end in other numbers
    study: str = STUDY


@dataclass(frozen=True)
class TentMaps:
    """The tent map and its shallow twin, for every number of layers; ``shown`` of them are drawn."""

    layers: tuple[int, ...] = tuple(range(1, 11))
    shown: int = 3
    samples: int = 401
    method: int = 1
    study: str = STUDY


@dataclass(frozen=True)
class Lemmas:
    """So many lots of random networks of each kind, and the tent maps."""

    seeds: int
    seed: int = 0
    count: int = 20
    tents: TentMaps = TentMaps()

    def lots(self) -> tuple[Lot, ...]:
        """Return the measurements, one specification per seed and kind."""
        return tuple(Lot(kind, n, self.count, seed=self.seed) for n in range(self.seeds) for kind in KINDS)
