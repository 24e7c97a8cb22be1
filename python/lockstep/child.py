"""python child.py PARENT PROGRAM [ARGUMENT ...]: replaces itself by the program. PARENT is the id of the process that
started this process. When the parent ends in any way, the kernel sends the program SIGUSR2, so that a run saves a
checkpoint and ends instead of training on unnoticed."""

import _signal

# Importing `signal` instead would take milliseconds, in which an interrupt would print a traceback.
_signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import ctypes  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Replaces this process by `command`, and does not return."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _signal.SIGUSR2, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)  # the parent has ended already, and no process waits for a result
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
