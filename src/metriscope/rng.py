"""Named random streams: every stream of random numbers has an address, and no global seed is ever touched."""

from __future__ import annotations

import hashlib

import torch

__all__ = ["derive", "stream"]

SEPARATOR = "\x1f"


def derive(seed: int, *names: str | int) -> int:
    """Return the 63-bit seed of the stream at the address ``(seed, *names)``.

    The seed is taken from the SHA-256 of the address. PyTorch's CPU generator uses only its lower 32 bits, so among
    ``n`` streams the chance that two are equal is about n² / 2³³: one in two thousand for two thousand streams.

    Parameters
    ----------
    seed : int
        The seed of the whole experiment.
    *names : str or int
        What the stream is for, from the general to the particular, such as ``"init", "layer0"``.

    Returns
    -------
    int
        A whole number from 0 to 2⁶³ - 1.

    Raises
    ------
    ValueError
        If a name contains the character that separates names, U+001F.

    Examples
    --------
    >>> derive(7, "init", "layer0") == derive(7, "init", "layer0")
    True
    >>> derive(7, "init", "layer0") == derive(7, "init", "layer1")
    False
    """
    parts = [str(part) for part in (seed, *names)]
    if any(SEPARATOR in part for part in parts):
        raise ValueError(f"a stream's name may not hold the separator {SEPARATOR!r}, as one of {parts} does")
    # Without a separator ("a", "bc") and ("ab", "c") would be the same address.
    address = SEPARATOR.join(parts)
    return int.from_bytes(hashlib.sha256(address.encode()).digest()[:8], "little") >> 1


def stream(seed: int, *names: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    """Return a new generator for the address ``(seed, *names)``; earlier draws have no effect on it.

    Parameters
    ----------
    seed : int
        The seed of the whole experiment.
    *names : str or int
        What the stream is for, from the general to the particular, such as ``"init", "layer0"``.
    device : str or torch.device
        Where the generator draws.

    Returns
    -------
    torch.Generator
        A generator seeded with ``derive(seed, *names)``.

    Examples
    --------
    >>> torch.rand(2, generator=stream(7, "noise")).equal(torch.rand(2, generator=stream(7, "noise")))
    True
    """
    return torch.Generator(device=device).manual_seed(derive(seed, *names))
