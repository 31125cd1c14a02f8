import pytest

from outlast.store.queries import load_queries, parse_queries


def test_statements_are_found_by_name_without_their_comments() -> None:
    queries = parse_queries(
        "-- About the file.\n\n-- Why.\n-- name: one\nSELECT\n  -- inside\n  1;\n\n"
        "-- About two.\n-- name: two\nSELECT 2;\n"
    )
    assert queries == {"one": "SELECT\n  1;", "two": "SELECT 2;"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;", "twice"),
        ("-- name: a\n-- name: b\nSELECT 2;", "'a' has no statement"),
        ("-- name: a\nSELECT 1\n", "';'"),
    ],
)
def test_a_malformed_file_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_queries(text)


def test_the_shipped_statements_load() -> None:
    assert "append_events" in load_queries()


def test_no_statement_changes_an_event() -> None:
    """The library's own connection does without the triggers that refuse it."""
    for name, statement in load_queries().items():
        words = " ".join(statement.split()).upper()
        touches = "EVENTS" in words and not words.startswith(("SELECT", "WITH", "UPDATE RUNS"))
        assert not touches or (name == "append_events" and words.startswith("INSERT INTO EVENTS"))
