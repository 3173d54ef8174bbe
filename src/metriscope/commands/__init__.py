"""The commands of metriscope, on networks and on studies, and how they parse arguments and print results."""
