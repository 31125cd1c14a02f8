"""The page about values tells what is true."""

from tests.codec.table import PAGE, page


def test_the_table_in_the_docs_is_what_the_codec_does() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it: make values"
