"""What the experiments share: networks that are trained together, and how measurements on them are stored."""
