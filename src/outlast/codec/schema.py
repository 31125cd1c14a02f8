"""What a type expects, as JSON Schema, and whether a value fits."""

import sys

import msgspec

from outlast.codec.classes import class_name, find_class
from outlast.codec.plain import is_modelled


def json_schema(annotation: object) -> bytes:
    """The JSON Schema of a type, as JSON; empty if it has none, so that any value may fit."""
    try:
        if is_modelled(annotation):
            adapter = sys.modules["pydantic"].TypeAdapter(annotation)
            return msgspec.json.encode(adapter.json_schema())
        return msgspec.json.encode(msgspec.json.schema(annotation))
    except Exception:
        # Best effort by contract: whether a value fits is seen again when it is read as the type.
        return b""


def type_name(annotation: object) -> str:
    """Under which name `find_type` finds a class; empty for anything else."""
    if not isinstance(annotation, type):
        return ""
    name = class_name(annotation)
    return name if find_class(name) is annotation else ""


def find_type(name: str) -> type | None:
    """The class of that name, if this process has imported it."""
    return find_class(name) if name else None


def mismatch(data: bytes, schema: bytes) -> str:
    """Why a JSON value does not fit a JSON Schema, in words; empty if it does."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    validator = Draft202012Validator(msgspec.json.decode(schema))
    try:
        error = best_match(validator.iter_errors(msgspec.json.decode(data)))
    except RecursionError:
        return "it is nested too deeply to be checked"
    if error is None:
        return ""
    # The message may quote a value of megabytes, and where it is should be seen all the same.
    message = f"{error.message[:MESSAGE]}…" if len(error.message) > MESSAGE else error.message
    return f"{message} (at {error.json_path})" if error.path else message


MESSAGE = 300
"""Most characters of what is said about one value."""
