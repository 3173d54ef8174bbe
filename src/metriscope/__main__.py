"""Let ``python -m metriscope`` be the metriscope command."""

import sys

from metriscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
