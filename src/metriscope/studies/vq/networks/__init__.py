"""What the experiments share: networks trained together, and how their numbers are stored and summed up."""
