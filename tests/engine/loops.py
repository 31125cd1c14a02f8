"""Workflows around turn loops, as text, so that each can be had with `for` and with `async for`."""

import textwrap
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pydantic

import outlast
from outlast import step, workflow


@step
def look(n: int) -> int:
    return n % 3


@step
def fails(n: int) -> int:
    if n % 2:
        raise ValueError("as expected")
    return n


@contextmanager
def grumpy() -> Any:
    """Swallows nothing."""
    yield 1


class Client:
    """No plain data."""

    def __init__(self) -> None:
        self.calls = 0

    def call(self) -> int:
        self.calls += 1
        return 1


@dataclass
class Usage:
    tokens: int = 0
    parts: list[int] = field(default_factory=list)

    @cached_property
    def doubled(self) -> int:
        return 2 * self.tokens


class Model(pydantic.BaseModel):
    parts: list[int] = []


@dataclass
class Desk:
    log: list[int] = field(default_factory=list)
    other: list[int] = field(default_factory=list)


NAMES = {
    "__name__": __name__,
    "turns": outlast.turns,
    **{thing.__name__: thing for thing in (look, fails, grumpy, nullcontext, suppress, deque)},
    **{thing.__name__: thing for thing in (Client, Usage, Model, Desk)},
}


def program(source: str, colour: str) -> Callable[[], Any]:
    """A workflow whose lines are given; `TURN:` stands for the head of a loop of four turns, whose
    record has the lists `log` and `other`. Unless the lines say otherwise, it returns the log."""
    text = textwrap.dedent(source).strip()
    text = text.replace("TURN:", "TURN in turns(Desk(), max=4):").replace("TURN", f"{colour} turn")
    text = text.replace("AFOR", colour).replace("DEF", "async def" if "async" in colour else "def")
    if "return" not in text:
        text += "\nreturn turn.log"
    head = "async def flow():\n" if "async" in colour else "def flow():\n"
    names = dict(NAMES)
    exec(compile(head + textwrap.indent(text, "    "), "desk.py", "exec"), names)
    return workflow(names["flow"])


REBOUND = {  # the local, the lines that set and read it (`def` is the first), the body
    "a counter": ("nudges", 6, 4, """
        nudges = 0
        TURN:
            turn.log.append(nudges)
            if look(len(turn.log)) == 0:
                nudges += 1"""),
    "a flag": ("tired", 5, 4, """
        tired = False
        TURN:
            turn.log.append(7 if tired else 1)
            tired = look(len(turn.log)) == 1"""),
    "read behind the loop": ("best", 6, 7, """
        best = None
        TURN:
            turn.log.append(look(len(turn.log)))
            if turn.log[-1] == 2:
                best = len(turn.log)
        return best"""),
    "kept where a step fails": ("got", 4, 7, """
        TURN:
            try:
                got = fails(len(turn.log))
            except ValueError:
                look(0)
            turn.log.append(got)"""),
    "set in a finally": ("done", 7, 4, """
        done = 0
        TURN:
            turn.log.append(done)
            try:
                look(1)
            finally: done += 1"""),
    "set where nothing failed": ("fine", 8, 8, """
        fine = 0
        TURN:
            try:
                turn.log.append(fails(2 * len(turn.log)))
            except ValueError:
                continue
            else: fine += 1
        return turn.log"""),
    "kept where an error is swallowed": ("got", 4, 5, """
        TURN:
            with suppress(ValueError):
                got = fails(len(turn.log))
            turn.log.append(got)"""),
    "set in a with": ("n", 4, 4, """
        n = 0
        TURN:
            with nullcontext(): n += 1
            turn.log.append(n)"""),
    "in one arm of a match": ("kind", 6, 7, """
        kind = 0
        TURN:
            match look(len(turn.log)):
                case 0: pass
                case k: kind = k
            turn.log.append(kind)"""),
    "by a walrus": ("n", 4, 4, """
        n = 0
        TURN:
            turn.log.append(n := n + 1)"""),
    "in an inner loop that may be empty": ("last", 4, 5, """
        TURN:
            for n in range(look(len(turn.log))):
                last = n
            turn.log.append(last)"""),
    "by the target of an inner loop": ("n", 3, 5, """
        TURN:
            for n in range(look(len(turn.log))):
                look(n)
            turn.log.append(n)"""),
    "a loop that goes on from another one's end": ("n", 6, 6, """
        TURN in turns(Desk(), max=1):
            n = 0
            for _ in range(2): look(n)
        TURN:
            n += look(1)
            turn.log.append(1)"""),
    "read by the next of two loops": ("n", 4, 7, """
        n = 0
        TURN:
            if turn.log: n = 1
            turn.log.append(1)
        TURN:
            turn.log.append(n)"""),
    "seen by a function made before the loop": ("n", 6, 5, """
        n = 0
        def told(): return n
        TURN:
            turn.log.append(told())
            n = look(1)"""),
    "seen by a function that another one calls": ("n", 7, 6, """
        n = 0
        def inner(): return n
        outer = lambda: inner()
        TURN:
            turn.log.append(outer())
            n = look(1)"""),
    "read in a comprehension": ("n", 5, 4, """
        n = 0
        TURN:
            turn.log += [n + i for i in range(2)]
            n = look(1)"""),
    "beside a comprehension's own variable of that name": ("n", 5, 5, """
        n = 0
        TURN:
            turn.log += [n for n in range(2)]
            n += 1"""),
}  # fmt: skip

IN_PLACE = {  # the local, the turn that changes it, the body
    "a list": ("seen", 0, """
        seen = []
        TURN:
            seen.append(look(1))
            turn.log.append(len(seen))"""),
    "a dict, deep down": ("tally", 0, """
        tally = {"a": [{"n": 0}]}
        TURN:
            tally["a"][0]["n"] += 1
            turn.log.append(tally["a"][0]["n"])"""),
    "in a later turn": ("seen", 2, """
        seen = {1, 2, 3}
        TURN:
            if len(turn.log) == 2: seen.pop()
            turn.log.append(len(seen))"""),
    "a data class": ("usage", 0, """
        usage = Usage()
        TURN:
            usage.tokens += 1
            turn.log.append(usage.tokens)"""),
    "a model": ("model", 0, """
        model = Model()
        TURN:
            model.parts.append(1)
            turn.log.append(len(model.parts))"""),
    "what comes to hold no plain data": ("errors", 1, """
        errors = []
        TURN:
            try:
                fails(len(turn.log))
            except ValueError as error:
                errors.append(error)
            turn.log.append(len(errors))"""),
    "a list of objects": ("clients", 0, """
        clients = [Client(), Client()]
        TURN:
            clients[1] = Client()
            turn.log.append(len(clients))"""),
    "a dict of objects": ("clients", 0, """
        clients = {"a": Client()}
        TURN:
            clients["b"] = clients["a"]
            turn.log.append(len(clients))"""),
    "a deque": ("queue", 0, """
        queue = deque([1, 2, 3, 4, 5])
        TURN:
            turn.log.append(queue.popleft())"""),
    "a large list": ("rows", 0, """
        rows = ["x" * 100] * 20_000
        TURN:
            rows.append("y")
            turn.log.append(len(rows))"""),
    "an alias of a field": ("chat", 0, """
        chat = []
        TURN in turns(Desk(chat), max=4):
            turn.log.append(1)
            look(len(chat))"""),
    "by a nested function": ("n", 0, """
        n = 0
        def nudge():
            nonlocal n
            n += 1
        TURN:
            nudge()
            turn.log.append(n)"""),
    "by a helper": ("seen", 0, """
        seen = []
        TURN:
            list.append(seen, look(1))
            turn.log.append(look(len(seen)))"""),
}  # fmt: skip

FINE = {
    "set before the loop": """
        limit = look(5)
        TURN:
            turn.log.append(limit)""",
    "set in every turn before it is read": """
        TURN:
            n = look(len(turn.log))
            turn.log.append(n)""",
    "set in every turn, read behind the loop": """
        TURN:
            n = look(len(turn.log))
            turn.log.append(n)
        return n""",
    "set on the way out": """
        answer = None
        TURN:
            turn.log.append(look(len(turn.log)))
            if len(turn.log) == 3:
                answer = turn.log[-1]
                break
        else:
            answer = 7
        return answer""",
    "an error and its name": """
        TURN:
            try:
                turn.log.append(fails(len(turn.log)))
            except ValueError as error:
                turn.log.append(len(str(error)))
                continue
            finally:
                n = look(1)
            turn.log.append(n)
        return turn.log""",
    "set in a try or in its handler": """
        TURN:
            try:
                n = fails(len(turn.log))
            except ValueError:
                n = 7
            turn.log.append(n)""",
    "set in a with that swallows nothing": """
        TURN:
            with grumpy() as n, nullcontext():
                got = look(n)
            turn.log.append(got + n)""",
    "set in each arm of a match": """
        TURN:
            match look(len(turn.log)):
                case 0: kind = 5
                case k: kind = k
            turn.log.append(kind)""",
    "a comprehension and its variable": """
        n = 5
        TURN:
            turn.log += [n for n in range(2) for _ in [n, n]] + [n]
            pairs = {i: j for i, j in zip(turn.log, turn.log)}
            turn.log.append(len(pairs))""",
    "a generator expression over a variable of the turn": """
        TURN:
            n = look(len(turn.log))
            turn.log.append(sum(n + i for i in range(3)))""",
    "a walrus": """
        TURN:
            if (n := look(len(turn.log))) > 1:
                turn.log.append(n)
            turn.log.append(n)""",
    "a walrus in a comprehension": """
        TURN:
            look(len([last := i for i in range(3)])) if turn.log else look(0)
            if any((hit := i) > 1 for i in range(3)):
                turn.log.append(hit)""",
    "inner loops": """
        TURN:
            total = 0
            for n in range(3):
                if n == 1: continue
                total += n
            while True:
                got = look(total)
                if got < 3: break
            turn.log.append(got)""",
    "a function made in the turn that calls itself": """
        TURN:
            def down(n): return n and down(n - 1)
            n = look(len(turn.log))
            turn.log.append(down(n) + (lambda: n)())""",
    "a function made before the loop that sees the record": """
        def size(): return len(turn.log)
        TURN:
            turn.log.append(size())""",
    "a function made before the loop, called once the variable is set": """
        n = 0
        def told(): return n
        TURN:
            n = look(len(turn.log))
            turn.log.append(told())""",
    "deleted and set again": """
        TURN:
            n = look(len(turn.log))
            turn.log.append(n)
            del n""",
    "a list of the turn": """
        TURN:
            found = []
            for n in range(2): found.append(look(n))
            turn.log += found""",
    "a list that is changed on the way out": """
        found = []
        TURN:
            turn.log.append(1)
            if len(turn.log) == 3:
                found.append(look(2))
                break
        return found""",
    "a list that only the last turn changes": """
        found = []
        TURN:
            turn.log.append(1)
            if len(turn.log) == 4: found.append(look(2))
        return found""",
    "the record by another name": """
        desk = Desk()
        TURN in turns(desk, max=4):
            desk.log.append(look(len(turn.log)))
        return desk.log""",
    "plain data that holds the record": """
        desk = Desk()
        shelf = {"desk": desk}
        TURN in turns(desk, max=4):
            turn.log.append(look(len(shelf["desk"].log)))""",
    "a field's name within a turn": """
        TURN:
            log = turn.log
            log.append(look(len(log)))""",
    "a client": """
        client = Client()
        TURN:
            turn.log.append(client.call())""",
    "a cached property": """
        usage = Usage(3)
        TURN:
            turn.log.append(usage.doubled)""",
    "large data that stays": """
        rows = ["x" * 100] * 20_000
        usage = Usage(parts=list(range(20_000)))
        TURN:
            turn.log.append(len(rows) + len(usage.parts))""",
    "loops in a loop": """
        total = 0
        for part in range(2):
            TURN in turns(Desk(), max=2):
                n = look(part)
                turn.log.append(n)
            total += len(turn.log) + n
        return total""",
    "set on the way out of one loop, read in the next": """
        n = total = 0
        for part in range(2):
            TURN:
                turn.log.append(n + look(part))
                if len(turn.log) == 2:
                    n = 5
                    break
            total += sum(turn.log)
        return total""",
    "a nested function that nobody calls": """
        n = 0
        def nudge():
            nonlocal n
            n += 1
        TURN:
            turn.log.append(look(1))
        nudge()
        return n""",
}
