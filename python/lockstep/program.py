"""Finds the lockstep program and runs its commands.

Promise: a command runs in a child process, whose output is printed line by line. The child process gets each interrupt
exactly once: at the first interrupt a run saves a checkpoint and ends, at the second it ends at once. The child process
does not outlive this process.

Which program is run: $LOCKSTEP if it is set, for example to a program with models of your own; otherwise the program in
the wheel; otherwise, in a source checkout, the script ./lockstep, which builds the program if necessary.

How it is run: the program gets a process group of its own. A terminal or Jupyter sends an interrupt to a whole process
group, so a program in this process's group would get each interrupt twice: from the terminal, and from this process,
which passes it on. Two threads read the lines of standard output and standard error into a queue. The calling thread
prints these lines, so that a notebook shows them below the running cell.

what can fail -> what the caller sees -> the test that shows it (tests/python_test.py)
  the command ends with an error -> LockstepError with the program's line and status -> test_an_error_is_one_line
  there is no program -> LockstepError, which says where it was looked for -> test_a_program_that_is_not_there
  an interrupt -> KeyboardInterrupt after the program has ended -> test_an_interrupt_leaves_a_checkpoint
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
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

DONE, USAGE, STOPPED, INTERRUPTED = 0, 2, 75, 130  # some of the exit statuses in docs/design.md

_PACKAGE = pathlib.Path(__file__).resolve().parent
_ERROR = "lockstep: error: "


class LockstepError(Exception):
    """A command of the program failed. The exception's text is the error line that the program printed. `status` is the
    program's exit status: 2 for a wrong command line or config, 3 for data, 4 for weights, checkpoints or outputs, 5
    for a rank that died or hung. A negative `status` is the signal that ended the program."""

    def __init__(self, text: str, status: int):
        super().__init__(text)
        self.status = status


class Result(NamedTuple):
    """The exit status of a command, and its standard output."""

    status: int
    output: str


def bundled() -> list[str]:
    """Returns the command that starts the wheel's program, if this package was installed from a wheel; otherwise []."""
    for start in sorted((_PACKAGE / "_program").glob("*")):
        if start.is_file() and any((_PACKAGE / "_program" / "bin").glob(f"*/{start.name}")):
            # The option -S leaves out site-packages, which the start script adds itself.
            return [sys.executable, "-S", str(start)]
    return []


def command() -> list[str]:
    """Returns the command that starts the program. Throws LockstepError if there is no program."""
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


def run(
    words: Sequence[str | os.PathLike],
    *,
    progress: bool = False,
    accepted: Sequence[int] = (DONE,),
    names: Mapping[str, str] | None = None,
) -> Result:
    """Runs one of the program's commands and waits for its end.

    With `progress` each line is printed as soon as the program writes it. Warnings are always printed to standard
    error. `names` says what the lines call a file: {path: name}. Throws LockstepError if the exit status is not in
    `accepted`, and KeyboardInterrupt if this process was interrupted.
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
        threading.Thread(target=_read, args=(name, stream, lines, names or {}), daemon=True).start()
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
        except BaseException:  # for example, standard output is closed
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
    """Replaces this process by the program. The command that the wheel installs calls this function."""
    words = bundled()
    if not words:
        sys.exit(f"{_ERROR}{_PACKAGE}/_program holds no program: install the wheel again")
    os.execv(words[0], [*words, *sys.argv[1:]])


def _read(
    name: str, stream: IO[str], lines: queue.Queue[tuple[str, str | None]], names: Mapping[str, str]
) -> None:
    with stream:
        for line in stream:
            for path, shown in names.items():
                line = line.replace(path, shown)
            lines.put((name, line))
    lines.put((name, None))
