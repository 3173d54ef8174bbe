"""Small models of every part, and what a second process computes of them; processes can only import modules."""

from __future__ import annotations

import os

import torch
from safetensors.torch import save_file
from torch import nn

from metriscope.nn import Abs, Mahalanobis, build_head
from metriscope.rng import stream

__all__ = ["X", "gradients_of_half", "model"]

# Smallest and largest batches differ, so that a fixed batch size would be noticed.
X = torch.randn(7, 6, generator=stream(0, "portability"))


def model(name: str) -> nn.Module:
    generator = stream(0, "portability", name)
    first = nn.Linear(6, 5)
    with torch.no_grad():
        for value in first.parameters():
            value.normal_(0.0, 0.5, generator=generator)
    last = {"abs": Abs(), "mahalanobis-layer": Mahalanobis(5, generator=generator)}
    tail = last[name] if name in last else build_head(name, 5, 3, generator)
    return nn.Sequential(first, nn.ReLU(), tail).eval()


def gradients_of_half(rank: int, folder: str, names: list[str]) -> None:
    """Compute the gradients of each model on half of the points, in one of two processes."""
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    for name in names:
        own = nn.parallel.DistributedDataParallel(model(name))
        own(X[:6].chunk(2)[rank]).sum().backward()
        if rank == 0:
            found = {key: p.grad for key, p in own.module.named_parameters() if p.grad is not None}
            save_file(found, f"{folder}/{name}.safetensors")
    torch.distributed.barrier()
    # Gloo's threads can abort a busy process while they are taken down; nothing is left to do, so leave without that.
    os._exit(0)
