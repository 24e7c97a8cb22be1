"""python child.py PARENT PROGRAM [ARGUMENT ...]: becomes the program. When the process PARENT, which started this one,
ends in any way, the kernel asks the program to stop (SIGUSR2), so that a run saves a checkpoint and ends instead of
training on unseen."""

import _signal

# `signal` would take milliseconds in which an interrupt prints a traceback.
_signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import ctypes  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Does not return."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _signal.SIGUSR2, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)  # it has ended already, and nobody waits for a result
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
