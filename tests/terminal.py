"""Runs a command on its own pseudo-terminal, for tests of the output that a user sees there."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios

from harness import wait_until


class Terminal:
    """Runs a command on its own pseudo-terminal of `rows` x `columns` characters."""

    def __init__(self, words, env, rows=50, columns=200):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.slave = slave
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [str(word) for word in words], env=os.environ | env, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def read(self):
        if select.select([self.master], [], [], 0)[0]:
            self.text += os.read(self.master, 65536).decode()

    def wait_until(self, condition):
        """Waits until `condition()` is true for the text shown so far."""

        def holds():
            self.read()
            return condition()

        wait_until(holds)

    def wait_for(self, pattern):
        """Waits until the shown text matches the pattern."""
        self.wait_until(lambda: re.search(pattern, self.text))

    def type(self, keys):
        os.write(self.master, keys)

    def end(self):
        def ended():
            self.read()
            return self.process.poll() is not None

        wait_until(ended)
        while select.select([self.master], [], [], 0)[0]:
            self.read()
        return self.process.returncode
