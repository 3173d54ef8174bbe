"""The largest curvature of a classifier's loss: it limits the learning rate of gradient descent.

Axes: ``n`` points.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metriscope.common.validation import instance, integer, real_tensor, whole_array

__all__ = ["sharpness"]


def sharpness(model: nn.Module, x: Any, y: Any, steps: int = 20) -> float:
    """Return the largest eigenvalue, by absolute value, of the Hessian of the mean cross-entropy.

    Gradient descent with a learning rate above 2 divided by this value diverges from a minimum. It is found by power
    iteration from the direction of the gradient. Use it to match learning rates between data sets: pixels from 0 to 255
    curve the loss of the first layer 255² times as much as pixels from 0 to 1.

    Parameters
    ----------
    model : nn.Module
        A classifier that returns one logit per class; it is not changed.
    x : array of shape (n, ...)
        Points.
    y : array of shape (n,)
        Their classes.
    steps : int
        The number of power iterations.

    Returns
    -------
    float
        The eigenvalue, with its sign.

    Raises
    ------
    ValueError
        If no parameter needs a gradient.

    Examples
    --------
    >>> model = nn.Linear(1, 2, bias=False)
    >>> _ = nn.init.zeros_(model.weight)
    >>> round(sharpness(model, [[2.0], [-2.0]], [0, 1]), 4)
    2.0
    """
    integer(steps, "steps")
    points = real_tensor(x, "x", "points ...")
    labels = torch.from_numpy(whole_array(y, "y", f"{len(points)}"))
    weights = [p for p in instance(model, "model", nn.Module).parameters() if p.requires_grad]
    if not weights:
        raise ValueError("the model has no parameter that needs a gradient")
    place = weights[0]
    try:
        loss = F.cross_entropy(model(points.to(place)), labels.to(place.device))
    except (RuntimeError, IndexError) as error:
        raise ValueError(f"the model does not run on x, or gives no logit for a class of y: {error}") from error
    gradient = torch.autograd.grad(loss, weights, create_graph=True)
    vector, value = _unit([part.detach() for part in gradient]), 0.0
    for _ in range(steps):
        product = torch.autograd.grad(gradient, weights, vector, retain_graph=True)
        value = sum(float((a * b).sum()) for a, b in zip(product, vector, strict=True))
        vector = _unit(product)
    return value


def _unit(parts: Any) -> list[Tensor]:
    """Return the parts divided by their common length; a zero vector, as at a minimum, is replaced by ones."""
    length = float(torch.stack([part.square().sum() for part in parts]).sum().sqrt())
    return [part / length for part in parts] if length > 0 else [torch.ones_like(part) for part in parts]
