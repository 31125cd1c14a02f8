"""Names for classes, and classes for names. Nothing here imports a module or calls user code."""

import dataclasses
import sys
import types
import typing
import weakref
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import lru_cache
from pathlib import PurePath


class Refusal(Exception):
    """Inside the encoder: a value cannot be stored. Becomes `NotStorable` with the whole path.

    Attributes:
        reason: what is wrong with the innermost value.
        path: steps towards it, innermost first; filled in on the way up.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """Among the hints for reading: what was stored as of module `old` may be in `new` now."""

    old: str
    new: str


# Looking a class up takes longer than storing an object of it.
_FINDABLE: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()


def class_name(cls: type) -> str:
    """The stored name of a class, `module:qualname`.

    A class of the main program is named after the program's file, so that `python desk.py` and a
    worker that imports `desk` agree.
    """
    return f"{_module_name(cls.__module__)}:{cls.__qualname__}"


def display_name(cls: type) -> str:
    """The name of a class in messages: `socket.socket`, `dict`, `desk.Hit`."""
    module = _module_name(cls.__module__)
    if module == "outlast.errors":
        module = "outlast"  # the public name
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"


def find_class(name: str, hints: Sequence[object] = ()) -> type | None:
    """The class stored under a name: among the annotations, then among the imported modules.

    Args:
        name: as `class_name` gives it.
        hints: annotations; every class reachable from them can be found, even if it was moved to
            another module since. And `Moved` ones, for classes that no annotation mentions.
    """
    hinted = _hinted(hints) if hints else {}
    if name in hinted:
        return hinted[name]
    module, _, qualname = name.partition(":")
    for hint in hints:
        if type(hint) is Moved and hint.old == module:
            found = _in_module(hint.new, qualname)
            if found is not None:
                return found
    found = _in_module(module, qualname)
    if found is not None:
        return found
    same = [cls for cls in hinted.values() if cls.__qualname__ == qualname]
    return same[0] if len(same) == 1 else None


def _in_module(module: str, qualname: str) -> type | None:
    for namespace in _namespaces(module):
        found = _walk(namespace, qualname)
        if found is not None:
            return found
    return None


def check_findable(cls: type, hints: Sequence[object]) -> str:
    """The name of a class that a later process can find again.

    Raises:
        Refusal: there is no such name.
    """
    name = _FINDABLE.get(cls) or class_name(cls)
    found = find_class(name, hints) if hints or cls not in _FINDABLE else cls
    if found is cls:
        if not hints:
            _FINDABLE[cls] = name
        return name
    if "<locals>" in name:
        why = "it is defined inside a function; move it to the top level of its module"
    elif found is None:
        why = f"no imported module has a class {name}"
    else:
        why = f"the name {name} belongs to another class"
    raise Refusal(f"type {display_name(cls)} cannot be stored: {why}")


def _module_name(module: str) -> str:
    if module != "__main__":
        return module
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m pkg.module
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return _stem(file) if file else module


@lru_cache(maxsize=8)
def _stem(file: str) -> str:
    return PurePath(file).stem


def _namespaces(module: str) -> Iterator[dict[str, object]]:
    """Where a module's classes may be. The main program comes first: its own classes are the ones
    it stores, even if something imported the same file a second time under its real name."""
    if "__main__" in sys.modules and _module_name("__main__") == module:
        yield vars(sys.modules["__main__"])
    if module in sys.modules:
        yield vars(sys.modules[module])


def _walk(namespace: dict[str, object], qualname: str) -> type | None:
    # `vars`, not `getattr`: a module's `__getattr__` may import, a metaclass's may do anything.
    outer, bracket, _ = qualname.partition("[")
    scope: typing.Mapping[str, object] = namespace
    found: object = None
    for part in outer.split("."):
        found = scope.get(part)
        scope = vars(found) if isinstance(found, type) else {}
    if not isinstance(found, type):
        return None
    return _parametrised(found, qualname) if bracket else found


def _parametrised(origin: type, qualname: str) -> type | None:
    """A pydantic generic with its arguments, such as `Box[int]`: a subclass that pydantic made when
    the program first wrote it. Two of one name are ambiguous and so not found."""
    subclasses: list[type] = type.__subclasses__(origin)
    same = [
        cls
        for cls in subclasses
        if cls.__qualname__ == qualname and "__pydantic_generic_metadata__" in vars(cls)
    ]
    return same[0] if len(same) == 1 else None


def _hinted(hints: Sequence[object]) -> dict[str, type]:
    try:
        return _hinted_cached(tuple(hints))
    except TypeError:  # an annotation that cannot be hashed, such as Annotated[int, []]
        return _collect(hints)


@lru_cache(maxsize=1024)
def _hinted_cached(hints: tuple[object, ...]) -> dict[str, type]:
    return _collect(hints)


def _collect(hints: Sequence[object]) -> dict[str, type]:
    return {class_name(cls): cls for cls in reversed(reachable_classes(hints))}


def reachable_classes(hints: Sequence[object]) -> list[type]:
    """Every class that the annotations mention, and those that their fields mention, and so on."""
    waiting = list(reversed(hints))
    seen: set[int] = set()
    classes: list[type] = []
    while waiting:
        hint = waiting.pop()
        if id(hint) in seen:
            continue
        seen.add(id(hint))
        if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
            classes.append(hint)
            waiting.extend(field_hints(hint))
        else:
            waiting.extend(_parts(hint))
    return classes


def _parts(hint: object) -> list[object]:
    """What an annotation that is no class is made of."""
    if isinstance(hint, Enum):  # in a Literal
        return [type(hint)]
    if isinstance(hint, list | tuple):  # the parameters in Callable[[...], ...]
        return list(hint)
    parts = [typing.get_origin(hint), *typing.get_args(hint)]
    for attribute in ("__supertype__", "__value__", "__bound__", "__constraints__"):
        parts.append(getattr(hint, attribute, None))  # NewType, type alias, TypeVar
    return [part for part in parts if part is not None]


def field_hints(cls: type) -> list[object]:
    """The annotations of a data class's fields; empty for any other class."""
    if "__pydantic_generic_metadata__" in vars(cls):
        return [field.annotation for field in getattr(cls, "__pydantic_fields__", {}).values()]
    has_fields = (
        dataclasses.is_dataclass(cls)
        or hasattr(cls, "__attrs_attrs__")
        or hasattr(cls, "__struct_fields__")
        or hasattr(cls, "_fields")
        or typing.is_typeddict(cls)
    )
    if not has_fields:
        return []
    try:
        return list(typing.get_type_hints(cls, include_extras=True).values())
    except Exception:
        # Best effort by contract: a name that exists only for the type checker, say. The classes
        # that it would have led to can still be found in their modules.
        return list(vars(cls).get("__annotations__", {}).values())
