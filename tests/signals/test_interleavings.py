"""Signals in any interleaving with the lives of a run: each is delivered once, in its order."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import outlast
from outlast import workflow
from tests.engine.tools import dying_at
from tests.signals.tables import check_tables

Op = tuple[str, int]
OPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b", "a-misfit"]), st.just(0)),
        st.tuples(st.just("live"), st.just(0)),
        st.tuples(st.just("die"), st.integers(1, 8)),
    ),
    max_size=12,
)


@workflow
def reader(pattern: str) -> list[list[object]]:
    """Waits for signals of the names in a pattern, one after the other."""
    return [[name, outlast.wait_signal(name, int).result()] for name in pattern]


def live(url: str) -> object:
    """Let the run go on as far as it can; None if it waits."""
    try:
        return outlast.run(
            reader, "aabab", run_id="r", store=url, wait=False, settings=outlast.Settings(lease=600)
        )
    except (outlast.RunWaiting, outlast.StoreError):
        return None


@settings(max_examples=40, deadline=None)
@given(OPS)
def test_every_signal_is_delivered_once_and_in_order(ops: list[Op]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'store.db'}"
        outlast.submit(reader, "aabab", run_id="r", store=url)
        client = outlast.Client(url)
        sent: dict[str, list[int]] = {"a": [], "b": []}
        number = 0
        for what, when in [*ops, *[("a", 0)] * 3, *[("b", 0)] * 2]:
            if what == "live":
                live(url)
            elif what == "die":
                with dying_at(url, when):
                    live(url)
            else:
                number += 1
                name, _, misfit = what.partition("-")
                try:
                    client.signal("r", name, str(number) if misfit else number)
                except outlast.UsageError:
                    continue  # refused, so it was not sent; or the run is over
                if not misfit:
                    sent[name].append(number)
        result = live(url)
        due = {name: iter(numbers) for name, numbers in sent.items()}
        assert result == [[name, next(due[name])] for name in "aabab"]
        check_tables(url)
