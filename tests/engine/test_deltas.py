"""Turn state as deltas: exact whatever changes, and few bytes for what only grows."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from outlast import codec
from outlast.engine.deltas import EVENT, LEAST, TurnState, replayed
from outlast.events import TurnSaved, decode

LEAVES = st.integers() | st.text(max_size=6) | st.none()
FIELDS = st.lists(LEAVES, max_size=5) | st.text(max_size=8) | st.integers() | st.tuples(LEAVES)
CHANGES = st.sampled_from(["same", "append", "change", "shrink", "mutate"])


def encoded(record: dict[str, object]) -> dict[str, bytes]:
    return {name: codec.encode(value) for name, value in record.items()}


def written(event: TurnSaved) -> TurnSaved:
    """As it comes back from the store."""
    back = decode(event.kind, event.encode())
    assert isinstance(back, TurnSaved)
    return back


def changed(value: object, change: str, leaf: object) -> object:
    match change, value:
        case "append", list():
            return [*value, leaf]
        case "append", str():
            return value + str(leaf)
        case "shrink", list() | str():
            return value[:-1]
        case "mutate", [_, *rest]:
            return [leaf, *rest]
        case "change", _:
            return leaf
    return value


@given(
    st.dictionaries(st.sampled_from("abc"), FIELDS, min_size=1),
    st.lists(st.tuples(st.sampled_from("abc"), CHANGES, LEAVES), max_size=12),
)
def test_the_state_is_rebuilt_exactly_at_every_turn(
    record: dict[str, object], steps: list[tuple[str, str, object]]
) -> None:
    live, saved = TurnState(), [written(TurnState().advance(1, encoded(record)))]
    live.advance(1, encoded(record))
    for turn, (name, change, leaf) in enumerate(steps, start=2):
        if name in record:
            record[name] = changed(record[name], change, leaf)
        saved.append(written(live.advance(turn, encoded(record))))
        again = replayed(saved)
        assert (again.turn, again.fields) == (turn, encoded(record))
        assert {n: codec.decode(v) for n, v in again.fields.items()} == record


def test_what_looks_like_a_beginning_and_is_not_is_stored_anew() -> None:
    for old, new in ([[1], [12]], [["a"], ["ab"]], [[1.5], [1.52]], [[[1]], [[1, 2]]], ["", "x"]):
        live = TurnState()
        saved = [live.advance(1, encoded({"x": old, "pad": "p" * 99}))]
        saved.append(live.advance(2, encoded({"x": new, "pad": "p" * 99})))
        assert codec.decode(replayed(saved).fields["x"]) == new


def test_a_growing_list_costs_bytes_in_proportion_to_its_length() -> None:
    def cost(turns: int) -> int:
        live, chat, total = TurnState(), list[str](), 0
        for turn in range(1, turns + 1):
            chat.append("m" * 500)
            total += len(live.advance(turn, encoded({"chat": chat, "n": turn})).encode())
        return total

    small, large = cost(200), cost(800)
    assert large < 5 * small
    assert large < 800 * 700


def test_deltas_are_folded_into_a_whole_record_before_they_outgrow_it() -> None:
    live = TurnState()
    pad = "p" * 4000
    fulls = []
    for turn in range(1, 200):
        event = live.advance(turn, encoded({"pad": pad, "note": f"{turn}" * 300}))
        fulls.append(event.full)
    assert 2 < sum(fulls) < 40
    between = max(len(gap) for gap in "".join("F" if full else "." for full in fulls).split("F"))
    assert between * 600 < 2 * max(LEAST, 2 * 5000)


def test_a_resume_reads_few_events_however_long_the_loop_and_however_small_its_changes() -> None:
    live, saved = TurnState(), list[TurnSaved]()
    for turn in range(1, 2000):
        event = live.advance(turn, encoded({"count": turn, "pad": "p" * 1000}))
        saved = [written(event)] if event.full else [*saved, written(event)]
        assert len(saved) <= 1 + LEAST // EVENT


def test_the_next_whole_record_comes_at_the_same_turn_with_a_resume_between() -> None:
    live, saved = TurnState(), list[TurnSaved]()
    for turn in range(1, 400):
        resumed = replayed(saved) if saved else TurnState()
        fields = encoded({"chat": ["m" * 500] * turn})
        event = live.advance(turn, fields)
        assert resumed.advance(turn, fields).full == event.full
        saved = [written(event)] if event.full else [*saved, written(event)]


def test_a_state_that_shrinks_is_stored_whole_so_that_a_resume_reads_little() -> None:
    live = TurnState()
    live.advance(1, encoded({"chat": ["m" * 100] * 100, "keep": "k" * 2000}))
    event = live.advance(2, encoded({"chat": [], "keep": "k" * 2000}))
    assert event.full
    assert msgspec.json.decode(event.encode())["turn"] == 2
