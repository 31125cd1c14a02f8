"""What is told from a loop's bytecode, against a walk over all ways through its source."""

import dis
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from hypothesis import example, given, settings
from hypothesis import strategies as st

from outlast.engine.carried import Loop, loop_at

# A statement is a tuple: its kind, then names of locals and blocks of statements.
Statement = tuple[object, ...]
Block = tuple[Statement, ...]

LOCALS = ("a", "b")
BEFORE, NOW, LOST, GONE = "before", "now", "lost", "gone"
State = tuple[str, ...]  # where the value of each local comes from
Way = Literal["next", "break", "continue", "return", "raise"]
Ends = set[tuple[Way, State]]


# ---- the source


def lines(block: Block) -> Iterator[str]:
    for statement in block or (("pass",),):
        yield from written(statement)


def indented(block: Block) -> Iterator[str]:
    return (f"    {line}" for line in lines(block))


def written(statement: Statement) -> Iterator[str]:
    match statement:
        case ("set", name):
            yield f"{name} = make()"
        case ("read", name):
            yield f"use({name})"
        case ("delete", name):
            yield f"{name} = 0; del {name}"
        case ("comprehension", name):
            yield f"use([{name} for {name} in items()])"
        case ("if", body, other):
            yield from ("if condition():", *indented(body), "else:", *indented(other))  # type: ignore[arg-type]
        case ("for", name, body):
            yield from (f"for {name} in items():", *indented(body))  # type: ignore[arg-type]
        case ("while", body):
            yield from ("while True:", *indented(body))  # type: ignore[arg-type]
        case ("except", body, handler, other):
            yield from ("try:", *indented(body), "except ValueError as e:", *indented(handler))  # type: ignore[arg-type]
            yield from ("else:", *indented(other))  # type: ignore[arg-type]
        case ("finally", body, final):
            yield from ("try:", *indented(body), "finally:", *indented(final))  # type: ignore[arg-type]
        case ("with", manager, body):
            yield from (f"with {manager}():", *indented(body))  # type: ignore[arg-type]
        case (word,):
            yield str(word)


def compiled(body: Block, colour: str) -> tuple[Loop, str]:
    source = (
        f"{colour}def flow(turns):\n    a = b = make()\n    {colour}for turn in turns:\n"
        + textwrap.indent("\n".join(lines(body)), " " * 8)
        + "\n    use(a)\n"
    )
    if colour:  # whatever can be awaited is
        source = re.sub(r"(?<!async )(for [ab] in|with )", r"async \1", source)
        source = re.sub(r"(use|make)\(", r"await \1(", source)
    names: dict[str, Callable[..., object]] = {}
    exec(compile(source, "flow.py", "exec"), names)
    code = names["flow"].__code__
    start = next(i for i in dis.get_instructions(code) if i.opname in ("GET_ITER", "GET_AITER"))
    loop = loop_at(code, start.offset)
    assert loop is not None
    return loop, source


# ---- all ways through it, by its structure


class Ways:
    def __init__(self) -> None:
        self.lost: set[str] = set()
        """Locals that were read after they were set in an earlier turn."""

    def loop(self, body: Block) -> set[str]:
        before: set[State] = set()
        fresh = {(BEFORE, BEFORE)}
        ends = {("next", (BEFORE, BEFORE))}
        while fresh - before:
            before |= fresh
            after = self.block(body, fresh)
            ends |= {(way, state) for way, state in after if way in ("next", "continue", "break")}
            fresh = {
                tuple(LOST if x == NOW else x for x in state)
                for way, state in after
                if way in ("next", "continue")
            }
        self.block((("read", "a"),), {state for _, state in ends})
        return self.lost

    def block(self, block: Block, states: Iterable[State]) -> Ends:
        ends: Ends = {("next", state) for state in states}
        for statement in block:
            going = {state for way, state in ends if way == "next"}
            ends = {(way, state) for way, state in ends if way != "next"}
            for state in going:
                ends |= self.one(statement, state)
        return ends

    def one(self, statement: Statement, state: State) -> Ends:
        raised: Ends = {("raise", state)}
        match statement:
            case ("set", name):
                return raised | {("next", _with(state, name, NOW))}
            case ("read", name):
                if state[LOCALS.index(str(name))] == LOST:
                    self.lost.add(str(name))
                return raised | {("next", state)}
            case ("delete", name):
                return {("next", _with(state, name, GONE))}
            case ("comprehension", _):
                return raised | {("next", state)}
            case ("if", body, other):
                return raised | self.block(body, {state}) | self.block(other, {state})  # type: ignore[arg-type]
            case ("for", name, body):
                return self.inner(body, state, str(name))  # type: ignore[arg-type]
            case ("while", body):
                return self.inner(body, state, None)  # type: ignore[arg-type]
            case ("except", body, handler, other):
                return self.handled(body, handler, other, state)  # type: ignore[arg-type]
            case ("finally", body, final):
                return {
                    (way if last == "next" else last, after)
                    for way, between in self.block(body, {state})  # type: ignore[arg-type]
                    for last, after in self.block(final, {between})  # type: ignore[arg-type]
                }
            case ("with", manager, body):
                ends = self.block(body, {state})  # type: ignore[arg-type]
                left: Ends = {("raise", after) for _, after in ends}  # by its exit
                swallowed: Ends = {("next", after) for way, after in ends if way == "raise"}
                return raised | ends | left | (swallowed if manager == "suppress" else set())
            case ("pass",):
                return {("next", state)}
            case (word,):
                return {(word, state)}  # type: ignore[arg-type]
        raise AssertionError(statement)

    def inner(self, body: Block, state: State, name: str | None) -> Ends:
        ends: Ends = set()
        known: set[State] = set()
        fresh = {state}
        while fresh - known:
            known |= fresh
            if name is not None:  # items() or its iterator raises, or there are no more
                ends |= {(way, s) for way in ("raise", "next") for s in fresh}  # type: ignore[misc]
                fresh = {_with(s, name, NOW) for s in fresh}
            after = self.block(body, fresh)
            ends |= {("next" if way == "break" else way, s) for way, s in after
                     if way not in ("next", "continue")}  # fmt: skip
            fresh = {s for way, s in after if way in ("next", "continue")}
        return ends

    def handled(self, body: Block, handler: Block, other: Block, state: State) -> Ends:
        ends: Ends = set()
        for way, after in self.block(body, {state}):
            if way == "raise":
                ends |= {("raise", after)} | self.block(handler, {after})
            elif way == "next":
                ends |= self.block(other, {after})
            else:
                ends.add((way, after))
        return ends


def _with(state: State, name: object, value: str) -> State:
    return tuple(value if local == name else x for local, x in zip(LOCALS, state, strict=True))


# ---- programs

names = st.sampled_from(LOCALS)
simple = st.one_of(
    st.tuples(st.just("set"), names),
    st.tuples(st.just("read"), names),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("comprehension"), names),
)
leaving = st.sampled_from(["break", "continue", "return", "pass"]).map(lambda word: (word,))


def _blocks(inner: st.SearchStrategy[Statement]) -> st.SearchStrategy[Statement]:
    block = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.tuples(st.just("if"), block, block),
        st.tuples(st.just("for"), names, block),
        st.tuples(st.just("while"), block),
        st.tuples(st.just("except"), block, block, block),
        st.tuples(st.just("finally"), block, st.lists(simple, min_size=1, max_size=2).map(tuple)),
        st.tuples(st.just("with"), st.sampled_from(["manager", "suppress"]), block),
    )


statements: st.SearchStrategy[Statement] = st.recursive(simple | leaving, _blocks, max_leaves=10)
bodies = st.lists(statements, min_size=1, max_size=4).map(tuple)


@settings(max_examples=300, deadline=None)
@given(body=bodies, colour=st.sampled_from(["", "async "]))
@example(body=(("with", "suppress", (("set", "a"),)), ("read", "a")), colour="")
@example(
    body=(("finally", (("if", (("set", "b"), ("break",)), ()),), (("read", "b"),)),), colour=""
)
def test_a_loop_is_refused_if_some_way_reads_what_an_earlier_turn_set(
    body: Block, colour: str
) -> None:
    loop, source = compiled(body, colour)
    assert {r.name for r in loop.rebound} == Ways().loop(body), source
