"""Estimators for scikit-learn: classes and numbers by distances to prototypes, novelty, and sign patterns."""

from __future__ import annotations

from metriscope.sklearn.mahalanobis_novelty import MahalanobisNovelty
from metriscope.sklearn.pattern_transformer import PatternTransformer
from metriscope.sklearn.supervised import DistanceClassifier, DistanceRegressor

__all__ = ["DistanceClassifier", "DistanceRegressor", "MahalanobisNovelty", "PatternTransformer"]
