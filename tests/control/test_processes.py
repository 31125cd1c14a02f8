"""Processes that steps start are marked, found again by pid, start time and mark, and ended however
they try to stay. Nothing else is."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from outlast import processes
from outlast.processes import Ended, Found
from outlast.world import World, start_ticks
from tests.ownership.children import until

SLEEPER = "import time\nprint('up', flush=True)\ntime.sleep(300)"
DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPER
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {program!r}], stdout=subprocess.PIPE, **{options})
child.stdout.readline()
print(child.pid, flush=True)
{then}
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def tag() -> str:
    """The mark of an attempt that no other test has."""
    return f"{World().token()}:tool#0:1"


@pytest.fixture
def start() -> Iterator[Start]:
    """Start programs, which are gone when the test ends, with all that they have started."""
    started: list[subprocess.Popen[str]] = []

    def begin(program: str, **options: object) -> "subprocess.Popen[str]":
        process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            text=True,
            **options,  # type: ignore[call-overload]
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def orphans() -> Iterator[list[Found]]:
    """Processes of which the test has learned the pid; they are gone when it ends."""
    found: list[Found] = []
    yield found
    for one in found:
        if one.alive:
            os.kill(one.pid, signal.SIGKILL)


@pytest.fixture
def marking(tag: str) -> Iterator[str]:
    """What this test starts is marked."""
    processes.mark_children(lambda: tag)
    yield tag
    processes.mark_children(lambda: None)


def found(pid: int) -> Found:
    started = start_ticks(pid)
    assert started is not None
    return Found(pid, started)


def word(process: "subprocess.Popen[str]") -> str:
    """The next line that a program prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def pids(them: list[Found]) -> set[int]:
    return {one.pid for one in them}


# ---- marking


def test_a_process_carries_the_mark_whatever_environment_it_is_given(
    marking: str, start: Start
) -> None:
    own = start(SLEEPER)
    given = {"ONLY": "this"}
    bare = start(SLEEPER, env=given)
    positional = subprocess.Popen(
        ["sleep", "300"], -1, None, None, None, None, None, True, False, None, given
    )
    try:
        assert pids(processes.tagged(marking)) == {own.pid, bare.pid, positional.pid}
        assert given == {"ONLY": "this"}
        assert psutil.Process(bare.pid).environ() == {"ONLY": "this", processes.TAG: marking}
    finally:
        positional.kill()
        positional.wait()


def test_a_process_of_asyncio_carries_the_mark(marking: str) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("sleep", "300")
        assert pids(processes.tagged(marking)) == {process.pid}
        process.kill()
        await process.wait()

    asyncio.run(main())


def test_outside_of_an_attempt_nothing_is_marked(start: Start) -> None:
    processes.mark_children(lambda: None)
    assert processes.TAG not in psutil.Process(start(SLEEPER).pid).environ()


# ---- finding


@pytest.mark.parametrize("prefix", ["", " ", ":", ":tool#0:1", "\t:1"])
def test_a_mark_that_names_no_run_is_refused(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a signal was sent"))
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: pytest.fail("a signal was sent"))
    with pytest.raises(ValueError, match="names no run"):
        processes.tagged(prefix)
    with pytest.raises(ValueError, match="names no run"):
        processes.end_tagged(prefix, 0.0)


def test_a_part_of_a_mark_fits_only_up_to_a_colon(tag: str, start: Start) -> None:
    one = start(SLEEPER, env={processes.TAG: tag})
    other = start(SLEEPER, env={processes.TAG: f"{tag}0"})
    start(SLEEPER, env={"OTHER": tag})
    uid = tag.partition(":")[0]
    until(lambda: pids(processes.tagged(uid)) == {one.pid, other.pid}, "both by the run")
    assert pids(processes.tagged(tag)) == {one.pid}
    assert processes.tagged(uid[:-1]) == []
    assert processes.tag_of(found(one.pid)) == tag


def test_the_asking_process_and_its_ancestors_are_never_found(tag: str, start: Start) -> None:
    asking = (
        "from outlast import processes\n"
        f"print([p.pid for p in processes.tagged({tag!r})], flush=True)\n"
        "from outlast.worker.ending import end_owner\n"
        "from outlast.world import World\n"
        "print(end_owner(World().identity(), 0.0).survivors, flush=True)\n"
    )
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {asking!r}])"
    process = start(parent, env={**os.environ, processes.TAG: tag})
    assert word(process) == "[]"
    assert "the one that was to end it" in word(process)


def test_a_family_has_descendants_and_those_in_its_sessions_and_nobody_else(
    start: Start, orphans: list[Found]
) -> None:
    bystander = start(SLEEPER)
    parent = start(
        PARENT.format(program=SLEEPER, options={"start_new_session": True}, then=SLEEPER)
    )
    orphans.append(found(int(word(parent))))
    family = processes.family([found(parent.pid)])
    assert pids(family) == {parent.pid, orphans[0].pid}
    assert bystander.pid not in pids(family)
    assert os.getpid() not in pids(family)


# ---- ending


@pytest.mark.parametrize("program", [SLEEPER, DEAF], ids=["ordinary", "deaf to SIGTERM"])
@pytest.mark.parametrize("own_session", [False, True])
def test_a_marked_process_is_ended(program: str, own_session: bool, tag: str, start: Start) -> None:
    process = start(program, env={processes.TAG: tag}, start_new_session=own_session)
    assert word(process) == "up"
    ended = processes.end_tagged(tag, 0.2)
    assert [said.split()[:2] for said in ended.ended] == [["process", str(process.pid)]]
    assert ended.survivors == ()
    assert process.wait() == (-signal.SIGTERM if program is SLEEPER else -signal.SIGKILL)


def test_a_marked_process_is_ended_whose_parents_have_gone(
    tag: str, start: Start, orphans: list[Found]
) -> None:
    options = {"start_new_session": True}
    parent = start(PARENT.format(program=DEAF, options=options, then=""), env={processes.TAG: tag})
    orphans.append(found(int(word(parent))))
    parent.wait()
    assert pids(processes.tagged(tag)) == {orphans[0].pid}
    processes.end_tagged(tag, 0.0)
    assert not orphans[0].alive


def test_a_stopped_process_is_let_go_on_so_that_it_can_end_by_itself(
    tag: str, start: Start
) -> None:
    process = start(SLEEPER, env={processes.TAG: tag})
    assert word(process) == "up"
    process.send_signal(signal.SIGSTOP)
    until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, "the stop")
    processes.end_tagged(tag, 30.0)
    assert process.wait() == -signal.SIGTERM


def test_what_starts_while_the_others_end_is_ended_too(tag: str, start: Start) -> None:
    # Each of them, asked to end, starts another one, marked like itself, and goes.
    heir = (
        "import signal, subprocess, sys\n"
        "def leave(*_):\n"
        "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, leave)\n" + SLEEPER
    )
    process = start(heir, env={processes.TAG: tag})
    assert word(process) == "up"
    ended = processes.end_tagged(tag, 30.0)
    assert len(ended.ended) == 2
    assert processes.tagged(tag) == []


def test_who_asks_during_a_look_gets_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looking, go_on = threading.Event(), threading.Event()
    looks: list[Found] = []

    def look() -> dict[Found, bytes]:
        looks.append(Found(2, len(looks)))
        looking.set()
        assert go_on.wait(30)
        return {looks[-1]: b"uid:step#0:1"}

    monkeypatch.setattr(processes, "_all_tagged", look)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(processes.tagged, "uid")
        assert looking.wait(30)
        later = [pool.submit(processes.tagged, "uid") for _ in range(3)]
        go_on.set()
        assert first.result() == [looks[0]]
        assert all(looks[0] not in one.result() for one in later)


def test_a_pid_that_has_changed_hands_gets_no_signal(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *said: sent.append(said))
    monkeypatch.setattr(os, "kill", lambda *said: sent.append(said))
    process = start(SLEEPER)
    earlier = Found(process.pid, found(process.pid).started - 1)
    assert processes.family([earlier]) == []
    processes.terminate([earlier])
    assert processes.end(lambda: [earlier], 0.0) == Ended()
    processes._send(earlier, signal.SIGKILL)
    assert sent == []
    processes._send(found(process.pid), signal.SIGKILL)
    assert len(sent) == 1


def test_this_process_and_the_first_one_are_never_signalled() -> None:
    for pid in (os.getpid(), 1, 0, -1):
        with pytest.raises(AssertionError):
            processes._send(Found(pid, start_ticks(pid) or 0), signal.SIGCONT)


def test_where_the_system_offers_no_handle_the_start_time_decides(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    process = start(SLEEPER)
    right = found(process.pid)
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda *_: pytest.fail("a signal was sent"))
        processes._send(Found(process.pid, right.started + 1), signal.SIGKILL)
    processes.end(lambda: [right], 0.0)
    assert process.wait() == -signal.SIGKILL


def test_what_cannot_be_ended_is_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start(SLEEPER)
    monkeypatch.setattr(processes, "_send", lambda *_: None)
    monkeypatch.setattr(processes, "LAST", 0.0)
    ended = processes.end(lambda: [found(process.pid)], 0.0)
    assert [said.split()[1] for said in ended.survivors] == [str(process.pid)]
    assert ended.ended == ()
