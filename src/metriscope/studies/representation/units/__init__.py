"""Units that no image, or hardly any, makes active."""
