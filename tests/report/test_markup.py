import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope.report.html import inline, paragraphs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a & b < c", "a &amp; b &lt; c"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("**bold** text", "<strong>bold</strong> text"),
        ("**bold `code`**", "<strong>bold <code>code</code></strong>"),
        ("`a**b**c`", "<code>a**b**c</code>"),
        ("`<b>`", "<code>&lt;b&gt;</code>"),
        ("2 ** 3 is 8", "2 ** 3 is 8"),
        ("one ` tick", "one ` tick"),
        ("95 % of", "95\u00a0% of"),
    ],
)
def test_marks_become_tags_and_all_else_is_escaped(text, expected):
    assert str(inline(text)) == expected


@given(st.text())
def test_nothing_typed_can_open_a_tag_of_its_own(text):
    assert "<" not in re.sub(r"</?(strong|code)>", "", str(inline(text)))


@given(st.text(alphabet="ab<>&\"' \n"))
def test_text_without_marks_is_shown_as_typed(text):
    assert html.unescape(str(inline(text))) == text


def test_blank_lines_separate_paragraphs():
    assert [str(part) for part in paragraphs("\n\nOne\nline.\n \t\n\nTwo.\n")] == ["One\nline.", "Two."]
