"""The sign patterns that any PyTorch network gives a set of points, and a description of what would be captured.

Axes: N points, H bits. At any time memory holds one batch of activations, and H / 8 bytes for every point so far.

Captured are ReLU, LeakyReLU, PReLU, RReLU, Abs, Threshold, Hardtanh, ReLU6, Hardsigmoid, Hardshrink, Softshrink, clamps
whose interval holds zero, max pools, and by the sign of their pre-activation GELU, SiLU, Mish, Hardswish, ELU, SELU,
CELU, Sigmoid, LogSigmoid, Tanh, Softplus, Softsign, Tanhshrink, erf, GLU (its gate) and the gates of LSTM, GRU and RNN:
as modules, functions, methods, operators and in-place forms alike. After the first batch, a few of its points are run
once more, as a batch of another size. This shows which axis of each activation holds the points, which maxima and
comparisons are activations written by hand, and what else ran that may be an activation; ``missed`` lists that.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from metriscope.common.model_state import in_eval_mode, random_states_kept
from metriscope.common.progress import late_progress
from metriscope.common.validation import integer, one_of
from metriscope.vq.capture.batches import as_points, by_name, expected_points, split
from metriscope.vq.capture.missed import Missed
from metriscope.vq.capture.packing import RowBuffer
from metriscope.vq.capture.patterns import Layer, Patterns, point_ids
from metriscope.vq.capture.selection import Conv, Positions, Tokens, ValueChoice, Wanted
from metriscope.vq.capture.session import Session
from metriscope.vq.capture.watching import ActivationSite

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Description", "capture", "describe", "packed_rows"]


def capture(
    model: nn.Module,
    data: Any,
    layers: Wanted = None,
    batch_size: int = 1024,
    device: torch.device | str | None = None,
    ids: Any = None,
    conv: Conv = "positions",
    *,
    tokens: Tokens | None = None,
    points_axis: int = 0,
    strict: bool = False,
    values: Literal["float16", "float32"] | None = None,
    after: bool = False,
    autocast: torch.dtype | None = None,
) -> Patterns:
    """Return the sign patterns of every point in every activation of a model, or in the chosen ``layers``.

    Parameters
    ----------
    model : torch.nn.Module
        Any module. It runs in eval mode without gradients. Afterwards its modes, hooks, device and gradients, and the
        random states, are exactly as before, even after an exception.
    data : tensor, array, mapping, data set, loader or iterable of batches
        A tensor, an array (its floats take the model's precision), a mapping of names to tensors, a data set, a
        loader or any iterable of batches. The first entry of a tuple is the input, or as many entries as the model
        needs; the entries of a mapping are passed by name. For a model of several inputs, data can be a tuple of
        tensors.
    layers : str, type, torch.nn.Module, callable, or list of these, optional
        Which layers to capture; all if not given. A name, a glob, a type of module, a module (itself and everything
        inside), a function of a ``Layer``, or a list of these.
    batch_size : int
        How many points to run at once, unless the data comes in batches.
    device : torch.device or str, optional
        Where to run; the model's own device if not given.
    ids : array of int or str, optional
        One integer or string per point; 0, 1, ... if not given.
    conv : {"positions", "channels"}
        ``"positions"`` takes every position of a convolution, or token of a sequence, as a unit of its own;
        ``"channels"`` pools them: a channel's bit is 1 if it is 1 at any position.
    tokens : {"any", "first", "last", "mean"}, optional
        Pool the tokens of a sequence, that is positions of layers whose channels come last, into one bit per feature:
        1 if the bit is 1 at any token, at the first or the last token, or at half of the tokens or more. Tokens that
        the data's ``attention_mask`` leaves out do not count. If not given, ``conv`` decides for tokens as well.
    points_axis : int
        Axis of the data's tensors that holds the points: 1 for data of shape (tokens, points, features). The
        axis of each activation is found by running the model on batches of two sizes.
    strict : bool
        Raise an error if something that may be an activation ran and was not captured, or if layers were dropped.
    values : {"float16", "float32"}, optional
        Also keep the pre-activations, in this precision, in a file that is mapped into memory.
        :meth:`Patterns.values` returns them, and :meth:`Patterns.save` writes them beside the bits.
    after : bool
        Keep the outputs of activations instead of the pre-activations.
    autocast : torch.dtype, optional
        Run under ``torch.autocast`` in this precision, such as ``torch.bfloat16``.

    Returns
    -------
    Patterns
        The packed signs; layers are in the order in which they first ran. ``missed`` lists what else ran.

    Raises
    ------
    ValueError
        If the model runs no known activation or cannot run on the data, if a chosen layer does not exist or has no axis
        of points, if pre-activations are NaN or infinite or cannot be held in the precision of ``values``, or if
        ``strict`` and something was missed.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> _ = model[0].weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])), model[0].bias.data.zero_()
    >>> capture(model, torch.tensor([[2.0, -1.0], [-3.0, 1.0]])).signs().tolist()
    [[1, -1, 1], [-1, 1, -1]]
    """
    data, batch_size = as_points(data, "data"), integer(batch_size, "batch_size")
    axis = integer(points_axis, "points_axis", 0)
    kept = None if values is None else ValueChoice(np.dtype(one_of(values, "values", ("float16", "float32"))), after)
    session = Session(
        model, layers, device, Positions(conv, tokens), strict=strict, axis=axis, values=kept, autocast=autocast
    )
    data = by_name(session.model, data)
    expected = expected_points(data, points_axis)
    if ids is not None:
        ids = point_ids(ids, expected if isinstance(data, Tensor | np.ndarray | Mapping) else None)
    rows, held = _collected(session, data, batch_size, expected)
    named = None if ids is None else point_ids(ids, len(rows))
    return Patterns(session.watch.layers, rows, named, session.missed, held)


def describe(
    model: nn.Module,
    batch: Any,
    layers: Wanted = None,
    conv: Conv = "positions",
    *,
    tokens: Tokens | None = None,
    points_axis: int = 0,
) -> Description:
    """Return what ``capture`` would capture from a model on data like this batch; printing it gives a table.

    Parameters
    ----------
    model : torch.nn.Module
        Any module; it is not changed.
    batch : tensor, array, tuple or mapping
        A batch of points, as for :func:`capture`.
    layers : str, type, torch.nn.Module, callable, or list of these, optional
        Which layers to capture, as for :func:`capture`.
    conv : {"positions", "channels"}
        Whether each position is a unit or positions are pooled, as for :func:`capture`.
    tokens : {"any", "first", "last", "mean"}, optional
        How tokens are pooled, as for :func:`capture`.
    points_axis : int
        Axis of the batch that holds the points, as for :func:`capture`.

    Returns
    -------
    Description
        The layers that would be captured, the activations that would not be, with reasons, and what else ran.

    Raises
    ------
    ValueError
        If the batch is empty, or the model cannot run on it or runs no known activation.

    Examples
    --------
    >>> print(describe(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3), nn.GELU()), torch.zeros(1, 2)))
    layer  kind  bits  shape  affine  seen
    1      relu     3  3      yes     module
    3      gelu     3  3      no      module
    2 layers, 6 bits, 2 bytes per point
    2 layers taken; nothing missed
    """
    axis, batch = integer(points_axis, "points_axis", 0), as_points(batch, "batch")
    session = Session(model, layers, None, Positions(conv, tokens), axis=axis)
    with random_states_kept(), in_eval_mode(session.model):
        if not session.run(batch, choosing=False):
            raise ValueError("batch must hold at least one point, got none")
    others = tuple(site for site in session.watch.sites.values() if site.reason)
    return Description(session.watch.layers, others, session.missed)


@dataclass(frozen=True, repr=False)
class Description:
    """What ``capture`` would capture from a model, and which activations it would leave out, with reasons.

    Parameters
    ----------
    layers : tuple of Layer
        The layers that would be captured.
    others : tuple of ActivationSite
        The activations that would not be, with their ``layer`` and the ``reason``.
    missed : Missed
        What ran and would not be captured, as in ``Patterns.missed``.

    Examples
    --------
    >>> found = describe(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.zeros(1, 2))
    >>> found.layers[0].width, len(found.others)
    (3, 0)
    """

    layers: tuple[Layer, ...]
    others: tuple[ActivationSite, ...] = ()
    missed: Missed = field(default_factory=lambda: Missed(0))

    def to_pandas(self) -> DataFrame:
        """Return one row per layer that would be captured."""
        from pandas import DataFrame

        return DataFrame([asdict(layer) for layer in self.layers], columns=[one.name for one in fields(Layer)])

    def __str__(self) -> str:
        rows = [("layer", "kind", "bits", "shape", "affine", "seen")]
        rows += [_row(layer, layer.seen) for layer in self.layers]
        rows += [_row(site.layer, f"not taken: {site.reason}") for site in self.others]
        wide = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = [
            f"{a:{wide[0]}}  {b:{wide[1]}}  {c:>{wide[2]}}  {d:{wide[3]}}  {e:{wide[4]}}  {f}"
            for a, b, c, d, e, f in rows
        ]
        bits, row = sum(layer.width for layer in self.layers), sum(layer.bytes for layer in self.layers)
        total = f"{len(self.layers)} layers, {bits:,} bits, {row:,} bytes per point"
        return "\n".join([*lines, total, str(self.missed)])

    __repr__ = __str__


def _row(layer: Layer, seen: str) -> tuple[str, str, str, str, str, str]:
    shape = "x".join(str(size) for size in layer.shape)
    return layer.name, layer.kind, f"{layer.width:,}", shape, "yes" if layer.piecewise_affine else "no", seen


def packed_rows(session: Session, data: Any, batch_size: int, expected: int | None) -> UInt8[np.ndarray, "n b"]:
    """Return the packed bits of all batches; at most one batch is in memory at a time."""
    return _collected(session, data, batch_size, expected)[0]


def _collected(
    session: Session, data: Any, batch_size: int, expected: int | None
) -> tuple[UInt8[np.ndarray, "n b"], Float[np.ndarray, "n u"] | None]:
    """Return the packed bits of all batches, and their values if those are to be kept."""
    rows: RowBuffer | None = None
    held: RowBuffer | None = None
    # A loader may run code of its own between two batches.
    at_once = session.many_calls() if isinstance(data, Tensor | np.ndarray | Mapping) else nullcontext()
    running = in_eval_mode(session.model), late_progress("capturing points", expected)
    with random_states_kept(), running[0], at_once, running[1] as show:
        for batch in split(data, batch_size, session.axis):
            points = session.run(batch, rows=rows)
            del batch
            if not points:
                continue
            values = session.watch.values()
            if rows is None:
                parts = session.watch.parts()
                rows = _buffer(parts, expected)
                rows.append(parts)
                held = _buffer(values, expected, on_disk=True) if values else None
            if held is not None:
                held.append([part.view(np.uint8) for part in values])
            show(len(rows))
    if rows is None:
        raise ValueError("data must hold at least one point, got none")
    return rows.close(), None if held is None else held.close().view(values[0].dtype)


def _buffer(parts: list[np.ndarray], expected: int | None, on_disk: bool = False) -> RowBuffer:
    width = sum(part.shape[1] * part.itemsize for part in parts)
    return RowBuffer(width, expected or len(parts[0]), on_disk)
