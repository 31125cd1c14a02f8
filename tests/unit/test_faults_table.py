"""The page about faults tells what is true."""

from outlast.policy.faults.codes import ERRNO, GRPC, JSON_RPC, SQLITE
from outlast.policy.faults.http import STATUSES
from outlast.policy.faults.rules import INDEX, RULES
from tests.unit.faults_table import BLOCK, PAGE, TABLES, page


def test_the_tables_in_the_docs_are_what_the_code_does() -> None:
    again = "write them: python -m tests.unit.faults_table"
    assert PAGE.read_text(encoding="utf-8") == page(), again


def test_the_page_has_every_table_with_every_row() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [block[2] for block in BLOCK.finditer(text)] == list(TABLES)
    for name in (*STATUSES, *GRPC, *JSON_RPC, *SQLITE):
        assert f"`{name}`" in text, name
    for _, name in INDEX:
        assert f"`{name}`" in text, name


def test_no_class_has_two_rows() -> None:
    named = sum(len(rule.packages.split()) * len(rule.names.split()) for rule in RULES)
    assert len(INDEX) == named
    assert ERRNO
