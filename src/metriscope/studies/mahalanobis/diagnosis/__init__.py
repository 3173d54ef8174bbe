"""Why a trial failed: a second optimizer goes on from where Adam stopped, and the curvature is read."""
