"""Runs a real Slurm on this machine, for tests: munge, a controller and two nodes. Each node has its own UTS and mount
namespace, with its own host name and /dev/shm. All files are in one folder; the system is not changed, and none of its
services is used."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

from harness import LONG_S, processes_in_namespace, wait_until, wait_until_gone

PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch", "scontrol", "unshare"]
NODES = ["n1", "n2"]


def why_not():
    """Returns the reason why this machine cannot run such a cluster, or "" if it can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") is None]
    if missing:
        return f"needs a Slurm to start: {', '.join(missing)} are missing (apt-get install slurm-wlm munge)"
    if os.geteuid() != 0:
        return "needs to be root, to give two nodes namespaces of their own"
    if subprocess.run(["unshare", "--uts", "--mount", "true"], capture_output=True).returncode != 0:
        return "needs namespaces, which this machine does not allow"
    return ""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Cluster:
    def __init__(self, cpus=4):
        # munge requires that all users can reach its socket, which is in this folder.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        self.folder.chmod(0o755)
        for name in ("munge", "state", *(f"{use}.{node}" for use in ("spool", "tmp") for node in NODES)):
            (self.folder / name).mkdir(mode=0o711)
        controller, *of_nodes = free_ports(1 + len(NODES))
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        host = socket.gethostname()
        lines = [
            "ClusterName=test",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={controller}",
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            "CredType=cred/munge",
            # Requeued jobs wait for the lifetime of a credential; the minimum is five seconds.
            f"AuthInfo=socket={self.folder}/munge/socket,cred_expire=5",
            f"StateSaveLocation={self.folder}/state",
            f"SlurmctldPidFile={self.folder}/slurmctld.pid",
            f"SlurmctldLogFile={self.folder}/slurmctld.log",
            f"SlurmdPidFile={self.folder}/slurmd.%n.pid",
            f"SlurmdSpoolDir={self.folder}/spool.%n",
            f"SlurmdLogFile={self.folder}/slurmd.%n.log",
            f"TmpFS={self.folder}/tmp.%n",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0",
            "ReturnToService=2",
            "SlurmdTimeout=15",
            "KillWait=5",
            "MinJobAge=600",
            "JobRequeue=1",
            "PropagateResourceLimits=NONE",
            "SlurmdParameters=config_overrides",
        ]
        for node, port in zip(NODES, of_nodes):
            lines.append(f"NodeName={node} NodeHostname={node} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=2000")
        lines.append("PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        self.config = self.folder / "slurm.conf"
        self.config.write_text("\n".join(lines) + "\n")
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.folder / "hosts").write_text(
            f"127.0.0.1 localhost {host}\n" + "".join(f"127.0.0.1 {node}\n" for node in NODES)
        )
        path = os.environ["PATH"] + ":/usr/sbin:/sbin"
        self.environment = dict(os.environ, PATH=path, SLURM_CONF=str(self.config))

    def __enter__(self):
        munge = self.folder / "munge"
        self.run(
            "munged",
            *(f"--{name}-file={munge}/{file}" for name, file in [("key", "key"), ("pid", "pid"), ("seed", "seed"), ("log", "log")]),
            f"--socket={munge}/socket",
        )
        self.run("slurmctld", "-f", self.config, "-c")
        for node in NODES:
            self.start(node)
        wait_until(lambda: self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split() == NODES)
        return self

    def start(self, node):
        script = f"""hostname {node}; mount --make-rprivate /; mount --bind {self.folder}/hosts /etc/hosts
            mount -t tmpfs tmpfs /dev/shm; exec slurmd -f {self.config} -N {node}"""
        self.run("unshare", "--uts", "--mount", "sh", "-ec", script)

    def lose(self, node):
        """Simulates a power failure of the node: all its processes are killed at once."""
        for pid in processes_in_namespace((self.folder / f"slurmd.{node}.pid").read_text().strip(), "uts"):
            with contextlib.suppress(ProcessLookupError):  # the process has ended
                os.kill(pid, signal.SIGKILL)

    def __exit__(self, *unused):
        for state in ("PENDING", "RUNNING"):
            self.run("scancel", "-Q", f"--state={state}", check=False)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.run("squeue", "-h", check=False), 15)
        for pid in (*self.folder.glob("slurmd.*.pid"), self.folder / "slurmctld.pid", self.folder / "munge" / "pid"):
            subprocess.run(["kill", pid.read_text().strip()], check=False, capture_output=True)
        wait_until_gone(self.folder)
        shutil.rmtree(self.folder)

    def run(self, *words, check=True, cwd=None):
        done = subprocess.run(
            list(map(str, words)), env=self.environment, cwd=cwd, capture_output=True, text=True, timeout=LONG_S
        )
        assert not check or done.returncode == 0, done
        return done.stdout

    def submit(self, script, cwd):
        return self.run("sbatch", "--parsable", script, cwd=cwd).strip()

    def of(self, job, field):
        """Returns the value of a field in Slurm's description of the job."""
        words = dict(word.split("=", 1) for word in self.run("scontrol", "show", "job", job).split() if "=" in word)
        return words[field]

    def wait_for(self, job, state, limit_s=LONG_S):
        wait_until(lambda: self.of(job, "JobState") == state, limit_s)
