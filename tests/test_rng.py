from __future__ import annotations

import hashlib

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from metriscope.rng import derive, stream

# The separator itself is the one sign that a name must not hold.
words = st.text(st.characters(exclude_characters="\x1f", exclude_categories=["Cs"]), max_size=8)
seeds = st.integers(-(2**70), 2**70)
addresses = st.tuples(seeds, st.lists(words, max_size=4)).map(lambda pair: (pair[0], *pair[1]))


def drawn(*address, count=4):
    return torch.rand(count, generator=stream(*address)).tolist()


@given(address=addresses)
def test_the_same_address_gives_the_same_stream(address):
    assert derive(*address) == derive(*address)
    assert drawn(*address) == drawn(*address)


@given(first=addresses, second=addresses)
def test_different_addresses_give_different_streams(first, second):
    assume(first != second)
    assert derive(*first) != derive(*second)
    assert drawn(*first) != drawn(*second)


@given(seed=seeds, name=words.filter(lambda name: len(name) > 1), cut=st.integers(1, 7))
def test_where_a_name_ends_is_part_of_the_address(seed, name, cut):
    assume(cut < len(name))
    together, apart = derive(seed, name), derive(seed, name[:cut], name[cut:])
    assert together != apart
    assert derive(seed, name, "") != derive(seed, "", name)
    assert together not in (derive(seed, name, ""), derive(seed, "", name))


@given(seed=seeds, number=st.integers())
def test_a_number_in_an_address_is_the_word_for_it(seed, number):
    assert derive(seed, number) == derive(seed, str(number))


@given(address=addresses)
def test_a_derived_seed_is_what_torch_takes(address):
    assert 0 <= derive(*address) < 2**63
    assert stream(*address).initial_seed() == derive(*address)


def test_an_address_means_today_what_it_meant_when_results_were_stored():
    digest = hashlib.sha256(b"7\x1finit\x1flayer0").digest()
    assert derive(7, "init", "layer0") == int.from_bytes(digest[:8], "little") // 2 == 2977803292909600450
    assert torch.randint(1000, (5,), generator=stream(7, "init", "layer0")).tolist() == [831, 546, 389, 263, 119]
    assert derive(0) == 2033344993903900207


@pytest.mark.usefixtures("undrawn")
def test_a_stream_neither_reads_nor_moves_the_global_state():
    before = drawn(7, "noise")
    torch.rand(3, generator=stream(8, "noise"))
    assert drawn(7, "noise") == before


def test_what_was_drawn_before_from_one_stream_does_not_reach_another():
    first, second = stream(7, "a"), stream(7, "b")
    interleaved = [torch.rand(1, generator=g).item() for _ in range(3) for g in (first, second)]
    assert interleaved[::2] == drawn(7, "a", count=3)
    assert interleaved[1::2] == drawn(7, "b", count=3)


def test_a_name_that_holds_the_separator_is_refused():
    with pytest.raises(ValueError, match="must not contain the separator"):
        derive(1, "a\x1fb")
