import re
from html.parser import HTMLParser

import pytest

from metriscope.report import Page, Prose, Section, render
from metriscope.report.html import fingerprint, rows

VOID = {"meta", "link", "br", "hr", "img", "input", "col"}


class Outline(HTMLParser):
    """Follow the tags of a page: what is open, which ids and links there are, what the reader sees."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.tags, self.text = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[key] for key in ("href", "src", "xlink:href", "action", "data") if key in found]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another tag"

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def document(page):
    return render(page)


@pytest.fixture(scope="module")
def outline(document):
    return Outline(document)


def test_every_tag_that_opens_is_closed_in_its_turn(document, outline):
    assert outline.open == []
    assert document.startswith("<!DOCTYPE html>")


def test_the_same_page_gives_the_same_bytes(page, document):
    assert render(page) == document


def test_no_id_occurs_twice(outline):
    assert len(outline.ids) == len(set(outline.ids))
    assert {"outer-title", "inner-title", "claim-C01", "table-errors", "figure-outer", "numbers"} <= set(outline.ids)


def test_links_within_the_page_lead_somewhere(outline):
    within = {link[1:] for link in outline.links if link.startswith("#")}
    assert {"summary", "claims", "provenance", "claim-C03"} <= within
    assert within <= set(outline.ids)


def test_the_page_needs_no_network_and_runs_only_scripts_that_its_policy_names(document, outline):
    assert not re.search(r"https?://|//[a-z]", document)
    assert not re.search(r"@import|url\((?!#)", document)
    assert not {"iframe", "object", "embed", "form", "base"} & set(outline.tags)
    scripts = re.findall(r"<script>(.*?)</script>", document, re.DOTALL)
    assert len(scripts) == 1
    assert f"script-src '{fingerprint(scripts[0])}';" in document
    others = {link for link in outline.links if not link.startswith("#")}
    assert others == {"data:,", *(f"tables/{n}.{e}" for n in ("errors", "units") for e in ("csv", "parquet"))}


def test_the_policy_forbids_all_but_inline_style(document):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', document)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert "<style>" in document
    assert " onclick" not in document


def test_typed_text_is_escaped_everywhere(document):
    assert "<title>A &lt;title&gt;</title>" in document
    assert "&lt;relu&gt;" in document
    assert "It &lt;b&gt;whitens&lt;/b&gt;" in document
    assert "<strong>bold</strong>" in document
    assert "<code>code</code> &amp; &lt;i&gt;tags&lt;/i&gt;" in document


@pytest.mark.parametrize("place", ["title", "subtitle", "section", "prose", "key", "value"])
def test_a_script_is_never_let_through(place):
    evil = "<script>alert(1)</script>"
    text = {name: "x" for name in ("title", "subtitle", "section", "prose", "key", "value")} | {place: evil}
    section = Section(text["section"], (Prose(text["prose"]),), "s")
    assert evil not in render(Page(text["title"], text["subtitle"], (section,), {text["key"]: text["value"]}))


def test_the_summary_counts_verdicts_and_shows_each_in_words(document):
    counts = re.findall(r'<span class="count">(\d+)</span>.*?</svg>\s*([a-z ]+)</span>', document, re.DOTALL)
    assert counts == [("1", "supported"), ("0", "contradicted"), ("1", "depends"), ("1", "undecided")]
    summary = document[document.index('id="summary"') : document.index('id="claims"')]
    assert re.findall(r'claim-id">(C\d+)', summary) == ["C01", "C02", "C03"]
    assert re.findall(r'chip [a-z -]+">.*?</svg>([a-z ·]+)<', summary, re.DOTALL) == [
        "supported · hint",
        "depends · hint",
        "undecided · not run",
    ]


def test_numbers_stand_in_the_table_and_in_the_evidence(document):
    assert '<td class="ours number">0.0123</td><td class="published number">0.2675</td>' in document
    assert '<td class="number ours">0.0123</td><td class="number published">0.2675</td>' in document
    assert '<td class="ours number">–</td><td class="published number">0.4</td>' in document


def test_provenance_is_printed_with_its_groups(outline):
    assert {"profile", "quick", "0, 1", "packages", "numpy", "2.0"} <= set(outline.text)
    assert list(rows({"a": {"b": {"c": 1}}})) == [("a · b", "c", "1")]


def test_light_dark_and_print_are_provided_for(document):
    assert "prefers-color-scheme: dark" in document
    assert "@media print" in document
    assert 'name="viewport"' in document


def test_a_page_without_claims_has_no_empty_summary():
    bare = render(Page("t", "s", (Section("Only", (Prose("x"),)),)))
    assert 'id="summary"' not in bare
    assert 'id="provenance"' not in bare
    assert Outline(bare).open == []
