"""The layers in other people's pipelines: compile, export, ONNX, mixed precision, copies, several processes."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.multiprocessing import spawn

from metriscope.nn import HEADS
from nn.portable import X, gradients_of_half, model

PARTS = [
    *(name for name in HEADS if name not in ("linear", "offset-l1", "mahalanobis-shared")),
    "abs",
    "mahalanobis-layer",
]


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


def test_two_processes_average_the_gradients_of_their_halves(tmp_path):
    names = ["offset-l2", "rbf", "mahalanobis", "cosine", "nearest-mean"]
    spawn(gradients_of_half, args=(str(tmp_path), names), nprocs=2)
    for name in names:
        found, own = load_file(tmp_path / f"{name}.safetensors"), model(name)
        (own(X[:6]).sum() / 2).backward()
        known = {key: p.grad for key, p in own.named_parameters() if p.grad is not None}
        assert set(found) == set(known)
        assert all(torch.allclose(found[key], known[key], atol=1e-5) for key in known)
