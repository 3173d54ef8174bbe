"""Why a trial failed: a second optimizer continues from where Adam stopped, and the curvature is computed."""
