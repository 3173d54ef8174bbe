"""Random numbers: named streams, and the numbers that PyTorch draws on a GPU, computed on any machine.

Every stream has an address, and the global seed is never changed. The functions ``cuda_*`` give the numbers of
PyTorch's CUDA generator, so that an experiment that was run on a GPU can be replayed on any machine.

Axes: N numbers.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt32
from torch import Tensor

from metriscope.common.validation import described, integer, number, whole_array

__all__ = ["cuda_advance", "cuda_integers", "cuda_normal", "cuda_uniform", "derive", "philox", "stream"]

SEPARATOR = "\x1f"

# The constants of Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
MULTIPLIERS, INCREMENTS, ROUNDS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 10
WORD = np.uint64(0xFFFFFFFF)
# PyTorch runs CUDA threads in blocks of 256, and takes four numbers from each call of the generator.
BLOCK, PER_CALL = 256, 4


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
        raise ValueError(f"a stream's name must not contain the separator {SEPARATOR!r}, got {parts}")
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
        The device of the generator.

    Returns
    -------
    torch.Generator
        A generator seeded with ``derive(seed, *names)``.

    Raises
    ------
    ValueError
        If a name contains the character that separates names, U+001F.

    Examples
    --------
    >>> torch.rand(2, generator=stream(7, "noise")).equal(torch.rand(2, generator=stream(7, "noise")))
    True
    """
    return torch.Generator(device=device).manual_seed(derive(seed, *names))


def philox(counter: UInt32[np.ndarray, "*n 4"], key: tuple[int, int]) -> UInt32[np.ndarray, "*n 4"]:
    """Return the four 32-bit numbers of Philox4x32-10 for each counter.

    Parameters
    ----------
    counter : array of shape (..., 4)
        Counters of four 32-bit words, the lowest word first.
    key : tuple of two int
        The two 32-bit words of the key.

    Returns
    -------
    array of shape (..., 4)
        Random 32-bit words.

    Raises
    ------
    ValueError
        If ``counter`` does not hold whole numbers of 32 bits, four per row.

    Examples
    --------
    >>> [hex(word) for word in philox(np.zeros(4, dtype=np.uint32), (0, 0)).tolist()]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    return _philox(whole_array(counter, "counter", "* 4", high=1 << 32), key)


def _philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    x0, x1, x2, x3 = np.moveaxis(np.asarray(counter, dtype=np.uint64), -1, 0)
    for i in range(ROUNDS):
        k0, k1 = (np.uint64((k + i * step) & 0xFFFFFFFF) for k, step in zip(key, INCREMENTS, strict=True))
        p0, p1 = np.uint64(MULTIPLIERS[0]) * x0, np.uint64(MULTIPLIERS[1]) * x2
        x0, x1, x2, x3 = (p1 >> np.uint64(32)) ^ x1 ^ k0, p1 & WORD, (p0 >> np.uint64(32)) ^ x3 ^ k1, p0 & WORD
    return np.stack([x0, x1, x2, x3], axis=-1).astype(np.uint32)


def cuda_advance(count: int, threads: int | None = None) -> int:
    """Return by how much a call of PyTorch's CUDA generator advances its offset.

    Parameters
    ----------
    count : int
        How many numbers the call draws.
    threads : int, optional
        The largest number of threads that the GPU runs at once; None if it is larger than ``count``.

    Returns
    -------
    int
        A multiple of 4.

    Raises
    ------
    ValueError
        If ``count`` or ``threads`` is out of range.

    Examples
    --------
    >>> cuda_advance(1_000), cuda_advance(1_000_000, threads=125_952)
    (4, 8)
    """
    count = integer(count, "count", least=0)
    return PER_CALL * -(-count // (PER_CALL * _grid(count, threads)))


def _grid(count: int, threads: int | None) -> int:
    """Return the number of threads of a call: at most ``threads``, and no more blocks than are needed."""
    needed = BLOCK * max(1, -(-count // BLOCK))
    return needed if threads is None else min(integer(threads, "threads"), needed)


def _words(
    count: int, seed: int, offset: int, threads: int | None
) -> tuple[UInt32[np.ndarray, "n 4"], Int64[np.ndarray, " n"]]:
    """Return the four words that the generator gives for each number, and which of the four becomes that number.

    With T threads, thread i gives its four outputs to the elements i, i + T, i + 2 T and i + 3 T of a tensor, and then
    continues at i + 4 T with the next counter.
    """
    count, seed = integer(count, "count", least=0), integer(seed, "seed", least=0)
    offset = integer(offset, "offset", least=0)
    if offset % PER_CALL:
        raise ValueError(f"offset must be a multiple of {PER_CALL}, as in PyTorch's CUDA generator, got {offset}")
    for name, given in (("seed", seed), ("offset", offset)):
        if given >= 2**64:
            raise ValueError(f"{name} must be less than 2**64, got {described(given)}")
    grid, elements = _grid(count, threads), np.arange(count)
    passes = offset // PER_CALL + elements // (PER_CALL * grid)
    thread, zero = elements % grid, np.zeros_like(elements)
    counter = np.stack([passes & 0xFFFFFFFF, passes >> 32, thread, zero], axis=-1).astype(np.uint32)
    return _philox(counter, (seed & 0xFFFFFFFF, seed >> 32)), elements // grid % PER_CALL


def _unit(words: UInt32[np.ndarray, " n"]) -> Float32[np.ndarray, " n"]:
    """Return words as numbers in (0, 1], in the precision of the GPU."""
    return words.astype(np.float32) * np.float32(2**-32) + np.float32(2**-33)


def _chosen(words: np.ndarray, which: np.ndarray) -> np.ndarray:
    return np.take_along_axis(words, which[:, None], axis=-1)[:, 0]


def cuda_uniform(
    count: int, seed: int, offset: int = 0, threads: int | None = None, *, low: float = 0.0, high: float = 1.0
) -> Float32[Tensor, " n"]:
    """Return the numbers of ``torch.rand`` and ``Tensor.uniform_`` on a GPU.

    Parameters
    ----------
    count : int
        How many numbers.
    seed : int
        The seed that the generator was given.
    offset : int
        The generator's offset before the call, a multiple of 4: the sum of :func:`cuda_advance` of all calls so far.
    threads : int, optional
        The largest number of threads that the GPU runs at once: its multiprocessors times the blocks of 256 threads
        that each holds, times 256. It matters only if ``count`` is larger.
    low, high : float
        The interval.

    Returns
    -------
    Tensor of shape (count,)
        Numbers in ``[low, high)``, float32.

    Raises
    ------
    ValueError
        If ``offset`` is not a multiple of 4, or a number is out of range.

    Notes
    -----
    These numbers were not compared with those of a real GPU; the last bit may differ if the GPU rounds the product
    before the sum.

    Examples
    --------
    >>> cuda_uniform(2, seed=0)
    tensor([0.3990, 0.5167])
    """
    low, high = number(low, "low", "(-inf, inf)"), number(high, "high", "(-inf, inf)")
    words = _chosen(*_words(count, seed, offset, threads))
    start, end = np.float32(low), np.float32(high)
    # A GPU computes the product and the sum with one rounding.
    values = (_unit(words).astype(np.float64) * np.float64(end - start) + start).astype(np.float32)
    return torch.from_numpy(np.where(values == end, start, values))


def cuda_normal(count: int, seed: int, offset: int = 0, threads: int | None = None) -> Float32[Tensor, " n"]:
    """Return the numbers of ``torch.randn`` on a GPU, to about six digits.

    Parameters
    ----------
    count : int
        How many numbers.
    seed : int
        The seed that the generator was given.
    offset : int
        The generator's offset before the call, a multiple of 4: the sum of :func:`cuda_advance` of all calls so far.
    threads : int, optional
        The largest number of threads that the GPU runs at once; see :func:`cuda_uniform`.

    Returns
    -------
    Tensor of shape (count,)
        Standard normal numbers, float32.

    Raises
    ------
    ValueError
        If ``offset`` is not a multiple of 4, or a number is out of range.

    Notes
    -----
    A GPU uses approximate sines and logarithms, so the numbers agree to about 1e-6 and not in every bit.

    Examples
    --------
    >>> cuda_normal(2, seed=0)
    tensor([-0.9247, -0.4253])
    """
    words, which = _words(count, seed, offset, threads)
    # The outputs are two pairs of sine and cosine, each of two words: a radius and an angle.
    radius, angle = (_chosen(words, which // 2 * 2 + i) for i in (0, 1))
    turn = 2 * np.pi * _unit(angle).astype(np.float64)
    wave = np.where(which % 2 == 0, np.sin(turn), np.cos(turn))
    return torch.from_numpy((np.sqrt(-2 * np.log(_unit(radius).astype(np.float64))) * wave).astype(np.float32))


def cuda_integers(
    count: int, seed: int, offset: int = 0, threads: int | None = None, *, high: int
) -> Int64[Tensor, " n"]:
    """Return the numbers of ``torch.randint(high, (count,))`` on a GPU.

    Parameters
    ----------
    count : int
        How many numbers.
    seed : int
        The seed that the generator was given.
    offset : int
        The generator's offset before the call, a multiple of 4: the sum of :func:`cuda_advance` of all calls so far.
    threads : int, optional
        The largest number of threads that the GPU runs at once; see :func:`cuda_uniform`.
    high : int
        One more than the largest number, at most 2**32 - 1; for larger values PyTorch draws in another way.

    Returns
    -------
    Tensor of shape (count,)
        Whole numbers from 0 to ``high - 1``.

    Raises
    ------
    ValueError
        If ``offset`` is not a multiple of 4, or a number is out of range.

    Examples
    --------
    >>> cuda_integers(3, seed=0, high=1_000).tolist()
    [541, 97, 191]
    """
    if integer(high, "high") >= 2**32:
        raise ValueError(f"high must be less than 2**32, got {described(high)}")
    return torch.from_numpy(_chosen(*_words(count, seed, offset, threads)).astype(np.int64) % high)
