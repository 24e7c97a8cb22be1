"""Runs the real lockstep program as a user would, for the tests of this folder.

The program is $LOCKSTEP (Bazel's tests set it). This module does not need Bazel, so the same tests run on a GPU machine
that has only the binaries: `LOCKSTEP=... DEVICE=CUDA LOCKSTEP_TIER=all python3 -m pytest tests`.
"""

import contextlib
import csv
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time


def path_of(variable):
    """Returns the absolute path of a program, library or file from an environment variable that the test's BUILD file
    sets.

    If $CASES_TO is set, conftest.py only lists the cases. Bazel may not have built the file then, so if the environment
    variable is not set, the path of a file that does not exist is returned."""
    unbuilt = {variable: "/nowhere"} if "CASES_TO" in os.environ else {}
    return os.path.abspath((unbuilt | os.environ)[variable])


LOCKSTEP = path_of("LOCKSTEP")
DEVICE = os.environ.get("DEVICE", "CPU")
DIGITS = pathlib.Path(os.environ.get("DIGITS", "examples/digits/digits.csv")).absolute()

# Runs keep their indexes of image files in this temporary folder, and not in the user's cache.
_cache = tempfile.TemporaryDirectory(prefix="lockstep-cache-")
os.environ["XDG_CACHE_HOME"] = _cache.name

LONG_S = 60  # time limit in seconds for anything that is expected to happen

# The exit statuses of docs/design.md.
DONE, USAGE, DATA, CHECKPOINT, PEER, BUG, STOPPED, INTERRUPTED = 0, 2, 3, 4, 5, 70, 75, 130


def command_of(arguments, ranks=None, program=LOCKSTEP, launcher=()):
    """Returns the words of a lockstep command. With more than one rank, `-n` tells the program to start them;
    `launcher` is put before the program."""
    several = ["-n", ranks] if ranks and ranks > 1 else []
    return [str(word) for word in (*launcher, program, *several, *arguments)]


def mpirun(ranks, *words):
    """Returns the words to put before a program to start it as `ranks` ranks without `lockstep -n`. `words` are further
    arguments of mpirun, which replace the default, `--bind-to none`."""
    # Open MPI 5's mpirun has no option -quiet.
    always = ["env", "OMPI_MCA_orte_execute_quiet=1", "OMPI_MCA_plm=isolated"]
    always += ["mpirun", "--allow-run-as-root", "--oversubscribe"]
    return [*always, *(words or ("--bind-to", "none")), "-n", str(ranks)]


def in_mount_namespace(folder, prepare):
    """Returns a launcher for commands that see the file systems which the shell command `prepare` mounts. Skips the
    test if this process may not make a mount namespace."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        import pytest

        pytest.skip("needs root and mount namespaces, to have other file systems")
    script = pathlib.Path(folder) / "in_namespace.sh"
    script.write_text(f'set -e\nmount --make-rprivate /\n{prepare}\nexec "$@"\n')
    return ["unshare", "--mount", "sh", str(script)]


class Run:
    """Runs a lockstep command to its end. Holds its exit status, its output and error text, and the seconds that it
    took."""

    def __init__(self, arguments, ranks=None, program=LOCKSTEP, launcher=(), cwd=None, env=None, timeout=120, input=""):
        """Runs the command with `input` as its standard input, for at most `timeout` seconds."""
        command = command_of(arguments, ranks, program, launcher)
        self.has_own_mpirun = "mpirun" in command
        begin = time.monotonic()
        done = subprocess.run(
            command,
            cwd=cwd,
            env=dict(os.environ, **(env or {})),
            input=input,
            capture_output=True,
            text=True,
            errors="replace",  # file names may not be UTF-8
            timeout=timeout,
        )
        self.seconds = time.monotonic() - begin
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def error_lines(self):
        """Returns the lines of standard error, without the mpirun command that `-n` announces. If the test itself has
        started mpirun, the page that Open MPI 5 prints when a rank fails is left out, too."""
        page = r"^-{70,}\nprterun .*?^-{70,}\n" if self.has_own_mpirun else r"(?!)"
        own = re.sub(page, "", self.err, flags=re.DOTALL | re.MULTILINE)
        return [line for line in own.split("\n") if line.strip() and not line.startswith("env OMPI_MCA")]

    def __str__(self):
        return f"status {self.status}\n{self.out}\n{self.err}"

    __repr__ = __str__  # pytest shows this text in a failed assertion


def log_text(run_dir):
    """Returns the text of the log so far, or "" if there is no log. The last line may be incomplete."""
    try:
        return (run_dir / "log.jsonl").read_text()
    except FileNotFoundError:  # the log is not written yet, or --fresh has just moved it away
        return ""


class Started:
    """Starts a training command, which runs on while the test acts. Its output goes to files beside its run folder. At
    the end of a `with` block, the command is killed if it still runs."""

    def __init__(self, config, run_dir, ranks=None, words=(), program=LOCKSTEP, env=None, launcher=(), **options):
        """Starts the command; `options` are passed to Popen."""
        self.run_dir = pathlib.Path(run_dir)
        self.outputs = [self.run_dir.with_name(self.run_dir.name + suffix) for suffix in (".out", ".err")]
        with open(self.outputs[0], "w") as out, open(self.outputs[1], "w") as err:
            self.process = subprocess.Popen(
                command_of(["train", config, "--set", f"run_dir={run_dir}", *words], ranks, program, launcher),
                stdout=out,
                stderr=err,
                env=dict(os.environ, **(env or {})),
                **{"stdin": subprocess.DEVNULL, **options},
            )

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def texts(self):
        """Returns the command's standard output and standard error so far."""
        return [path.read_text(errors="replace") for path in self.outputs]

    def wait_until(self, condition):
        """Waits until `condition()` is true, and fails if the command ends first."""

        def holds():
            assert self.process.poll() is None, self.texts()
            return condition()

        wait_until(holds)

    def wait_for(self, kind, count=1):
        """Waits until the log has at least `count` lines of the event `kind`."""
        self.wait_until(lambda: log_text(self.run_dir).count(f'{{"event":"{kind}",') >= count)

    def wait_for_text(self, text):
        """Waits until `text` is on the command's standard error."""
        self.wait_until(lambda: text in self.texts()[1])

    def children(self):
        """Returns the ids of the command's child processes that have not ended."""
        return [*map(int, pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split())]

    def child(self):
        """Returns the id of the command's only child process."""
        (pid,) = self.children()
        return pid

    def ranks(self):
        """Returns {rank: process id} of the job's ranks that are running."""
        return ranks_of(self.run_dir)

    def rank(self, number):
        """Returns the process id of rank `number`."""
        return self.ranks()[number]

    def stop(self):
        """Sends the command the signal to stop (SIGUSR2), and waits for its end. Returns [exit status, output, error
        text]."""
        os.kill(self.process.pid, signal.SIGUSR2)
        return self.end()

    def end(self):
        status = self.process.wait(timeout=LONG_S)
        wait_until_gone(self.run_dir)
        return [status, *self.texts()]


def sets(*assignments):
    """Returns the command-line arguments that set fields of a config."""
    return [word for assignment in assignments for word in ("--set", assignment)]


def train(config, run_dir, *arguments, **options):
    """Runs `lockstep train` to its end; `options` are passed to Run."""
    return Run(["train", config, "--set", f"run_dir={run_dir}", *arguments], **options)


def trained_losses(config, run_dir, *arguments, **options):
    """Trains to the end, and returns the losses of all logged steps."""
    run = train(config, run_dir, *arguments, **options)
    assert run.status == DONE, run
    return step_losses(run_dir)


def run_ranks(*commands):
    """Runs commands, which may be of different programs, as the ranks of one job; the first command is rank 0."""
    # mpirun itself can start several programs, but the one of Open MPI 5.0.7 crashes then.
    cases = [f"{rank}) exec {shlex.join(map(str, command))} ;;" for rank, command in enumerate(commands)]
    script = f"case $OMPI_COMM_WORLD_RANK in {' '.join(cases)} esac"
    first, *words = [*mpirun(len(commands)), "sh", "-c", script]
    return Run(words, program=first)


def predict(run_dir, *inputs, **options):
    """Runs `predict`, which writes predictions.csv beside the run folder. Returns the file's rows, each as {column:
    cell}; `options` are passed to Run."""
    output = pathlib.Path(run_dir).with_name("predictions.csv")
    run = Run(["predict", run_dir, "--input", *inputs, "--output", output], **options)
    assert run.status == DONE, run
    return rows_of(output)


def write_table(path, rows, header):
    """Writes a CSV file with a header."""
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def rows_of(path):
    """Returns the rows of a CSV file with a header, each as {column: cell}."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def runs_by_ranks(tmp_path_factory, make_config, **options):
    """Returns a function that takes the number of ranks and returns (config, run folder, seconds) of an undisturbed
    run. The run for each number of ranks is made once, with the config that make_config(folder, ranks) returns;
    `options` are passed to Run."""
    runs = {}

    def run_of(ranks):
        if ranks not in runs:
            folder = tmp_path_factory.mktemp(f"undisturbed-{ranks}")
            config = make_config(folder, ranks)
            run = train(config, folder / "run", ranks=ranks, **options)
            assert run.status == DONE, run
            runs[ranks] = config, folder / "run", run.seconds
        return runs[ranks]

    return run_of


def lines_of(text):
    """Returns the complete lines of a text, without their ends. str.splitlines() would also split at other characters,
    such as U+2028, which a line of JSON or a cell may contain."""
    return text.split("\n")[:-1]


def events(run_dir, kind=None):
    """Returns the objects in a run's log.jsonl, or only those of the event `kind`. A last line that is still being
    written is left out."""
    lines = lines_of((pathlib.Path(run_dir) / "log.jsonl").read_text())
    return [e for e in map(json.loads, lines) if kind in (None, e["event"])]


def step_losses(run_dir):
    """Returns the loss of every step in the log."""
    return [step["loss"] for step in events(run_dir, "step")]


def losses_by_step(run_dir):
    """Returns {step: (loss, gradient norm)}. If the log has a step twice, the last line counts, because the earlier
    ones are from a process that ended before the run was resumed."""
    return {e["step"]: (e["loss"], e["grad_norm"]) for e in events(run_dir, "step")}


def checkpoints(run_dir):
    """Returns the steps whose checkpoints a run has committed."""
    folder = pathlib.Path(run_dir) / "checkpoints"
    names = os.listdir(folder) if folder.is_dir() else []
    return sorted(int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name))


def checkpoint_folder(run_dir, step):
    return pathlib.Path(run_dir) / "checkpoints" / f"step-{step:012}"


def faulty_model(**options):
    """Returns the text of a config's `model` for the model in tests/faulty_model.cc, with these options."""
    return 'name: "faulty" ' + " ".join(f'option {{ key: "{k}" value: "{v}" }}' for k, v in options.items())


def faulty_data(**options):
    """Returns the text of a config's `data` for the data set in tests/faulty_model.cc, with these options and the
    digits."""
    return f'data {{ format: OWN train: "{DIGITS}" own {{ {faulty_model(**options)} }} }}'


def digits_data(more="", train=DIGITS):
    """Returns the text of a config's `data` for a file of digits, whose pixels are 0 to 16 and are scaled to 0 to 1."""
    return f'data {{ train: "{train}" csv {{ scale: 0.0625 }} {more} }}'


SMALL_MLP = 'name: "mlp" mlp { hidden: [24] dropout: 0.2 }'


def digits_config(
    more="", data=digits_data(), model=SMALL_MLP, optimizer="type: ADAMW lr: 0.003", epochs=100000, log_every=1
):
    """Returns the text of a config whose training gives the same bits each time."""
    return f"""deterministic: true log {{ every_steps: {log_every} }} global_batch: 64 epochs: {epochs}
        {data} model {{ {model} }} optimizer {{ {optimizer} }} {more}"""


def expect_error(run, status, *parts):
    """Checks that the command ended with `status` and one error line that contains `parts`."""
    assert run.status == status, run
    assert len(run.error_lines) == 1, run
    assert run.error_lines[0].startswith("lockstep: error: "), run
    for part in parts:
        assert part in run.error_lines[0], run


def expect_refused(folder, text, status, *parts):
    """Checks that a config with this text does not train, and that one error line contains `parts`."""
    expect_error(Run(["train", write_config(folder, text)]), status, *parts)


def save_init(folder, weights):
    """Saves initial weights as init.safetensors in `folder`. A config loads them with init_from: "init.safetensors"."""
    import safetensors.torch

    # The tensors are copied, because no two tensors of such a file may share memory.
    copies = {name: tensor.contiguous().clone() for name, tensor in weights.items()}
    safetensors.torch.save_file(copies, pathlib.Path(folder) / "init.safetensors")


def weight_bytes(run_dir):
    return (pathlib.Path(run_dir) / "weights.safetensors").read_bytes()


def weights_of(run_dir):
    import safetensors.torch

    return safetensors.torch.load_file(pathlib.Path(run_dir) / "weights.safetensors")


def expect_close_weights(run_dir, expected_run_dir):
    """Checks that two runs ended with the same weights, up to the rounding of sums in another order."""
    import torch

    torch.testing.assert_close(weights_of(run_dir), weights_of(expected_run_dir), rtol=1e-4, atol=1e-6)


def skip_without_gpus(ranks):
    """Skips a test of `ranks` ranks (None: one rank) on a machine with fewer GPUs than ranks."""
    if DEVICE != "CUDA":
        return
    import pytest
    import torch  # imported here, because the import takes seconds and most tests without a GPU do not need it

    if (ranks or 1) > torch.cuda.device_count():
        pytest.skip(f"{ranks} ranks need as many GPUs; this machine has {torch.cuda.device_count()}")


def needs_gpus(count):
    """Skips the test if the tests run on the CPU or the machine has fewer than `count` GPUs."""
    if DEVICE != "CUDA":
        import pytest

        pytest.skip("needs GPUs: this is the test on CPUs")
    skip_without_gpus(count)


HOLD = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
held = torch.empty(free - int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def nearly_full_gpu(left_bytes):
    """Lets another process hold all free memory of the GPU but `left_bytes`, until the `with` block ends or the yielded
    function is called."""
    command = [sys.executable, "-c", HOLD, str(left_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        yield lambda: other.communicate("")


def write_config(folder, text, name="config.pbtxt"):
    path = pathlib.Path(folder) / name
    path.write_text(f"device: {DEVICE}\n{text}")
    return path


def noisy_digits(folder, samples, planted=()):
    """Returns the features and labels of the first `samples` digits, and writes them to `folder`/train.csv. The pixels
    are whole numbers, so a model could compute equal values for different patches, and a max pooling would choose one
    of them arbitrarily. Added noise prevents these ties. The rows whose numbers are in `planted` hold 3e38, so that
    sums over them overflow in every format."""
    import numpy as np
    import torch

    rows = np.loadtxt(DIGITS, delimiter=",")[:samples]
    rows[:, :64] = (rows[:, :64] + np.random.default_rng(1).uniform(0, 3, (samples, 64))) / 16
    rows[list(planted), :64] = 3e38
    np.savetxt(pathlib.Path(folder) / "train.csv", rows, fmt=["%.6g"] * 64 + ["%d"], delimiter=",")
    rows = torch.from_numpy(np.loadtxt(pathlib.Path(folder) / "train.csv", delimiter=",", dtype=np.float32))
    return rows[:, :64], rows[:, 64].long()


def split_digits(folder, train=1437):
    """Writes the digits as train.csv (`train` rows) and test.csv (the rest), shuffled with NumPy's seed 0 as in the
    comparison with PyTorch (tests/bench/digits_ddp.py)."""
    import numpy as np

    rows = DIGITS.read_text().split()
    order = np.random.default_rng(0).permutation(len(rows))
    for name, part in (("train.csv", order[:train]), ("test.csv", order[train:])):
        (pathlib.Path(folder) / name).write_text("".join(rows[i] + "\n" for i in part))


def wait_until(condition, seconds=LONG_S):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to be"
        os.sched_yield()


def processes_of(text):
    """Returns {id: command line} of this machine's living processes whose command lines contain `text`."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
                zombie = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
            except OSError:  # the process has ended meanwhile
                continue
            if str(text) in command and not zombie:
                found[int(entry.name)] = command
    return found


def ranks_of(text):
    """Returns {rank: process id} of the running ranks whose command lines contain `text`."""
    found = {}
    for pid in processes_of(text):
        with contextlib.suppress(OSError):  # the process has ended
            environment = pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace")
            if number := re.search(r"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)\0", environment):
                found[int(number[1])] = pid
    return found


def wait_until_gone(text, seconds=LONG_S):
    """Waits until no process of this machine has `text` in its command line."""
    wait_until(lambda: not processes_of(text), seconds)


def processes_in_namespace(pid, kind):
    """Returns the ids of the processes that share process `pid`'s namespace of the kind `kind`, such as "net"."""
    own = os.readlink(f"/proc/{pid}/ns/{kind}")
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            if entry.name.isdigit() and os.readlink(entry / "ns" / kind) == own:
                found.append(int(entry.name))
    return found
