"""Fingerprints are the same everywhere; previews never fail."""

import os
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, make_dataclass

import pytest
from hypothesis import HealthCheck, given, settings

from outlast.codec import decode, digest, encode, preview
from tests.codec import kinds
from tests.strategies import stored_values

PROGRAM = """
from outlast.codec import digest, encode
from tests.codec import kinds
words = [f"word{n}" for n in range(50)]
value = {"set": set(words), "frozen": frozenset(kinds.Frozen(key=w) for w in words),
         "nested": {frozenset(words[:9]), (1, "a"), None}, frozenset("abc"): kinds.Rights(3)}
print(digest(value), encode({"s": set(words)}).hex())
"""


def test_the_same_in_processes_with_different_hash_seeds() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(found) == 1


def test_pinned_because_stored_runs_are_compared_with_it() -> None:
    assert digest({"b": (1, 2.5), "a": {"x"}}) == "8eab2c3fb287aa722836541bf17e4ee1"


@given(stored_values)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_value_and_its_stored_copy_have_one_digest(value: object) -> None:
    assert digest(decode(encode(value))) == digest(value)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
        ({1: "x", 2: "y"}, {2: "y", 1: "x"}),
        (Counter("ab"), Counter("ba")),
        (defaultdict(int, a=1, b=2), defaultdict(int, b=2, a=1)),
        ({8, 16, 0}, {0, 16, 8}),
    ],
)
def test_equal_values_have_equal_digests(left: object, right: object) -> None:
    assert left == right
    assert digest(left) == digest(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 1.0), (1, True), (1, "1"), ([1], (1,)), (b"a", bytearray(b"a")), (None, "null"),
        ({1: 1}, {"1": 1}), (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)), ([1, 2], [2, 1]),
        (kinds.Hit("a"), kinds.Best("a")), ({"$tuple": [1]}, (1,)), (set(), frozenset()),
    ],
)  # fmt: skip
def test_different_values_have_different_digests(left: object, right: object) -> None:
    assert digest(left) != digest(right)


def test_a_class_inside_a_function_has_a_digest() -> None:
    @dataclass
    class Local:
        x: int

    assert digest(Local(1)) == digest(Local(1)) != digest(Local(2))


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Rude:
    def __repr__(self) -> str:
        return "a\nb\x1b[31m\ud800"


def test_preview_shows_names_and_hides_secrets() -> None:
    shown = preview({"order": kinds.Hit("A"), "token": "s3cret", "n": 1}, frozenset({"token"}))
    assert shown == "order=Hit(title='A', score=0.5, tags=[]), token=***, n=1"


def test_preview_survives_broken_and_rude_reprs() -> None:
    assert preview({"a": Broken(), "b": [Broken()]}) == (
        "a=<unprintable Broken>, b=[<unprintable Broken>]"
    )
    assert preview({"a": Rude()}) == r"a=a\nb\x1b[31m\ud800"
    assert "unprintable int" in preview({"a": 10**5000})


def test_preview_is_short_even_of_what_is_long() -> None:
    looped: list[object] = []
    looped.append(looped)
    for value in ("x" * 10**7, b"x" * 10**7, list(range(10**6)), looped, kinds.Hit("y" * 10**6)):
        assert len(preview({"value": value})) <= 200
    assert len(preview({f"argument{n}": n for n in range(100)})) == 200
    assert preview({"q": "x" * 300}).count("…") == 1


def test_moving_a_class_to_another_module_changes_no_fingerprint() -> None:
    here = make_dataclass("Order", ["number"], namespace={"__module__": "here"})
    there = make_dataclass("Order", ["number"], namespace={"__module__": "there"})
    renamed = make_dataclass("Sale", ["number"], namespace={"__module__": "here"})
    assert digest([here(1)]) == digest([there(1)])
    assert digest([here(1)]) != digest([renamed(1)])
