"""Estimators for scikit-learn: classification and regression by distances to prototypes, novelty, and sign patterns."""

from __future__ import annotations

from metriscope.sklearn.supervised import DistanceClassifier, DistanceRegressor
from metriscope.sklearn.unsupervised import MahalanobisNovelty, PatternTransformer

__all__ = ["DistanceClassifier", "DistanceRegressor", "MahalanobisNovelty", "PatternTransformer"]
