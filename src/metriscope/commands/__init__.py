"""What the metriscope command does, by what it is about: networks or studies; how it parses, and what it prints."""
