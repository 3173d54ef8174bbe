"""Put a distance head on a plain PyTorch classifier: the class is the nearest prototype.

``OffsetL2`` gives the weighted distance to one learned prototype per class; ``Neg`` makes the nearest the largest
output, so that cross-entropy works as usual. Data: scikit-learn's digits, 8 x 8 pixels.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import metriscope as ms
from metriscope.rng import stream


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of points whose nearest prototype is that of their class."""
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def main() -> None:
    """Train one network with full-batch Adam and print its accuracy on held-out images."""
    pixels, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    x, x_test, y, y_test = train_test_split(pixels.float() / 16, labels, random_state=0, stratify=labels)
    model = ms.build("abs-l2-neg", in_features=64, hidden=64, out_features=10, generator=stream(0, "init"))
    print(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(101):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 50 == 0:
            print(f"epoch {epoch:3d}  loss {loss.item():.4f}")
    print(f"accuracy on {len(x_test)} held-out images: {accuracy(model, x_test, y_test):.1%}")


if __name__ == "__main__":
    main()
