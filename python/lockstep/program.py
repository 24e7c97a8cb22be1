"""Finds the lockstep program and runs its commands.

Promise: a command runs in a process of its own, with what it prints passed on line by line. An interrupt reaches it
exactly once, so that a run saves a checkpoint; the second one ends it at once. It does not outlive this process.

Which program: $LOCKSTEP where that is set, such as a program with models of your own; else the one that the wheel has
brought; else, in a source checkout, the script ./lockstep, which builds it when it must.

How: the program gets a process group of its own (a terminal's or Jupyter's interrupt goes to all of a group, and the
program would get it twice). A thread for each of its two streams reads lines into a queue; the calling thread prints
them, so that a notebook shows them below the cell that runs.

what can fail -> what the caller sees -> the test that shows it (tests/python_test.py)
  the command ends with an error -> LockstepError with the program's line and status -> test_an_error_is_one_line
  there is no program -> LockstepError, which says where it was looked for -> test_a_program_that_is_not_there
  an interrupt -> KeyboardInterrupt, when the program has ended -> test_an_interrupt_leaves_a_checkpoint
  this process is killed -> the program gets SIGUSR2 -> test_a_run_does_not_outlive_its_python
"""

from __future__ import annotations

import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, NamedTuple

DONE, USAGE, STOPPED, INTERRUPTED = 0, 2, 75, 130  # of the exit statuses in docs/design.md

_PACKAGE = pathlib.Path(__file__).resolve().parent
_ERROR = "lockstep: error: "


class LockstepError(Exception):
    """The line with which the program ended. `status` is its exit status: 2 for a command line or a config that is
    wrong, 3 for data, 4 for weights, checkpoints or outputs, 5 for a rank that died or hung; negative: the signal that
    ended it."""

    def __init__(self, text: str, status: int):
        super().__init__(text)
        self.status = status


class Result(NamedTuple):
    """How a command ended: its exit status, and what it printed to standard output."""

    status: int
    output: str


def bundled() -> list[str]:
    """The words that start the program of the wheel, if this package comes from one; otherwise an empty list."""
    for start in sorted((_PACKAGE / "_program").glob("*")):
        if start.is_file() and (_PACKAGE / "_program" / "bin" / start.name).exists():
            # Without the site's packages, which the start script loads itself.
            return [sys.executable, "-S", str(start)]
    return []


def command() -> list[str]:
    """The words that start the program. Throws LockstepError if there is none."""
    if named := os.environ.get("LOCKSTEP"):
        path = shutil.which(named)
        if path is None:
            raise LockstepError(f"LOCKSTEP={named}: there is no such program", USAGE)
        return [os.path.abspath(path)]
    if words := bundled():
        return words
    script = _PACKAGE.parents[1] / "lockstep"
    if script.is_file():
        return [str(script)]
    raise LockstepError(
        f"{_PACKAGE}: no program in it: install the wheel that `lockstep bundle --wheel` makes, or set LOCKSTEP to a "
        "program",
        USAGE,
    )


def run(words: Sequence[str | os.PathLike], *, progress: bool = False, accepted: Sequence[int] = (DONE,)) -> Result:
    """Runs one of the program's commands and waits for its end.

    With `progress` each line is printed as it comes. Warnings go to standard error in any case. Throws LockstepError if
    the exit status is not `accepted`, and KeyboardInterrupt if this process was interrupted.
    """
    start = [sys.executable, "-I", "-S", str(_PACKAGE / "child.py"), str(os.getpid())]
    process = subprocess.Popen(
        [*start, *command(), *map(os.fspath, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    lines: queue.Queue[tuple[str, str | None]] = queue.Queue()
    for name, stream in (("out", process.stdout), ("err", process.stderr)):
        threading.Thread(target=_read, args=(name, stream, lines), daemon=True).start()
    output, error, last, is_interrupted, open_streams = [], "", "", False, 2
    while open_streams:
        try:
            name, line = lines.get()
            if line is None:
                open_streams -= 1
            elif name == "out":
                output.append(line)
                if progress:
                    print(line, end="", flush=True)
            elif line.startswith(_ERROR):
                error = line[len(_ERROR) :].strip()
            else:
                last = line.strip() or last
                if progress or line.startswith("lockstep: warning: "):
                    print(line, end="", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            is_interrupted = True
            process.send_signal(signal.SIGINT)
        except BaseException:  # what this process prints to is gone, say
            process.send_signal(signal.SIGUSR2)
            process.wait()
            raise
    status = process.wait()
    if is_interrupted:
        raise KeyboardInterrupt
    if status not in accepted:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        raise LockstepError(error or f"lockstep {words[0]} ended with {how}{last and ': ' + last}", status)
    return Result(status, "".join(output))


def main() -> None:
    """The command that the wheel installs: becomes the program."""
    words = bundled()
    if not words:
        sys.exit(f"{_ERROR}{_PACKAGE}/_program holds no program: install the wheel again")
    os.execv(words[0], [*words, *sys.argv[1:]])


def _read(name: str, stream: IO[str], lines: queue.Queue[tuple[str, str | None]]) -> None:
    with stream:
        for line in stream:
            lines.put((name, line))
    lines.put((name, None))
