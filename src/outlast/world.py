"""Time, chance, ids and process identity: the only file that asks the machine for them.

A test passes its own `World` to step a clock or to fix the dice.
"""

import os
import random
import secrets
import socket
import threading
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Literal

from outlast.records import Identity

Liveness = Literal["alive", "dead", "foreign"]
"""`foreign`: on another host or in another pid namespace, so nobody here can tell."""


class World:
    """The real world. Stateless, so one instance serves all threads."""

    def wall(self) -> float:
        """Seconds since the epoch. May step in either direction."""
        return time.time()

    def boot(self) -> float:
        """Seconds since boot, running on through suspend where the system offers that clock."""
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    def random(self) -> float:
        """A number in [0, 1)."""
        return random.random()

    def token(self) -> str:
        """32 random hexadecimal digits, fit for ids that must never repeat."""
        return secrets.token_hex(16)

    def pause(self, seconds: float, wake: threading.Event | None = None) -> None:
        """Block this thread for at most `seconds`, less if `wake` is set meanwhile."""
        if wake is None:
            time.sleep(seconds)
        else:
            wake.wait(seconds)

    def identity(self) -> Identity:
        """A new claim of this process."""
        pid = os.getpid()
        return Identity(
            host=socket.gethostname(),
            boot=_boot_id(),
            namespace=_namespace(),
            pid=pid,
            started=_own_start(pid),
            nonce=self.token(),
        )

    def liveness(self, who: Identity) -> Liveness:
        """Whether the process behind a claim still runs, as far as this process can see."""
        if who.host != socket.gethostname():
            return "foreign"
        if who.boot != _boot_id():
            return "dead"
        if who.namespace != _namespace():
            return "foreign"
        return "alive" if start_ticks(who.pid) == who.started else "dead"


def utc_text(at: float) -> str:
    """A moment (seconds since the epoch) in words, also one that no calendar has."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{at:g} s after 1970"


def start_ticks(pid: int) -> int | None:
    """When a process started, in the system's own ticks; None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None if Path("/proc/self").exists() else _start_ticks_by_psutil(pid)
    except ProcessLookupError:
        return None
    # The command name stands in parentheses and may itself hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZXx" else int(fields[19])


def _start_ticks_by_psutil(pid: int) -> int | None:
    import psutil  # where it is needed: it takes long to import

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return int(process.create_time() * 1_000_000)
    except psutil.NoSuchProcess:
        return None


@cache
def _own_start(pid: int) -> int:
    return start_ticks(pid) or 0


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        import psutil

        return f"boot-{int(psutil.boot_time())}"


@cache
def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "host"
