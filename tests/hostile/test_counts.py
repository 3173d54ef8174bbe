"""The numbers of cases on the page docs/reliability.md are those of these tests."""

from pathlib import Path

from common.odd import kinds_of
from common.public_calls import EVERY_CASE, OF_PATTERNS, VALUES
from hostile.test_files import LONG, READERS, SHORT
from hostile.test_pages import NAMES
from hostile.test_public_functions import COUNT, ODD_VALUES, PATTERNS, QUICK

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def rows() -> list[str]:
    """Return the rows of the table of cases."""
    odd = sum(len(kinds_of(array)) for case in EVERY_CASE for array in case.arrays.values())
    return [
        f"| damaged files | {len(READERS)} readers | {len(READERS) * SHORT:,} | {len(READERS) * LONG:,} |",
        f"| odd arrays | {len(EVERY_CASE)} calls of public functions | {odd:,} | {odd:,} |",
        f"| degenerate arrays | {len(EVERY_CASE)} calls | {len(QUICK) * COUNT:,} | {len(EVERY_CASE) * 100:,} |",
        f"| odd values | {len(VALUES)} calls | {len(VALUES) * len(ODD_VALUES):,} | {len(VALUES) * len(ODD_VALUES):,} |",
        f"| degenerate patterns | {len(OF_PATTERNS)} calls | {len(OF_PATTERNS) * len(PATTERNS)} | "
        f"{len(OF_PATTERNS) * len(PATTERNS)} |",
        f"| hostile names | 3 pages and their tables | {3 * len(NAMES)} | {3 * len(NAMES)} |",
    ]


def test_the_page_counts_the_cases_that_are_run():
    table = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert [row for row in rows() if row not in table] == []
