"""Give a CNN a distance head and a start from data; compare it with a linear head on known and unseen digits."""

import torch
from sklearn.metrics import roc_auc_score
from torch import nn

import metriscope as ms


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """Train by Adam for five epochs."""
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for rows in (rows for _ in range(5) for rows in torch.randperm(len(x)).split(64)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    return model.eval()


images, labels = (torch.from_numpy(array) for array in ms.data.mnist_5k())
order = torch.randperm(5_000, generator=torch.Generator().manual_seed(0))
x, y = images[order][:, None] / 255, labels[order]
seen, new = (part & (y < 8) for part in (torch.arange(5_000) < 4_000, torch.arange(5_000) >= 4_000))
strangers = x[4_000:][y[4_000:] >= 8]  # no network is trained on an 8 or a 9
for name in ("linear", "offset-l2"):
    scores = []
    for seed in range(3):
        torch.manual_seed(seed)
        convolutions = [nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU()]
        body = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(400, 64), nn.ReLU())
        if name == "offset-l2":
            ms.init_model_(body, x[seen][:1_000])
        model = train(nn.Sequential(body, ms.nn.build_head(name, 64, 8)), x[seen], y[seen])
        known, strange = (model(part).detach().softmax(1) for part in (x[new], strangers))
        right = (known.argmax(1) == y[new]).float().mean()
        sure = torch.cat([known, strange]).amax(1)
        auroc = roc_auc_score(torch.arange(len(sure)) < len(known), sure)
        scores.append((right, ms.functional.expected_calibration_error(known, y[new]), auroc))
    found = torch.tensor(scores).mean(0)
    print(f"{name}: {found[0]:.1%} right, calibration error {found[1]:.3f}, AUROC of unseen digits {found[2]:.3f}")
