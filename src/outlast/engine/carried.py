"""Which local variables a turn loop carries from one turn to the next.

On resume the turns before the saved one are not replayed, so a local that one turn sets and a later
one reads would silently be what it was before the loop. Whether a loop does that is told from its
bytecode, before its first turn: a store in the body reaches the end of a turn, and from the start
of a turn there is a way to a read that passes no other store. (So a local that every turn sets may
be read behind the loop: the last turn is always replayed.)

Ways are not judged by their conditions. Two kinds are left out, as nearly every program has them: a
`with` does not swallow exceptions (but for those in `_SWALLOWS`), and loading or storing a local
raises none.
"""

import dis
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from types import CodeType

from msgspec import Struct


class Rebound(Struct, frozen=True):
    """A local that one turn sets and a later one reads, and the lines at which that is done."""

    name: str
    stored: int
    read: int


class Loop(Struct, frozen=True):
    """What a turn loop does with the locals around it.

    Attributes:
        rebound: those whose new values would be lost.
        kept: those that a turn may read as they were when it began, with the line of a read.
        shared: those that a nested function sets (`nonlocal`).
    """

    rebound: tuple[Rebound, ...]
    kept: dict[str, int]
    shared: frozenset[str]


class _Node(Struct):
    """An instruction, or a part of one that was fused from two."""

    op: str
    arg: object
    line: int
    reads: set[str] = set()
    sets: str = ""
    unsets: str = ""
    captures: str = ""  # a nested function is about to be made that sees this variable
    next: list[int] = []


_ENDS = frozenset("RETURN_VALUE RETURN_CONST RERAISE RAISE_VARARGS".split())
_JUMPS = frozenset("JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT".split())
_QUIET = _JUMPS | frozenset(
    "RETURN_VALUE RETURN_CONST NOP RESUME EXTENDED_ARG LOAD_CONST LOAD_SMALL_INT PUSH_NULL "
    "POP_TOP COPY SWAP IS_OP BUILD_TUPLE BUILD_LIST BUILD_MAP MAKE_FUNCTION "
    "SET_FUNCTION_ATTRIBUTE MAKE_CELL PUSH_EXC_INFO POP_EXCEPT END_FOR END_SEND POP_ITER NOT_TAKEN "
    "PRECALL KW_NAMES".split()
)
"""Instructions that run nobody's code and raise nothing, beside those that access a local."""

_ACCESS = re.compile("(LOAD|STORE|DELETE)_(FAST|DEREF|CLOSURE)")
_CLEAR = "LOAD_FAST_AND_CLEAR"  # a comprehension puts its own variable in this one's place
_COMPREHENSIONS = frozenset("<listcomp> <setcomp> <dictcomp> <genexpr>".split())
_SWALLOWS = frozenset("suppress move_on_after".split())


@lru_cache(maxsize=1024)
def loop_at(code: CodeType, offset: int) -> Loop | None:
    """What the loop does whose `for` or `async for` has just asked for its iterator.

    Args:
        code: of the function that holds the loop.
        offset: of the instruction under way in it (`f_lasti`).

    Returns:
        None if that is no loop statement, but a call of `iter()`, a comprehension or the like.
    """
    instructions = list(dis.get_instructions(code))
    nodes, first = _nodes(code, instructions)
    start = first.get(offset)
    if start is None or nodes[start].op not in ("GET_ITER", "GET_AITER"):
        return None
    head = turn = start + 1
    while nodes[turn].op == "EXTENDED_ARG":
        turn += 1
    if nodes[turn].op == "FOR_ITER":
        turn += 1
    elif nodes[turn].op == "GET_ANEXT":
        turn = next(
            first[i.argval] for i in instructions if i.opname == "SEND" and i.offset > offset
        )
    else:
        return None
    _link(code, instructions, nodes, first)
    _add_nested_functions(nodes)
    stored = _first_lines(nodes, _stores_at_the_end(nodes, turn, start, head))
    read = _first_lines(nodes, _reads_ahead(nodes, turn))
    return Loop(
        tuple(Rebound(name, line, read[name]) for name, line in stored.items() if name in read),
        {name: line for name, line in read.items() if name not in stored},
        frozenset(code.co_cellvars) & _set_by_nested(code),
    )


# ---- the control flow of a function


def _nodes(
    code: CodeType, instructions: Sequence[dis.Instruction]
) -> tuple[list[_Node], dict[int, int]]:
    """The accesses to locals, and which node is the first of the instruction at an offset. What an
    enclosing function owns is no local: it is there before the run, or belongs to another loop."""
    own = {*code.co_varnames, *code.co_cellvars}
    inlined = [i for i in instructions if i.opname == _CLEAR]
    nodes: list[_Node] = []
    first: dict[int, int] = {}
    for i in instructions:
        first[i.offset] = len(nodes)
        line = (i.positions.lineno if i.positions else None) or 0
        names = i.argval if isinstance(i.argval, tuple) else (i.argval,)
        for (verb, how), name in zip(_ACCESS.findall(i.opname), names, strict=False):
            node = _Node(i.opname, i.argval, line)
            nodes.append(node)
            if name not in own or any(c.argval == name and _within(i, c) for c in inlined):
                continue
            if verb == "STORE":
                node.sets = name
            elif verb == "DELETE":
                node.unsets = name
            elif how == "CLOSURE" or (how == "FAST" and name in code.co_cellvars):
                node.captures = name
            else:
                node.reads.add(name)
        if first[i.offset] == len(nodes):
            nodes.append(_Node(i.opname, i.argval, line))
    return nodes, first


def _within(i: dis.Instruction, comprehension: dis.Instruction) -> bool:
    """Whether an instruction belongs to a comprehension that is inlined (Python 3.12), or puts the
    outer variable back after it. Its first iterable is computed before it and does not."""
    inner, outer = i.positions, comprehension.positions
    if not (inner and outer and inner.lineno and inner.end_lineno):
        return False
    if not (outer.lineno and outer.end_lineno) or i.offset < comprehension.offset:
        return False
    begins = (outer.lineno, outer.col_offset or 0) <= (inner.lineno, inner.col_offset or 0)
    ends = (inner.end_lineno, inner.end_col_offset or 0) <= (
        outer.end_lineno,
        outer.end_col_offset or 0,
    )
    return begins and ends


def _link(
    code: CodeType,
    instructions: Sequence[dis.Instruction],
    nodes: list[_Node],
    first: dict[int, int],
) -> None:
    """Say of each node which ones may come next."""
    table = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    handlers = {at: e.target for e in table for at in range(e.start, e.end, 2)}
    never = set(_not_swallowed(instructions))
    ends = [first[i.offset] for i in instructions[1:]] + [len(nodes)]
    for i, end in zip(instructions, ends, strict=True):
        for number in range(first[i.offset], end - 1):
            nodes[number].next.append(number + 1)
        last = nodes[end - 1]
        if last.op not in _ENDS and last.op not in _JUMPS:
            last.next.append(end)
        # END_ASYNC_FOR names where its loop came from, and jumps nowhere.
        jumps = i.opcode in dis.hasjrel and last.op != "END_ASYNC_FOR"
        if jumps and i.offset not in never:
            last.next.append(first[i.argval])
        if i.offset in handlers and not _is_quiet(last):
            last.next.append(first[handlers[i.offset]])


def _is_quiet(node: _Node) -> bool:
    return node.op in _QUIET or _ACCESS.match(node.op) is not None


def _not_swallowed(instructions: Sequence[dis.Instruction]) -> Iterator[int]:
    """The jumps by which a `with` would go on after an exception."""
    lines = {
        i.positions.lineno
        for i in instructions
        if i.positions and isinstance(i.argval, str) and i.argval in _SWALLOWS
    }
    left = False
    for i in instructions:
        if i.opname == "WITH_EXCEPT_START":
            left = not (i.positions and i.positions.lineno in lines)
        elif left and i.opname.startswith("POP_JUMP") and i.opname.endswith("IF_TRUE"):
            left = False
            yield i.offset


# ---- nested functions


def _add_nested_functions(nodes: list[_Node]) -> None:
    """Let nested functions read what they see: where the local that holds the function is loaded,
    or right where it is made if it is handed on at once. A comprehension runs where it stands."""
    seen_by: dict[str, set[str]] = {}
    for number, node in enumerate(nodes):
        if not node.captures:
            continue
        inner, holder, called = _made(nodes, number)
        if inner is not None and inner.co_name in _COMPREHENSIONS:
            if node.captures in _sets(inner):  # by a walrus
                node.sets = node.captures
            else:
                node.reads.add(node.captures)
            continue
        if holder:
            seen_by.setdefault(holder, set()).add(node.captures)
        if called or not holder:
            node.reads.add(node.captures)
    for node in nodes:
        todo = [*node.reads]
        while todo:
            new = seen_by.get(todo.pop(), set()) - node.reads
            node.reads |= new
            todo += new


def _made(nodes: list[_Node], number: int) -> tuple[CodeType | None, str, bool]:
    """The function that is about to be made, the local it is then stored in ("" if in none), and
    whether something may call it before."""
    inner: CodeType | None = None
    called = False
    for node in nodes[number + 1 :]:
        if inner is None:
            inner = node.arg if isinstance(node.arg, CodeType) else None
        elif node.sets or node.op.startswith(("STORE", "POP", "JUMP", "RETURN")):
            return inner, node.sets, called
        called = called or not _is_quiet(node)
    return inner, "", called


def _sets(code: CodeType) -> set[str]:
    """The variables of enclosing functions that a function sets."""
    names = {
        str(i.argval)
        for i in dis.get_instructions(code)
        if i.opname in ("STORE_DEREF", "DELETE_DEREF")
    }
    return (names | _set_by_nested(code)) & set(code.co_freevars)


def _set_by_nested(code: CodeType) -> set[str]:
    nested = (inner for inner in code.co_consts if isinstance(inner, CodeType))
    return {name for inner in nested if inner.co_freevars for name in _sets(inner)}


# ---- what reaches what

_Fact = tuple[int, str]  # the number of a node, and a local that it reads or sets


def _stores_at_the_end(nodes: list[_Node], turn: int, start: int, head: int) -> Iterator[_Fact]:
    """The stores of a turn that are still in force when the next one begins. Beyond `start` it is
    another loop over the same lines."""
    facts = [(number, node.sets) for number, node in enumerate(nodes) if node.sets]
    states = _spread(nodes, [node.next for node in nodes], facts, {turn}, {start, head})
    return _held(facts, states.get(head, 0))


def _reads_ahead(nodes: list[_Node], turn: int) -> Iterator[_Fact]:
    """The reads that get what a local was when the turn began, in it or later."""
    facts = [(number, name) for number, node in enumerate(nodes) for name in node.reads]
    before: list[list[int]] = [[] for _ in nodes]
    for number, node in enumerate(nodes):
        for after in node.next:
            before[after].append(number)
    states = _spread(nodes, before, facts, range(len(nodes)), set())
    return _held(facts, states[turn])


def _spread(
    nodes: list[_Node],
    ways: list[list[int]],
    facts: Sequence[_Fact],
    starts: Iterable[int],
    ends: set[int],
) -> dict[int, int]:
    """Carry facts along ways until nothing changes. A local that is set loses its earlier facts.

    Args:
        ways: for each node, where its facts go.
        facts: each comes up at its node.
        starts: nodes from which to go.
        ends: nodes from which not to go on.

    Returns:
        for each node that was come to, a bit for each fact that leaves it.
    """
    own = [0] * len(nodes)
    about: dict[str, int] = {}
    for number, (at, name) in enumerate(facts):
        own[at] |= 1 << number
        about[name] = about.get(name, 0) | 1 << number
    arriving = dict.fromkeys(starts, 0)
    leaving: dict[int, int] = {}
    todo = list(arriving)
    while todo:
        at = todo.pop()
        state = leaving[at] = arriving[at]
        if at in ends:
            continue
        node = nodes[at]
        state = leaving[at] = state & ~about.get(node.sets or node.unsets, 0) | own[at]
        for after in ways[at]:
            known = arriving.get(after)
            if known is None or state & ~known:
                arriving[after] = state | (known or 0)
                todo.append(after)
    return leaving


def _held(facts: Sequence[_Fact], state: int) -> Iterator[_Fact]:
    return (fact for number, fact in enumerate(facts) if state >> number & 1)


def _first_lines(nodes: list[_Node], facts: Iterable[_Fact]) -> dict[str, int]:
    lines: dict[str, int] = {}
    for number, name in facts:
        line = nodes[number].line
        lines[name] = min(line, lines.get(name, line))
    return lines
