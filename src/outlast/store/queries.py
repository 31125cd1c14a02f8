"""The named statements of `sql/queries.sql`.

A statement follows a line `-- name: its_name` and ends with `;`. Other comment lines are for the
reader. Parameters are written `:name`.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: *(\S+) *$", re.MULTILINE)


def parse_queries(text: str) -> Mapping[str, str]:
    """Split a file of named statements.

    Raises:
        ValueError: a name is used twice, or a statement is missing or does not end with `;`.
    """
    _, *parts = _NAME.split(text)
    queries: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        # Without its comments: SQLite would parse what stands behind the last `;` every time.
        lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
        statement = "\n".join(lines).strip()
        if name in queries:
            raise ValueError(f"query {name!r} is defined twice")
        if not statement.endswith(";"):
            raise ValueError(f"query {name!r} has no statement that ends with ';'")
        queries[name] = statement
    return queries


@cache
def load_queries() -> Mapping[str, str]:
    """The statements that ship with the library."""
    file = resources.files("outlast.store").joinpath("sql/queries.sql")
    return parse_queries(file.read_text(encoding="utf-8"))
