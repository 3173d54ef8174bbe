"""Sign patterns: which activations a network calls, and their bits, packed."""
