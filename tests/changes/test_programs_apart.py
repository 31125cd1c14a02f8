"""Programs that one process loads one after the other do not see each other's modules."""

import json
import sys
from types import ModuleType

import pytest

from outlast.testing import replay
from tests.changes.programs import HEAD, Workshop

DESK = (
    HEAD
    + """
from dataclasses import dataclass
from tools import word

print("imported", word())

@dataclass
class Note:
    text_of_CHECKOUT: str

@outlast.step
def write(text):
    return [Note(text)]

@outlast.step
def tell(text):
    did(text)
    return text

@outlast.workflow
def desk():
    notes = write(word())
    from parts import extra
    return tell(notes[0].text_of_CHECKOUT + extra.NAME)
"""
)
"""No annotation mentions the class, so it is looked for in the module of its name."""

BEGIN = """
import sys
import outlast
sys.path.insert(0, "CHECKOUT")
from parts.flow import desk
outlast.run(desk, run_id="CHECKOUT-package")
"""


def _write(shop: Workshop, checkout: str) -> None:
    desk = DESK.replace("CHECKOUT", checkout)
    shop.write(desk, f"{checkout}/desk.py")
    shop.write(f"def word(): return 'word of {checkout}'", f"{checkout}/tools.py")
    shop.write("", f"{checkout}/parts/__init__.py")
    shop.write(f"NAME = ' and its part of {checkout}'", f"{checkout}/parts/extra.py")
    shop.write(desk, f"{checkout}/parts/flow.py")
    shop.write(BEGIN.replace("CHECKOUT", checkout), f"begin_{checkout}.py")


@pytest.fixture
def checkouts(shop: Workshop) -> Workshop:
    """Killed runs of two checkouts, alternately."""
    for checkout in "ab":
        _write(shop, checkout)
    for run_id in ("a-1", "b-1", "a-2", "b-2"):
        shop.die_at(f"word of {run_id[0]} and its part of {run_id[0]}")
        assert shop.run(f"{run_id[0]}/desk.py:desk", run_id).killed
    for checkout in "ab":
        shop.die_at(f"word of {checkout} and its part of {checkout}")
        assert shop.python(f"begin_{checkout}.py").killed
    (shop.folder / "effects.log").unlink()
    return shop


def test_each_run_is_replayed_with_the_modules_beside_its_own_file(checkouts: Workshop) -> None:
    done = checkouts.command("replay")
    assert (done.code, done.stdout) == (0, "6 runs fit\n"), done
    # In `parts/`, too, the modules are those of the checkout; and none is imported twice.
    assert sorted(line for line in done.stderr.splitlines() if "imported" in line) == [
        "imported word of a",
        "imported word of a",
        "imported word of b",
        "imported word of b",
    ]
    checkouts.write("def word(): return 'other word of b'", "b/tools.py")
    changed = json.loads(checkouts.command("replay", "--json").stdout)
    assert {misfit["run_id"] for misfit in changed["misfits"]} == {"b-1", "b-2", "b-package"}
    (checkouts.folder / "a" / "tools.py").unlink()
    gone = json.loads(checkouts.command("replay", "--json").stdout)
    missing = [misfit for misfit in gone["misfits"] if misfit["reason"] == "missing"]
    assert {misfit["run_id"] for misfit in missing} == {"a-1", "a-2", "a-package"}
    assert all("No module named 'tools'" in misfit["detail"] for misfit in missing)


def test_each_run_is_resumed_with_the_modules_beside_its_own_file(checkouts: Workshop) -> None:
    done = checkouts.command("resume", "--all", "--in-process")
    assert done.code == 0, done
    assert checkouts.effects() == [
        f"word of {checkout} and its part of {checkout}" for checkout in "ababab"
    ]


def test_a_test_process_is_left_as_it_was(
    checkouts: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkouts.folder)
    own = {name: ModuleType(name) for name in ("desk", "tools", "tools.saw")}
    for name, module in own.items():
        monkeypatch.setitem(sys.modules, name, module)
    path = sys.path.copy()
    for run_id in ("a-1", "b-1", "b-package", "a-1"):
        assert replay(run_id, store=checkouts.url).calls == 2
        assert {name: sys.modules[name] for name in own} == own
        assert not sys.modules.keys() & {"parts", "parts.extra", "parts.flow"}
        assert sys.path == path
