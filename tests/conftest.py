"""What tests of several folders use."""

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def others_garbage() -> Iterator[None]:
    """Libraries that leave sockets to the garbage collector: it comes here, and not in a later test
    that would be blamed for them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
