"""Which axis is lost and which trials end exact, predicted from the Gaussian and the start before training."""
