from hypothesis import given
from hypothesis import strategies as st

from metriscope.runs import Executor, InProcess


@given(st.lists(st.integers()))
def test_in_process_yields_one_result_for_each_item_in_their_order(items):
    executor: Executor = InProcess()
    assert list(executor.map(str, items)) == [str(item) for item in items]


def test_in_process_runs_an_item_only_when_its_result_is_asked_for():
    seen = []
    results = InProcess().map(lambda item: seen.append(item) or item, [1, 2, 3])
    assert (next(results), seen) == (1, [1])
