"""Networks, weights, arrays and patterns that a user names on the command line."""
