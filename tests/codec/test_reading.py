"""Reading runs no user code, imports nothing and says what is wrong."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, NewType, Optional, TypedDict

import msgspec
import pytest

from outlast.codec import decode, encode
from outlast.errors import Unreadable
from tests.codec import kinds


@pytest.fixture
def armed() -> Iterator[None]:
    yield
    kinds.armed.clear()


@pytest.mark.usefixtures("armed")
@pytest.mark.parametrize(
    "value",
    [
        kinds.TrapDataclass(1),
        kinds.TrapStruct(1, [2]),
        kinds.TrapStructChild(value=1),
        kinds.TrapAttrs(1),
        kinds.TrapModel(value=1),
        kinds.Derived(1, 2),
        kinds.PairPlus(1, 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_constructor_or_validator_runs(value: object) -> None:
    data = encode(value)
    kinds.armed.append(True)
    back = decode(data)
    kinds.armed.clear()
    assert back == value
    assert repr(back) == repr(value)


@pytest.mark.usefixtures("armed")
def test_a_combination_of_flags_is_made_without_the_class_s_own_missing() -> None:
    data = encode(kinds.TrapRights.READ | kinds.TrapRights.WRITE)
    del kinds.TrapRights._value2member_map_[3]  # as in a process that has not combined them yet
    kinds.armed.append(True)
    back = decode(data)
    kinds.armed.clear()
    assert back is kinds.TrapRights.READ | kinds.TrapRights.WRITE


def test_the_trap_works() -> None:
    kinds.armed.append(True)
    for cls in (kinds.TrapDataclass, kinds.TrapStruct, kinds.TrapAttrs):
        with pytest.raises(AssertionError):
            cls(1)
    kinds.armed.clear()


def test_a_struct_read_back_is_collectable_and_leaves_no_subclass_behind() -> None:
    import gc

    back = decode(encode(kinds.TrapStruct(1, [2])))
    assert gc.is_tracked(back)
    gc.collect()
    assert kinds.TrapStruct.__subclasses__() == [kinds.TrapStructChild]


ATTACKS = [
    {"$dataclass": ["antigravity:Boom", {}]},
    {"$dataclass": ["os:system", {"command": "true"}]},
    {"$dataclass": ["subprocess:Popen", {"args": "true"}]},
    {"$dataclass": ["tests.codec.kinds:Model", {"name": "a"}]},
    {"$dataclass": ["tests.codec.kinds:Colour", {}]},
    {"$dataclass": ["tests.codec.kinds:trap", {}]},
    {"$dataclass": ["tests.codec.kinds:Outer.__init__", {}]},
    {"$dataclass": ["", {}]},
    {"$dataclass": [7, {}]},
    {"$dataclass": "tests.codec.kinds:Hit"},
    {"$dataclass": None},
    {"$struct": ["tests.codec.kinds:Hit", {"title": "a"}]},
    {"$enum": ["tests.codec.kinds:Hit", "RED"]},
    {"$enum": ["tests.codec.kinds:Colour", "GREEN"]},
    {"$enum": ["tests.codec.kinds:Colour", []]},
    {"$flag": ["tests.codec.kinds:Rights", "x"]},
    {"$model": ["tests.codec.kinds:Model", {"name": "a"}]},
    {"$named": ["time:struct_time", {}]},
    {"$tuple": "ab"},
    {"$set": [[]]},
    {"$dict": [1]},
    {"$path": ["Popen", "a"]},
    {"$path": ["PosixPath", 1]},
    {"$defaultdict": ["eval", []]},
    {"$bytes": "***"},
    {"$int": []},
    {"$decimal": "x"},
    {"$datetime": "2024-99-01"},
    {"$datetime": ["2024-01-01", 0, {"$decimal": "1"}]},
    {"$zone": "../../etc/passwd"},
    {"$zone": "No/Where"},
    {"$str": "\\ud8"},
    {"$future": 1},
    [{"$range": [0, 1, 0]}],
]


@pytest.mark.parametrize("tree", ATTACKS, ids=json.dumps)
def test_what_does_not_fit_is_unreadable(tree: object) -> None:
    before = set(sys.modules)
    with pytest.raises(Unreadable):
        decode(json.dumps(tree).encode())
    assert set(sys.modules) - before <= {"tzdata", "tzdata.zoneinfo"}  # zoneinfo's own data


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"a":1', b'{"$tuple":[1]', b"nul"])
def test_damaged_bytes(data: bytes) -> None:
    with pytest.raises(Unreadable):
        decode(data)


def test_a_module_that_is_not_imported_is_named() -> None:
    with pytest.raises(Unreadable, match=r"shop\.orders:Order.*import the module"):
        decode(b'{"$dataclass":["shop.orders:Order",{}]}')


def test_a_module_with_a_lazy_getattr_is_not_triggered() -> None:
    import types

    lazy = types.ModuleType("lazy_module_of_a_test")
    lazy.__getattr__ = lambda name: pytest.fail("asked for an attribute")  # type: ignore[method-assign]
    sys.modules[lazy.__name__] = lazy
    try:
        with pytest.raises(Unreadable):
            decode(b'{"$dataclass":["lazy_module_of_a_test:Order",{}]}')
    finally:
        del sys.modules[lazy.__name__]


def _grown(data: bytes, *, add: dict[str, object], drop: str | None = None) -> bytes:
    """The stored form as an older class would have written it."""
    tree = json.loads(data)
    ((_, (_, fields, *_)),) = tree.items()
    fields.update(add)
    fields.pop(drop, None)
    return json.dumps(tree).encode()


@pytest.mark.parametrize(
    ("value", "field", "default"),
    [
        (kinds.Hit("a", tags=[1]), "tags", []),
        (kinds.Hit("a", score=9), "score", 0.5),
        (kinds.Frozen(key=1, other=2), "other", None),
        (kinds.Point(1, 2, [3]), "more", []),
        (kinds.TrapStruct(1, [3]), "more", []),
        (kinds.FrozenPoint(x=1, z=4), "z", msgspec.UNSET),
        (kinds.AttrsPoint(1, 2, [3]), "more", []),
        (kinds.AttrsPoint(1, 2, [3]), "_hidden", 1),
        (kinds.Model(name="a", size=9), "size", 3),
        (kinds.ModelDataclass(1, [2]), "many", []),
        (kinds.Trio(1, 2, 9), "c", 3),
    ],
)
def test_a_field_that_the_class_has_grown_gets_its_default(value, field: str, default) -> None:
    back = decode(_grown(encode(value), add={}, drop=field))
    assert getattr(back, field) == default
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (kinds.Hit("a"), "title"),
        (kinds.Point(1), "x"),
        (kinds.TrapStruct(1), "value"),
        (kinds.AttrsPoint(1), "x"),
        (kinds.Model(name="a"), "name"),
        (kinds.Trio(1), "a"),
    ],
)
def test_fields_that_cannot_be_matched_are_named(value: object, field: str) -> None:
    with pytest.raises(Unreadable, match=rf"field '{field}' of .*{type(value).__name__}"):
        decode(_grown(encode(value), add={}, drop=field))
    with pytest.raises(Unreadable, match=r"has no field 'gone' any more"):
        decode(_grown(encode(value), add={"gone": 1}))


def test_a_new_default_factory_gives_each_object_its_own() -> None:
    data = _grown(encode(kinds.Hit("a")), add={}, drop="tags")
    assert decode(data).tags is not decode(data).tags


def test_annotations_of_every_form_lead_to_classes() -> None:
    @dataclass
    class Leaf:
        x: int

    @dataclass
    class Tree:
        leaf: Leaf

    class Row(TypedDict):
        tree: Tree

    alias = NewType("alias", Tree)
    for hint in (
        Tree, list[Tree], dict[str, list[Tree]], Optional[Tree], Tree | None,  # noqa: UP045

        Annotated[Tree, "note"], Annotated[Tree, []], tuple[Tree, ...], Row, alias, type[Tree],
        kinds.Box[Tree], kinds.Crate[Tree],
    ):  # fmt: skip
        data = encode(Tree(Leaf(1)), hints=[hint])
        assert decode(data, hints=[hint]) == Tree(Leaf(1))
    with pytest.raises(Unreadable):
        decode(data)


def test_a_class_that_has_moved_is_found_by_its_annotation() -> None:
    stored = b'{"$dataclass":["old.place:Hit",{"title":"a"}]}'
    assert decode(stored, hints=[list[kinds.Best] | kinds.Hit]) == kinds.Hit("a")
    with pytest.raises(Unreadable):
        decode(stored)
    with pytest.raises(Unreadable):  # two of that name: which one is it?
        decode(stored, hints=[kinds.Hit, dataclass(type("Hit", (), {"__qualname__": "Hit"}))])


def test_a_literal_of_enum_members_leads_to_the_enum() -> None:
    from enum import Enum

    class Mode(Enum):
        ON = 1

    hint = Literal[Mode.ON]
    assert decode(encode(Mode.ON, hints=[hint]), hints=[hint]) is Mode.ON


def test_raw_json_from_an_event_is_accepted() -> None:
    assert decode(msgspec.Raw(encode((1, 2)))) == (1, 2)


DESK = """
import sys
from dataclasses import dataclass
from outlast.codec import decode, encode

@dataclass
class Hit:
    title: str

if __name__ == "__main__":
    data = encode(Hit("a"))
    assert decode(data) == Hit("a")
    sys.stdout.buffer.write(data)
"""


def test_a_class_of_the_main_program_is_named_by_its_file(tmp_path) -> None:
    (tmp_path / "desk.py").write_text(DESK)
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "desk.py").write_text(DESK)

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}

    def run(*arguments: str) -> bytes:
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE
        ).stdout

    stored = run("desk.py")
    assert stored == b'{"$dataclass":["desk:Hit",{"title":"a"}]}'
    assert run("-m", "shop.desk") == b'{"$dataclass":["shop.desk:Hit",{"title":"a"}]}'

    worker = "import sys, desk, outlast.codec as c; print(c.decode(sys.argv[1].encode()))"
    assert run("-c", worker, stored.decode()) == b"Hit(title='a')\n"
