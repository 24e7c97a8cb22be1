"""Simulates machines on a network, for tests. Each machine consists of namespaces of the real machine, and has its own
host name, address, /tmp and /dev/shm. The test's folder is on all machines under the same path, as on a shared disk.
The machines are connected to a switch, which consists of further namespaces. The real machine's network is not touched,
and the simulated network disappears when its processes end."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from harness import DIGITS, LOCKSTEP, LONG_S, processes_in_namespace, wait_until

SLOW_CABLE = pathlib.Path(__file__).with_name("slow_cable.py")
PROGRAMS = ["bash", "ip", "mount", "mpirun", "nsenter", "unshare"]
TMP = pathlib.Path("/tmp")


def why_not():
    """Returns the reason why the real machine cannot simulate machines, or "" if it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"needs machines of its own: {', '.join(missing)} are missing (apt-get install iproute2 util-linux)"
    if os.geteuid() != 0:
        return "needs to be root, to give machines namespaces of their own"
    script = "ip link add test0 type veth peer name test1 && ip link add test2 type bridge"
    made = subprocess.run(["unshare", "--net", "--uts", "--mount", "sh", "-c", script], capture_output=True)
    if made.returncode != 0:
        return "needs namespaces with networks, which this machine does not allow"
    return ""


# A keeper process (Namespaces below) runs this script when the test's process has ended, in whatever way. The script
# kills all other processes in the keeper's network namespace.
KILL_ALL = """
    own=$(readlink /proc/$$/ns/net)
    for process in /proc/[0-9]*; do
      if [ "$process" != /proc/$$ ] && [ "$(readlink "$process/ns/net")" = "$own" ]; then
        kill -9 "${process#/proc/}" || true
      fi
    done"""


def program_of(pid):
    """Returns the first word of the command line of a process; "" if it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")[0]
    except OSError:
        return ""


class Namespaces:
    """Holds the namespaces of one machine. The namespaces exist as long as their keeper process."""

    def __init__(self, script):
        script += f"\necho ready\nread -r line || true\n{KILL_ALL}"
        self.keeper = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "sh", "-ec", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.keeper.stdout.readline() == "ready\n", script

    @property
    def enter(self):
        """Returns the words to put before a command so that it runs in the namespaces. nsenter executes the command in
        its own process, without a child process."""
        return ["nsenter", "--target", str(self.keeper.pid), "--net", "--uts", "--mount"]

    def run(self, command):
        """Runs a command, whose words have no spaces, in the namespaces. Returns its output."""
        done = subprocess.run([*self.enter, *command.split()], capture_output=True, text=True, timeout=LONG_S)
        assert done.returncode == 0, done
        return done.stdout

    def processes(self):
        """Returns the ids of the processes in the namespaces, without the keeper."""
        return [pid for pid in processes_in_namespace(self.keeper.pid, "net") if pid != self.keeper.pid]

    def kill(self, programs=()):
        """Kills all processes of the machine except the keeper; if `programs` are given, only those. Returns the number
        of processes that it found."""
        found = self.processes()
        if programs:
            found = [pid for pid in found if program_of(pid).endswith(tuple(programs))]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def end(self):
        wait_until(lambda: self.kill() == 0)
        self.keeper.kill()
        self.keeper.communicate()


def shared_places(folder):
    """Returns the files and folders in /tmp that all machines see, because they hold the test's folder, the program or
    files that the program needs."""
    named = [pathlib.Path(path).absolute() for path in (folder, LOCKSTEP, DIGITS, sys.prefix)]
    paths = [*named, *(path.resolve() for path in named)]
    return sorted({TMP / path.parts[2] for path in paths if TMP in path.parents})


class Network:
    """Makes a network of machines with these names. The first machine has the address 10.77.0.1, the second 10.77.0.2,
    and so on. `variables` are the environment variables with which commands on it find Open MPI; {}: the machine's
    own."""

    def __init__(self, folder, names, variables=()):
        self.folder = pathlib.Path(folder)
        self.variables = dict(variables)
        self.addresses = {name: f"10.77.0.{number + 1}" for number, name in enumerate(names)}
        self.hosts = {}
        self.switch = None
        # This script replaces ssh. Like ssh, it fails if the machine cannot be reached on the network within 5 s, does
        # not pass on the caller's environment variables, and exits with 255 if the connection is lost. PATH and
        # LD_LIBRARY_PATH are those that the shell's start files would set there.
        self.agent = self.folder / "agent"
        self.agent.write_text(
            f"""#!/bin/bash
            while [[ $1 == -* ]]; do [[ $1 != -o ]] || shift; shift; done
            host=$1; shift
            said=$(timeout 5 bash -c ": >/dev/tcp/$host/22" 2>&1)
            [[ $said == *refused* ]] || {{ echo "ssh: connect to host $host port 22: ${{said##*: }}" >&2; exit 255; }}
            nsenter --target "$(cat "{self.folder}/$host.pid")" --net --uts --mount \\
              env -i HOME="$HOME" PATH="$PATH" LD_LIBRARY_PATH="${{LD_LIBRARY_PATH-}}" sh -c "$*"
            status=$?
            exit $((status > 128 ? 255 : status))\n"""
        )
        self.agent.chmod(0o755)

    def __getitem__(self, name):
        return self.hosts[name]

    def __enter__(self):
        try:
            self.switch = Namespaces("ip link add bridge type bridge\nip link set bridge up")
            lines = [f"{address} {name}\n" for name, address in self.addresses.items()]
            (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
            for name in self.addresses:
                self.add(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def add(self, name):
        temporary = self.folder / f"tmp.{name}"
        temporary.mkdir()
        keep = "\n".join(
            f"{'mkdir' if place.is_dir() else 'touch'} {temporary}/{place.name}\n"
            f"mount --bind {place} {temporary}/{place.name}"
            for place in shared_places(self.folder)
        )
        script = f"""hostname {name}
            mount --make-rprivate /
            mount -t tmpfs tmpfs /dev/shm
            mount --bind {self.folder}/hosts /etc/hosts
            mount -t tmpfs tmpfs {temporary}
            {keep}
            mount --rbind {temporary} /tmp
            ip link set lo up"""
        host = Namespaces(script)
        self.hosts[name] = host
        (self.folder / f"{name}.pid").write_text(str(host.keeper.pid))
        self.switch.run(f"ip link add name to-{name} type veth peer name eth0 netns {host.keeper.pid}")
        self.switch.run(f"ip link set to-{name} master bridge up")
        host.run(f"ip address add {self.addresses[name]}/24 dev eth0")
        host.run("ip link set eth0 up")

    def __exit__(self, *unused):
        for namespaces in [*self.hosts.values(), self.switch]:
            if namespaces is not None:
                namespaces.end()

    def cut(self, name):
        """Takes the machine's link to the switch down, as if its network cable were pulled."""
        self.switch.run(f"ip link set to-{name} down")

    def mend(self, name):
        self.switch.run(f"ip link set to-{name} up")

    def slow(self, name, seconds):
        """Delays each frame by `seconds` on its way between the machine and the switch, in both directions."""
        for host in self.hosts.values():
            host.run(f"{sys.executable} {SLOW_CABLE} eth0")
        self.switch.run(f"ip link set to-{name} nomaster")
        cable = subprocess.Popen(
            [*self.switch.enter, sys.executable, SLOW_CABLE, f"to-{name}", f"slow-{name}", str(seconds)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert cable.stdout.readline() == "ready\n"

    def wait_until_empty(self):
        """Waits until no process but the keepers is left on any machine."""
        wait_until(lambda: not any(host.processes() for host in self.hosts.values()))
