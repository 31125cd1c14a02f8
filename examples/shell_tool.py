"""A tool whose outcome may stay unknown, and an agent that looks before it decides.

A shell command is neither safe to repeat nor can anybody be asked about it. With `in_doubt="raise"`
the agent learns that it may have happened, and looks for itself.
"""

import asyncio
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import outlast


@outlast.step(effect="once", in_doubt="raise", timeout=30)
async def shell(command: str, folder: str) -> tuple[int, str]:
    """Exit code and output of a command."""
    child = await asyncio.create_subprocess_shell(command, cwd=folder, stdout=PIPE, stderr=STDOUT)
    try:
        output, _ = await child.communicate()
    except asyncio.CancelledError:
        # Whoever looks what the command has done must not look while it still works. Its output
        # ends when the last process that writes to it does.
        child.kill()
        await child.communicate()
        raise
    assert child.returncode is not None
    return child.returncode, output.decode(errors="replace")


@outlast.step(effect="read")
async def exists(path: str) -> bool:
    return await asyncio.to_thread(Path(path).exists)


@outlast.workflow
async def make_report(folder: str) -> str:
    report = f"{folder}/report.txt"
    try:
        await shell("echo done > report.txt", folder)
    except outlast.InDoubt:  # its process died, or it was cut off
        if not await exists(report):
            await shell("echo done > report.txt", folder)
    return "report is there" if await exists(report) else "no report"


if __name__ == "__main__":
    print(outlast.run(make_report, str(Path.cwd())))
