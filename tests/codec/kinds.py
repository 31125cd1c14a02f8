"""Data classes of every kind that the codec stores, for its tests.

Those whose names start with `Trap` fail as soon as anything constructs or validates them while
`armed` is set.
"""

import enum
import functools
from collections import namedtuple
from dataclasses import InitVar, dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import attrs
import msgspec
import pydantic
import pydantic.dataclasses

T = TypeVar("T")
armed: list[bool] = []


def trap(*_: object) -> None:
    if armed:
        raise AssertionError("user code ran while a value was read")


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2
    CRIMSON = "red"  # noqa: PIE796 - an alias on purpose


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    YES = "yes"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class IntRights(enum.IntFlag):
    READ = 1
    WRITE = 2


class TrapRights(enum.Flag):
    READ = 1
    WRITE = 2

    @classmethod
    def _missing_(cls, value: object) -> Any:
        trap()
        return super()._missing_(value)


@dataclass
class Hit:
    title: str
    score: Any = 0.5
    tags: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    key: Any
    other: Any = None


@dataclass
class Best(Hit):
    rank: Any = 1


@dataclass(slots=True)
class SlottedBase:
    first: Any


@dataclass(slots=True)
class SlottedChild(SlottedBase):
    second: Any = 2


@dataclass
class HiddenSlot(SlottedBase):
    first: Any = "hides the slot of the base"


@dataclass
class Derived:
    value: int
    seed: InitVar[int]
    total: int = field(init=False)
    fixed: int = field(init=False, default=7)

    def __post_init__(self, seed: int) -> None:
        trap()
        self.total = self.value + seed

    @functools.cached_property
    def double(self) -> int:
        return self.total * 2


@dataclass
class Box(Generic[T]):
    item: T


@dataclass(unsafe_hash=True)
class TrapDataclass:
    value: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> "TrapDataclass":
        trap()
        return super().__new__(cls)

    def __post_init__(self) -> None:
        trap()

    def __setattr__(self, name: str, value: object) -> None:
        trap()
        super().__setattr__(name, value)


class Point(msgspec.Struct):
    x: Any
    y: Any = 0
    more: list[Any] = []


class FrozenPoint(Point, frozen=True, kw_only=True):
    z: Any = msgspec.UNSET


class TrapStruct(msgspec.Struct, frozen=True, tag=lambda name: trap() or name.lower()):
    value: Any
    more: list[Any] = []

    def __post_init__(self) -> None:
        trap()

    def __init_subclass__(cls) -> None:
        trap()


class TrapStructChild(TrapStruct, frozen=True, kw_only=True):
    other: Any = None


class DictStruct(msgspec.Struct, dict=True):
    value: Any

    @functools.cached_property
    def twice(self) -> Any:
        return self.value * 2


@attrs.define
class AttrsPoint:
    x: Any
    _hidden: Any = 1
    more: list[Any] = attrs.field(factory=list)

    @functools.cached_property
    def double(self) -> Any:
        return self.x * 2


@attrs.define(slots=False)
class AttrsDict:
    x: Any


@attrs.frozen(cache_hash=True)
class AttrsHashed:
    x: Any


@attrs.frozen(cache_hash=True, slots=False)
class AttrsHashedDict:
    x: Any


@attrs.define
class TrapAttrs:
    value: Any = attrs.field(validator=trap, converter=lambda value: trap() or value)

    def __attrs_post_init__(self) -> None:
        trap()


class Model(pydantic.BaseModel):
    name: str
    size: Any = 3
    _secret: Any = pydantic.PrivateAttr(default_factory=list)

    @functools.cached_property
    def shout(self) -> str:
        return self.name.upper()


class SubModel(Model):
    extra_field: Any = None


class Holder(pydantic.BaseModel):
    model: Model


class OpenModel(pydantic.BaseModel, extra="allow", frozen=True):
    name: str


class Crate(pydantic.BaseModel, Generic[T]):
    item: T


IntCrate = Crate[int]


class Roots(pydantic.RootModel[list[int]]):
    pass


class TrapModel(pydantic.BaseModel):
    value: Any

    def __init__(self, **data: Any) -> None:
        trap()
        super().__init__(**data)

    def __setattr__(self, name: str, value: Any) -> None:
        trap()
        super().__setattr__(name, value)

    @pydantic.field_validator("value")
    @classmethod
    def check(cls, value: Any) -> Any:
        trap()
        return value

    def model_post_init(self, context: Any) -> None:
        trap()


@pydantic.dataclasses.dataclass
class ModelDataclass:
    value: int
    many: list[int] = pydantic.Field(default_factory=list)


Pair = namedtuple("Pair", ["left", "right"])


class Trio(NamedTuple):
    a: Any
    b: Any = 2
    c: Any = 3


class PairPlus(namedtuple("PairPlus", ["left", "right"])):
    __slots__ = ()

    def __new__(cls, *args: Any) -> "PairPlus":
        trap()
        return super().__new__(cls, *args)


class Outer:
    @dataclass
    class Inner:
        value: Any
