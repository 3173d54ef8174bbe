"""What starting from clusters of the data changes, trial by trial."""
