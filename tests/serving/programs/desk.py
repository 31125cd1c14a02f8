"""Workflows for workers. FOLDER in the environment is where they log and where their gates are:
files that a test makes. `python desk.py serve` executes them until its stdin ends."""

import asyncio
import os
import sys
import time
from pathlib import Path

import outlast

folder = Path(os.environ.get("FOLDER", "."))


def log(*words):
    with (folder / "log").open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


@outlast.step
async def note(name):
    log("note", name, os.getpid())
    return name


@outlast.step
async def pass_gate(name):
    log("gate", name, os.getpid())
    while not (folder / f"open-{name}").exists():
        await asyncio.sleep(0.005)
    return os.getpid()


@outlast.step
def pass_plain_gate(name):
    log("gate", name, os.getpid())
    while not (folder / f"open-{name}").exists():
        time.sleep(0.005)
    return os.getpid()


@outlast.step
def compute(name):
    """Holds the interpreter for ever, so that nothing in the process can end it."""
    log("gate", name, os.getpid())
    return sum(range(10**12))


@outlast.workflow
async def quick(name: str) -> str:
    await note(f"{name}-1")
    return await note(f"{name}-2")


@outlast.workflow
async def gated(name: str) -> str:
    await note(f"{name}-before")
    by = await pass_gate(name)
    await note(f"{name}-after")
    return f"{name} by {by}"


@outlast.workflow
def plainly_gated(name: str) -> str:
    return f"{name} by {pass_plain_gate(name)}"


@outlast.workflow
async def hung(name: str) -> int:
    return compute(name)


if __name__ == "__main__":
    with outlast.serving(quick, gated, plainly_gated):
        print("serving", flush=True)
        sys.stdin.read()
