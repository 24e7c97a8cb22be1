"""Runs the real lockstep program as a user would, for the tests of this folder.

The program is $LOCKSTEP (Bazel's tests set it). Nothing here needs Bazel, so the same tests run on a GPU
machine that has only the binaries: `LOCKSTEP=... DEVICE=CUDA LOCKSTEP_TIER=all python3 -m pytest tests`.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

LOCKSTEP = os.path.abspath(os.environ["LOCKSTEP"])
DEVICE = os.environ.get("DEVICE", "CPU")
DIGITS = pathlib.Path(os.environ.get("DIGITS", "examples/digits/digits.csv")).absolute()

# Where runs keep indexes of images: not in the user's.
_cache = tempfile.TemporaryDirectory(prefix="lockstep-cache-")
os.environ["XDG_CACHE_HOME"] = _cache.name

# The exit statuses of docs/design.md.
DONE, USAGE, DATA, CHECKPOINT, PEER, BUG, STOPPED, INTERRUPTED = 0, 2, 3, 4, 5, 70, 75, 130


class Run:
    """A finished lockstep command."""

    def __init__(self, arguments, ranks=None, program=LOCKSTEP, cwd=None, env=None, timeout=120):
        command = [program] + (["-n", str(ranks)] if ranks else []) + [str(a) for a in arguments]
        begin = time.monotonic()
        done = subprocess.run(
            command,
            cwd=cwd,
            env=dict(os.environ, **(env or {})),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",  # a file's name may be no UTF-8
            timeout=timeout,
        )
        self.seconds = time.monotonic() - begin
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def error_lines(self):
        """Standard error without the mpirun command that `-n` announces."""
        return [line for line in self.err.splitlines() if line.strip() and not line.startswith("env OMPI_MCA")]

    def __str__(self):
        return f"status {self.status}\n{self.out}\n{self.err}"

    __repr__ = __str__  # what pytest shows


def log_text(run_dir):
    """The log as far as it is there, its last line maybe not whole."""
    try:
        return (run_dir / "log.jsonl").read_text()
    except FileNotFoundError:  # not yet, or --fresh has just moved it away
        return ""


def turned_by(value):
    """EXIF data of a camera that was held so."""
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = value
    return exif


class Started:
    """A command that trains until it is told otherwise. What it prints goes to files beside its run folder."""

    LONG_S = 60  # for anything to happen that does

    def __init__(self, config, run_dir, ranks=None, words=(), program=LOCKSTEP, env=None, launcher=()):
        self.run_dir = pathlib.Path(run_dir)
        command = [*launcher, program] + (["-n", ranks] if ranks else [])
        command += ["train", config, "--set", f"run_dir={run_dir}", *words]
        self.outputs = [self.run_dir.with_name(self.run_dir.name + suffix) for suffix in (".out", ".err")]
        with open(self.outputs[0], "w") as out, open(self.outputs[1], "w") as err:
            self.process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=dict(os.environ, **(env or {})),
            )

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def texts(self):
        """What it has printed, and said on standard error."""
        return [path.read_text(errors="replace") for path in self.outputs]

    def wait_until(self, condition):
        """Until it holds, which it must before the job ends."""

        def holds():
            assert self.process.poll() is None, self.texts()
            return condition()

        wait_until(holds, self.LONG_S)

    def wait_for(self, kind, count=1):
        """Until the log has so many lines of that event."""
        self.wait_until(lambda: log_text(self.run_dir).count(f'{{"event":"{kind}",') >= count)

    def wait_for_text(self, text):
        """Until it is on standard error."""
        self.wait_until(lambda: text in self.texts()[1])

    def children(self):
        """The processes that it started and that have not ended."""
        return [*map(int, pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split())]

    def child(self):
        """The only one."""
        (pid,) = self.children()
        return pid

    def rank(self, number):
        """Its process."""
        for pid in processes_of(self.run_dir):
            try:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace")
            except OSError:  # it has ended
                continue
            if f"OMPI_COMM_WORLD_RANK={number}\0" in environment:
                return pid
        raise AssertionError(f"no rank {number}")

    def stop(self):
        """Asks it to, and waits for its end."""
        os.kill(self.process.pid, signal.SIGUSR2)
        return self.end()

    def end(self):
        status = self.process.wait(timeout=self.LONG_S)
        wait_until(lambda: not processes_with(str(self.run_dir)), self.LONG_S)
        return [status, *self.texts()]


def train(config, run_dir, *arguments, ranks=None, program=LOCKSTEP, env=None):
    return Run(["train", config, "--set", f"run_dir={run_dir}", *arguments], ranks=ranks, program=program, env=env)


def runs_by_ranks(tmp_path_factory, make_config):
    """A function of the number of ranks: config, run folder and seconds of a run that nothing happens to, made once;
    make_config(folder, ranks) is its config."""
    runs = {}

    def run_of(ranks):
        if ranks not in runs:
            folder = tmp_path_factory.mktemp(f"undisturbed-{ranks}")
            config = make_config(folder, ranks)
            run = train(config, folder / "run", ranks=ranks if ranks > 1 else None)
            assert run.status == DONE, run
            runs[ranks] = config, folder / "run", run.seconds
        return runs[ranks]

    return run_of


def events(run_dir, kind=None):
    """The objects of a run's log.jsonl, all or those of one event."""
    lines = (pathlib.Path(run_dir) / "log.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if kind in (None, e["event"])]


def losses_by_step(run_dir):
    """Loss and gradient's norm; of lines of one step the last counts: the others are of a process that ended."""
    return {e["step"]: (e["loss"], e["grad_norm"]) for e in events(run_dir, "step")}


def checkpoints(run_dir):
    """The steps that a run has committed checkpoints of."""
    folder = pathlib.Path(run_dir) / "checkpoints"
    names = os.listdir(folder) if folder.is_dir() else []
    return sorted(int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name))


def faulty_model(**options):
    """What a config says of the model in tests/faulty_model.cc."""
    return 'name: "faulty" ' + " ".join(f'option {{ key: "{k}" value: "{v}" }}' for k, v in options.items())


def faulty_data(**options):
    """What a config says of the data set in tests/faulty_model.cc."""
    listed = " ".join(f'option {{ key: "{k}" value: "{v}" }}' for k, v in options.items())
    return f'data {{ format: OWN train: "{DIGITS}" own {{ name: "faulty" {listed} }} }}'


def expect_error(run, status, *parts):
    """The command ended with `status` and one line that holds `parts`."""
    assert run.status == status, run
    assert len(run.error_lines) == 1, run
    assert run.error_lines[0].startswith("lockstep: error: "), run
    for part in parts:
        assert part in run.error_lines[0], run


def weights_of(run_dir):
    import safetensors.torch

    return safetensors.torch.load_file(pathlib.Path(run_dir) / "weights.safetensors")


def expect_close_weights(run_dir, expected_run_dir):
    """Two runs ended with the same weights, up to what sums in another order make of them."""
    import torch

    torch.testing.assert_close(weights_of(run_dir), weights_of(expected_run_dir), rtol=1e-4, atol=1e-6)


def skip_without_gpus(ranks):
    """Skips a test of so many ranks (None: one) on a machine with fewer GPUs than they need."""
    if DEVICE != "CUDA":
        return
    import pytest
    import torch  # takes seconds, which most tests without a GPU need not wait

    if (ranks or 1) > torch.cuda.device_count():
        pytest.skip(f"{ranks} ranks need as many GPUs; this machine has {torch.cuda.device_count()}")


def write_config(folder, text):
    path = pathlib.Path(folder) / "config.pbtxt"
    path.write_text(f"device: {DEVICE}\n{text}")
    return path


def noisy_digits(folder, samples, planted=()):
    """Features and labels of the first digits, as in `folder`/train.csv. The pixels are whole numbers, so that
    different patches give equal sums; noise leaves no ties for a maximum to break. The rows `planted` overflow in
    every format."""
    import numpy as np
    import torch

    rows = np.loadtxt(DIGITS, delimiter=",")[:samples]
    rows[:, :64] = (rows[:, :64] + np.random.default_rng(1).uniform(0, 3, (samples, 64))) / 16
    rows[list(planted), :64] = 3e38
    np.savetxt(pathlib.Path(folder) / "train.csv", rows, fmt=["%.6g"] * 64 + ["%d"], delimiter=",")
    rows = torch.from_numpy(np.loadtxt(pathlib.Path(folder) / "train.csv", delimiter=",", dtype=np.float32))
    return rows[:, :64], rows[:, 64].long()


def split_digits(folder, train=1437):
    """Digits, shuffled with NumPy's seed 0 as the PyTorch peer does, as train.csv and test.csv."""
    import numpy as np

    rows = DIGITS.read_text().split()
    order = np.random.default_rng(0).permutation(len(rows))
    for name, part in (("train.csv", order[:train]), ("test.csv", order[train:])):
        (pathlib.Path(folder) / name).write_text("".join(rows[i] + "\n" for i in part))


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to be"
        os.sched_yield()


def processes_of(text):
    """The ids and command lines of this machine's living processes whose command lines hold `text`."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
                zombie = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
            except OSError:  # it has ended meanwhile
                continue
            if str(text) in command and not zombie:
                found[int(entry.name)] = command
    return found


def processes_with(text):
    return list(processes_of(text).values())
