"""Measures of whole networks: layers read as distances, similarity, trackers; what `inspect` and `compare` show."""
