"""Why ReLU2 collapses: a factorial experiment on what could save its outputs."""
