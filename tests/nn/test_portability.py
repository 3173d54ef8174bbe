"""The layers in other people's pipelines: compile, export, ONNX, mixed precision, copies, several processes."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.multiprocessing import spawn

from metriscope.nn import HEADS, Abs, Mahalanobis, build_head
from metriscope.rng import stream

PARTS = [
    *(name for name in HEADS if name not in ("linear", "offset-l1", "mahalanobis-shared")),
    "abs",
    "mahalanobis-layer",
]
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


@pytest.mark.parametrize("name", PARTS)
def test_deep_copies_are_equal_and_independent(name):
    own = model(name)
    other = copy.deepcopy(own)
    known = own(X)
    with torch.no_grad():
        other[0].weight.zero_()
    assert own(X).equal(known)


@pytest.mark.parametrize("name", PARTS)
def test_exported_programs_take_any_batch_size_and_give_the_same_outputs(name):
    own = model(name)
    program = torch.export.export(own, (X,), dynamic_shapes=({0: torch.export.Dim("n", min=2, max=1024)},))
    for batch in (X, X[:3], X.repeat(9, 1)):
        assert torch.allclose(program.module()(batch), own(batch), atol=1e-5)


# PyTorch's own compiler instantiates autograd functions, which PyTorch warns about.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("name", PARTS)
def test_compiled_graphs_have_no_breaks_and_give_the_same_outputs_and_gradients(name):
    torch.compiler.reset()
    own = model(name)
    compiled = torch.compile(own, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(X), own(X), atol=1e-5)
    gradients = []
    for run in (own, compiled):
        own.zero_grad()
        run(X).sum().backward()
        gradients.append(own[0].weight.grad.clone())
    assert torch.allclose(*gradients, atol=1e-4)


@pytest.mark.parametrize("name", PARTS)
def test_mixed_precision_trains_without_overflow(name):
    own = model(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = own(X)
        loss = out.float().square().mean()
    loss.backward()
    assert torch.allclose(out.float(), own(X), rtol=0.1, atol=0.1)
    assert all(torch.isfinite(p.grad).all() for p in own.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", PARTS)
def test_onnx_runs_elsewhere_with_the_same_outputs(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    own, path = model(name), tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            own, (X,), path, dynamo=True, dynamic_shapes=({0: torch.export.Dim("n", min=2, max=1024)},), verbose=False
        )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch in (X, X.repeat(3, 1)):
        (found,) = session.run(None, {session.get_inputs()[0].name: batch.numpy()})
        assert np.allclose(found, own(batch).detach().numpy(), atol=1e-4)


def _share(rank: int, folder: str, names: list[str]) -> None:
    """Compute the gradients of each model on half of the points, in one of two processes."""
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    try:
        for name in names:
            own = nn.parallel.DistributedDataParallel(model(name))
            own(X[:6].chunk(2)[rank]).sum().backward()
            if rank == 0:
                found = {key: p.grad for key, p in own.module.named_parameters() if p.grad is not None}
                save_file(found, f"{folder}/{name}.safetensors")
    finally:
        torch.distributed.destroy_process_group()


def test_two_processes_average_the_gradients_of_their_halves(tmp_path):
    names = ["offset-l2", "rbf", "mahalanobis", "cosine", "nearest-mean"]
    spawn(_share, args=(str(tmp_path), names), nprocs=2)
    for name in names:
        found, own = load_file(tmp_path / f"{name}.safetensors"), model(name)
        (own(X[:6]).sum() / 2).backward()
        known = {key: p.grad for key, p in own.named_parameters() if p.grad is not None}
        assert set(found) == set(known)
        assert all(torch.allclose(found[key], known[key], atol=1e-5) for key in known)
