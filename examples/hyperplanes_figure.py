"""Draw learned hyperplanes beside the truth, as SVG, into the file named by the only argument.

The networks are the first four trials of the 2-D study, trained here by the paper's protocol.
"""

import sys
from pathlib import Path

import torch

from metriscope.nn import Mahalanobis
from metriscope.report import to_svg
from metriscope.report.plots import scatter_with_hyperplanes
from metriscope.report.style import figure
from metriscope.studies.mahalanobis.plan import DistanceRecipe, DistanceTraining, GaussianTask
from metriscope.studies.mahalanobis.train import cohorts_of, draw_problem
from metriscope.train import fit

PANELS = (("Abs, learned", "abs", 0), ("ReLU, learned", "relu", 0), ("Abs, a direction lost", "abs", -1))

if __name__ == "__main__":
    job = DistanceTraining(
        GaussianTask(2, samples=1_000), DistanceRecipe(epochs=10_000), trials=(0, 1, 2, 3), activations=("abs", "relu")
    )
    task, cohorts = draw_problem(job.task), cohorts_of(job)
    fit(cohorts)
    cohorts.sort(key=lambda cohort: float(cohort.history[0, -1]))
    networks = {"The true distance": Mahalanobis.from_gaussian(task.gaussian.mean, task.gaussian.cov).float()}
    for title, activation, place in PANELS:
        chosen = [cohort for cohort in cohorts if cohort.name.startswith(activation)][place]
        networks[title] = Mahalanobis(2, activation=activation).requires_grad_(False)
        networks[title].load_state_dict({name: value[0] for name, value in chosen.parameters.items()})
        print(f"{title}: trial {chosen.name}, training MSE {float(chosen.history[0, -1]):.2g}")
    drawing, axes = figure(9.2, 2.8, 1, len(networks))
    drawing.set_facecolor("white")
    for ax, (title, network) in zip(axes[0], networks.items(), strict=True):
        planes = network.linear.weight.numpy(), network.linear.bias.numpy()
        field = lambda nodes, measure=network: measure(torch.from_numpy(nodes).float()).numpy()  # noqa: E731
        scatter_with_hyperplanes(ax, task.x[:200].numpy(), *planes, field, title)
    Path(sys.argv[1]).write_text(to_svg(drawing, "hyperplanes-2d"), encoding="utf-8")
