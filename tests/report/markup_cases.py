"""What tests of pages share."""

import re

__all__ = ["without_scripts"]


def without_scripts(page: str) -> str:
    """Return a page without its scripts: what a reader sees, and its styles."""
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
