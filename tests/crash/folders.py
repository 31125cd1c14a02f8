"""Where the runs of these tests live."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outlast.worker.stores import get_store

MEMORY = Path("/dev/shm")


@contextmanager
def folder_in_memory(otherwise: Path) -> Iterator[Path]:
    """A new folder in memory, where there is such a place. A SIGKILL does not touch the page
    cache, so a disk would add nothing to these tests but the waits for its syncs."""
    if not MEMORY.is_dir():
        yield otherwise
        return
    folder = Path(tempfile.mkdtemp(prefix="outlast-test-", dir=MEMORY))
    try:
        yield folder
    finally:
        for file in folder.rglob("*.db"):
            get_store(f"sqlite:///{file}").store.close()
        shutil.rmtree(folder)
