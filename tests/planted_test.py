"""Tests how commands react to mistakes of users and to faults of machines. In each case the command ends in time,
with the documented exit status, prints at most one line on standard error, leaves no process running, and changes
nothing outside its run folder and its output.

Each case has a copy of one trained run, some data, and a tree of unrelated files that must not change. Every commit's
tests run a fifth of the cases, drawn with the seed $SEED (1 by default).
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import stat
import struct
import subprocess

import numpy as np
import pytest
import safetensors.numpy

from harness import (
    CHECKPOINT,
    DATA,
    DIGITS,
    DONE,
    LOCKSTEP,
    PEER,
    USAGE,
    digits_data,
    train,
    wait_until_gone,
    write_config,
)

LIMIT_S = 10
SEED = int(os.environ.get("SEED", "1"))
SHARE = 5
RUN = "run"
CONFIG = "config.pbtxt"
TEXT = f"""{digits_data("validation_fraction: 0.2")} model {{ name: "mlp" mlp {{ hidden: [8] }} }}
epochs: 2 global_batch: 64 checkpoint {{ every_steps: 20 keep: 2 }}"""


@dataclasses.dataclass
class Case:
    name: str
    command: str  # a shell command, run in the case's folder; {L} is the program
    status: object  # the exit status, or a set of allowed ones
    says: tuple = ()  # texts; each must occur in a line on standard error
    plant: object = None  # a function that gets the folder, and is called before the command
    check: object = None  # a function that gets the folder and the command's standard output, called after it
    lines: int = 1  # the number of the program's lines on standard error
    tells: tuple = ()  # the allowed beginnings of these lines; empty: those of lockstep's errors and warnings


CASES = []


def case(name, command, status, *says, **more):
    CASES.append(Case(name, command, status, says, **more))


def folder_of(path, name):
    return path / RUN / name


# ---- Outputs that are not regular files ------------------------------------------------------------------------------


def plant_outputs(folder):
    out = folder / "out"
    out.mkdir()
    (out / "file").write_text("before")
    (out / "link").symlink_to("file")
    (out / "dangling").symlink_to("made")
    (out / "circle").symlink_to("circle")
    (out / "null").symlink_to("/dev/null")
    (out / "folder").mkdir()
    os.mkfifo(out / "pipe")
    os.mknod(out / "socket", stat.S_IFSOCK | 0o600)


def has_output(name, link=False):
    def check(folder, out):
        path = folder / "out" / name
        assert path.stat().st_size > 20
        assert path.is_symlink() == link

    return check


def stays(name, kind):
    def check(folder, out):
        assert kind((folder / "out" / name).lstat().st_mode)

    return check


def null_is_a_device(folder, out):
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def wrote_to_stdout(folder, out):
    """Checks that standard output has only the result: lines of predictions, or a safetensors file."""
    if out.startswith(b"index,"):
        assert all(line.split(b",")[0].isdigit() for line in out.splitlines()[1:])
    else:
        assert safetensors.numpy.load(out)



WRITERS = {
    "predict": "predict run --input digits.csv --output {O}",
    "export": "export run --output {O}",
    "average": "average run run@46 --output {O}",
}
for writer, words in WRITERS.items():
    def to(target, words=words):
        return "{L} " + words.replace("{O}", target)

    case(f"{writer}-file", to("out/file"), DONE, plant=plant_outputs, check=has_output("file"), lines=0)
    case(f"{writer}-new", to("out/new"), DONE, plant=plant_outputs, check=has_output("new"), lines=0)
    case(f"{writer}-link", to("out/link"), DONE, plant=plant_outputs, check=has_output("link", link=True), lines=0)
    case(f"{writer}-dangling", to("out/dangling"), DONE, plant=plant_outputs, check=has_output("made"), lines=0)
    case(f"{writer}-circle", to("out/circle"), CHECKPOINT, "out/circle: cannot be written", plant=plant_outputs)
    case(f"{writer}-folder", to("out/folder"), CHECKPOINT, "out/folder: cannot be written: it is a folder", plant=plant_outputs)
    case(f"{writer}-socket", to("out/socket"), CHECKPOINT, "it is a socket", plant=plant_outputs, check=stays("socket", stat.S_ISSOCK))
    case(f"{writer}-nowhere", to("nowhere/file"), CHECKPOINT, "nowhere/file: cannot be written: nowhere: No such file")
    case(f"{writer}-long", to("x" * 300), CHECKPOINT, "File name too long")
    case(f"{writer}-empty", to("''"), USAGE)
    case(f"{writer}-null", to("/dev/null"), DONE, check=null_is_a_device, lines=0)
    case(f"{writer}-null-link", to("out/null"), DONE, plant=plant_outputs, check=stays("null", stat.S_ISLNK), lines=0)
    case(f"{writer}-dev-full", to("/dev/full"), CHECKPOINT, "/dev/full: cannot be written: No space left on device")
    case(f"{writer}-stdout", to("/dev/stdout"), DONE, check=wrote_to_stdout, tells=("/dev/stdout: ",))
    case(f"{writer}-fd", to("/dev/fd/5") + " 5>out/fd", DONE, plant=plant_outputs, check=has_output("fd"), lines=0)
    case(f"{writer}-closed-fd", to("/proc/self/fd/77"), CHECKPOINT, "/proc/self/fd/77: cannot be written")
    case(f"{writer}-pipe", "cat out/pipe > out/piped & " + to("out/pipe") + "; s=$?; wait; exit $s", DONE, plant=plant_outputs, check=has_output("piped"), lines=0)
    case(f"{writer}-pipe-alone", to("out/pipe"), CHECKPOINT, "it is a pipe that nobody reads", plant=plant_outputs, check=stays("pipe", stat.S_ISFIFO))
    case(f"{writer}-substitution", to(">(cat > out/substituted)") + "; s=$?; wait; exit $s", DONE, plant=plant_outputs, lines=0)
    if writer != "predict":
        case(f"{writer}-below-file", to("out/file/x"), CHECKPOINT, "Not a directory", plant=plant_outputs)
case("predict-two-ranks", "{L} -n 2 predict run --input digits.csv --output out/file", DONE, plant=plant_outputs, check=has_output("file"), lines=0)

# ---- Streams that are closed, full, or not read ----------------------------------------------------------------------

STREAMS = {
    "no-stdin": "<&-",
    "no-stdout": ">&-",
    "no-stderr": "2>&-",
    "none": "<&- >&- 2>&-",
    "full-stdout": ">/dev/full",
    "full-stderr": "2>/dev/full",
    "full": ">/dev/full 2>&1",
    "unread": "| true",
    "unread-both": "2>&1 | true",
}


def trained(folder, out):
    assert (folder / "new" / "weights.safetensors").exists()


STREAMED = {
    "train": ("train config.pbtxt --set run_dir=new", trained),
    "train-2": ("-n 2 train config.pbtxt --set run_dir=new", trained),
    "restarts": ("--restarts 2 train config.pbtxt --set run_dir=new", trained),
    "predict": ("predict run --input digits.csv --output new.csv", lambda folder, out: (folder / "new.csv").stat()),
    "export": ("export run --output new.safetensors", lambda folder, out: (folder / "new.safetensors").stat()),
    "evaluate": ("evaluate run", None),
    "checkpoints": ("checkpoints run", None),
    "template": ("config --template", None),
}
for command, (words, check) in STREAMED.items():
    for stream, text in STREAMS.items():
        # Commands without a check print their results, and a result that cannot be written is an error.
        loses = check is None and stream in ("full-stdout", "full")
        case(
            f"{command}-{stream}",
            "{L} " + words + " " + text + ("; exit ${PIPESTATUS[0]}" if "|" in text else ""),
            CHECKPOINT if loses else DONE,
            *(["standard output cannot be written: No space left on device"] if loses and stream != "full" else []),
            check=check,
            lines=1 if loses and stream != "full" else 0,
        )

# ---- Files that are not what they seem -------------------------------------------------------------------------------


def replaced(name, kind):
    def plant(folder):
        path = folder_of(folder, name)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "socket":
            os.mknod(path, stat.S_IFSOCK | 0o600)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        elif kind == "link":
            path.symlink_to(folder / "bystanders" / ("folder" if name in ("checkpoints", "flight") else "file"))
        elif kind == "empty":
            path.touch()
        elif kind == "huge":
            with open(path, "wb") as file:
                file.truncate(1 << 42)
        elif kind == "garbage":
            path.write_bytes(random.Random(name).randbytes(5000))

    return plant


MANIFEST = "checkpoints/step-000000000046/manifest.pb"
MODEL = "checkpoints/step-000000000046/model.safetensors"
STATE = "checkpoints/step-000000000046/state-0.safetensors"
READERS = {
    "train": "{L} train config.pbtxt --set run_dir=run --set epochs=3",
    "train-2": "{L} -n 2 train config.pbtxt --set run_dir=run --set epochs=3",
    "verify": "{L} verify run",
    "evaluate": "{L} evaluate run@46",
    "export": "{L} export run@46 --output weights",
    "checkpoints": "{L} checkpoints run",
}
for kind in ("pipe", "folder", "socket", "device", "link", "empty", "huge", "garbage"):
    for name in (MANIFEST, MODEL, STATE):
        short = pathlib.Path(name).stem
        for reader in ("train", "verify", "evaluate", "export"):
            # `train` has another checkpoint from which it can resume.
            status = DONE if reader == "train" else CHECKPOINT
            case(f"{reader}-{short}-{kind}", READERS[reader], status, plant=replaced(name, kind))
    for name, readers in (("lock", ("train", "train-2")), ("log.jsonl", ("train",)), ("config.pbtxt", ("evaluate",)), ("weights.safetensors", ("verify",)), ("checkpoints", ("train", "verify")), ("flight", ("train",))):
        for reader in readers:
            plain = kind in ("empty", "garbage", "huge")
            if (name in ("lock", "log.jsonl") and plain) or (name in ("checkpoints", "flight") and kind == "folder"):
                continue
            status = {USAGE, CHECKPOINT}
            case(f"{reader}-{name.partition('.')[0]}-{kind}", READERS[reader], status, plant=replaced(name, kind))



def has_weights(folder, out):
    path = folder_of(folder, "weights.safetensors")
    assert path.is_file() and not path.is_symlink()


for kind in ("pipe", "socket", "device", "link", "huge", "garbage"):
    case(f"train-weights-{kind}", READERS["train"], DONE, plant=replaced("weights.safetensors", kind), check=has_weights, lines=0)
case("train-weights-folder", READERS["train"], CHECKPOINT, "weights.safetensors: cannot be written", plant=replaced("weights.safetensors", "folder"))
case("train-piped", "{L} train <(cat config.pbtxt) --set run_dir=new", DONE, check=trained, lines=0)
for more in ("-n 2", "--restarts 1"):
    case(f"train-piped-{more.split()[0].strip('-')}", "{L} " + more + " train <(cat config.pbtxt) --set run_dir=new", USAGE, "starts processes that read the config, too: give a plain file")

# ---- Launchers that fail or lie --------------------------------------------------------------------------------------


def plant_launcher(script):
    def plant(folder):
        (folder / "bin").mkdir()
        (folder / "bin/mpirun").write_text("#!/bin/bash\n" + script)
        (folder / "bin/mpirun").chmod(0o755)

    return plant


LAUNCHED = {
    "train": "train config.pbtxt --set run_dir=new",
    "evaluate": "evaluate run",
    "predict": "predict run --input digits.csv --output new.csv",
}
for command, words in LAUNCHED.items():
    for name, script, says in (
        ("nothing", "exit 0", "mpirun ended with status 0 before the ranks had met"),
        ("fails", "exit 1", "mpirun ended with status 1 before the ranks had met"),
        ("talks", "echo ------; echo no such policy >&2; exit 213", "it says: no such policy"),
        ("dies", "kill -SEGV $$", "mpirun was killed by signal 11"),
        ("lies", "printf '\\x1elockstep:m\\x1e\\n' >&2; exit 0", "mpirun ended with status 0, and the job has not come to its end"),
    ):
        case(f"launcher-{name}-{command}", "PATH=$PWD/bin:$PATH {L} -n 2 " + words, PEER, says, plant=plant_launcher(script))
    case(f"launcher-junk-{command}", "OMPI_MCA_rmaps_base_mapping_policy=junk {L} -n 2 " + words, PEER, "OMPI_MCA_rmaps_base_mapping_policy=junk")
    case(f"launcher-prefix-{command}", "OPAL_PREFIX=/nowhere {L} -n 2 " + words, PEER, "OPAL_PREFIX=/nowhere")
    case(f"launcher-files-{command}", "ulimit -n 40; {L} -n 2 " + words, USAGE, "ulimit -n allows 40 open files")
    case(f"launcher-size-{command}", "ulimit -f 10; {L} -n 2 " + words, USAGE, "ulimit -f allows files of 10 KiB")
    hangs = plant_launcher("trap '' TERM; exec sleep 600")
    stop = " & for i in 1 2 3; do sleep .5; kill -TERM $!; done; wait $!"
    case(f"launcher-hangs-{command}", "PATH=$PWD/bin:$PATH {L} -n 2 " + words + stop, 128 + signal.SIGTERM, plant=hangs, lines=0)
case("launcher-none", "PATH=/nowhere {L} -n 2 evaluate run", USAGE, "mpirun is not installed")


# ---- Mistakes for which the error names the cause --------------------------------------------------------------------


def plant_mistakes(folder):
    odd = folder / "odd"
    (odd / "images/dog").mkdir(parents=True)
    os.mkfifo(odd / "pipe")
    os.mknod(odd / "socket", stat.S_IFSOCK | 0o600)
    (odd / "config.yaml").write_text("epochs: 2\nmodel:\n  name: mlp\n")
    (odd / "config.json").write_text('{"epochs": 2}\n')
    (odd / "config.toml").write_text("epochs = 2\n[model]\n")
    (odd / "config.csv").write_text("a,b,c\n1,2,3\n")
    (odd / "from_one.csv").write_text("x,label\n" + "".join(f"{i * 37 % 90 / 10},{i % 3 + 1}\n" for i in range(90)))
    numbers = np.random.default_rng(1).random((70, 6), dtype="f4")
    np.save(odd / "labels.npy", np.arange(70) % 3)
    np.save(odd / "whole.npy", numbers)
    for name, value in (("nan", np.nan), ("inf", np.inf)):
        numbers[17, 3] = value
        np.save(odd / f"{name}.npy", numbers)
    (odd / "negative.npy").write_bytes((odd / "whole.npy").read_bytes().replace(b"(70, 6)", b"(-70,6)"))
    weights = safetensors.numpy.load_file(folder / RUN / "weights.safetensors")
    weights["0.weight"][0, 0] = np.nan
    safetensors.numpy.save_file(weights, odd / "nan.safetensors")


def mistake(name, words, status, *says, command="train config.pbtxt --set run_dir=new", **more):
    case(f"mistake-{name}", "{L} " + f"{command} {words}", status, *says, plant=plant_mistakes, **more)


def trains(name, text, status, *says, **more):
    text = f'model {{ name: "mlp" }} global_batch: 10 epochs: 1 {text}'
    case(f"mistake-{name}", f"printf '%s' '{text}' > new.pbtxt; {{L}} train new.pbtxt --set run_dir=new", status, *says, plant=plant_mistakes, **more)


mistake("long-name", f"--set run_dir=new/{'x' * 300}", USAGE, "File name too long")
mistake("long-path", f"--set run_dir={'/'.join(['y' * 200] * 25)}", USAGE, "File name too long")
mistake("run-below-a-file", "--set run_dir=digits.csv/new", USAGE, "digits.csv/new: ", "Not a directory")
mistake("no-file", "--set data.train=", USAGE, "--set data.train=: data.train: an empty name where a file's is to be")
mistake("missing", "--set data.train=nowhere.csv", USAGE, "data.train: no such file: ", "nowhere.csv")
mistake("below-a-file", "--set data.train=digits.csv/x", USAGE, "data.train: ", "digits.csv/x: cannot be looked at: Not a directory")
mistake("images", "--set data.train=odd/images", USAGE, "odd/images: it is a folder where a plain file is expected; a folder with a folder of images for each class is data.format: IMAGES")
mistake("weights-folder", "--set init_from=odd/images", USAGE, "init_from: ", "it is a folder where a plain file is expected")
for kind in ("pipe", "socket"):
    mistake(f"data-{kind}", f"--set data.train=odd/{kind}", USAGE, f"odd/{kind}: it is a {kind} where a plain file is expected")
    mistake(f"weights-{kind}", f"--set init_from=odd/{kind}", USAGE, f"odd/{kind}: it is a {kind} where a plain file is expected")
    for command in ("evaluate", "predict"):
        mistake(f"{command}-{kind}", f"--input odd/{kind}", {USAGE, DATA}, f"odd/{kind}: ", f"it is a {kind}", command=f"{command} run")
mistake("data-device", "--set data.train=/dev/zero", USAGE, "/dev/zero: it is a device where a plain file is expected")
mistake("predict-folder", "--input odd/images", {USAGE, DATA}, "odd/images", "it is a folder", command="predict run")
for kind in ("yaml", "json", "toml", "csv"):
    mistake(kind, f"odd/config.{kind}", USAGE, f"odd/config.{kind}:", "a config looks like this: data {", command="train")
mistake("config-folder", "odd", USAGE, "odd: no config can be read from it: it is a folder", command="train")
mistake("config-socket", "odd/socket", USAGE, "odd/socket: ", command="train")
mistake("config-pipe", "odd/pipe", USAGE, "odd/pipe: no config can be read from it", command="train")
mistake("config-endless", "/dev/zero", USAGE, "/dev/zero: no config can be read from it", command="train")
mistake("template-full", "--template > /dev/full", CHECKPOINT, "standard output cannot be written: No space left on device", command="config")
mistake("weights-nan", "--set init_from=odd/nan.safetensors", USAGE, "odd/nan.safetensors: tensor 0.weight holds NaN")
mistake("labels-from-one", '--set data.train=odd/from_one.csv --set data.csv.label=label --set data.csv.header=true', DONE, "odd/from_one.csv: its labels are 1 to 3: classes are counted from 0, so the model learns 4 and has no samples of class 0")
NUMBERS = 'data { format: NPY train: "odd/INPUTS.npy" train: "odd/labels.npy" }'
trains("numbers-whole", NUMBERS.replace("INPUTS", "whole"), DONE, lines=0)
for name in ("nan", "inf"):
    trains(f"numbers-{name}", NUMBERS.replace("INPUTS", name), USAGE, "number 3 of the input of sample 17 in ", f"odd/{name}.npy is {name}: mend or remove it")
trains("numbers-negative", NUMBERS.replace("INPUTS", "negative"), DATA, "odd/negative.npy: the header's shape has a negative size")
for name, width in (("2-62", 2**62), ("2-40", 2**40)):
    mistake(f"width-{name}", f"--set model.mlp.hidden={width}", USAGE, "out of memory: take a smaller model")
for name, shape in (("2-64", "4294967296, 4294967296"), ("2-63", "9223372036854775807"), ("2-40", "1099511627776")):
    trains(f"shape-{name}", f"data {{ format: SYNTHETIC input_shape: [{shape}] classes: 2 synthetic {{ samples: 100 }} }}", USAGE, "input_shape")


# ---- Safetensors files that other programs wrote ---------------------------------------------------------------------


def weights_with(change):
    """Returns a function that rewrites run/weights.safetensors with the header and data that `change` returns."""

    def plant(folder):
        path = folder_of(folder, "weights.safetensors")
        whole = path.read_bytes()
        (length,) = struct.unpack("<Q", whole[:8])
        header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]
        header, data = change(header, data)
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)

    return plant


def overlap(header, data):
    names = [name for name in header if name != "__metadata__"]
    header[names[1]] = dict(header[names[0]])
    return header, data


def flip(header, data):
    return header, data[:-1] + bytes([data[-1] ^ 1])


for name, change in {
    "overlap": overlap,
    "trailing": lambda header, data: (header, data + b"x"),
    "flip": flip,
    "truncated": lambda header, data: (header, data[:-1]),
    "negative": lambda header, data: ({**header, "0.weight": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, data),
    "no-json": lambda header, data: (b"{", data),
}.items():
    for reader in ("{L} verify run", "{L} evaluate run", "{L} export run --output weights", "{L} train second.pbtxt --set run_dir=new --set init_from=run/weights.safetensors"):
        case(f"weights-{name}-{reader.split()[1]}", reader, CHECKPOINT, plant=weights_with(change))


# ---- Running the cases -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    write_config(folder, TEXT)
    shutil.copy(DIGITS, folder / "digits.csv")
    (folder / "second.pbtxt").write_text((folder / CONFIG).read_text())
    run = train(folder / CONFIG, folder / RUN)
    assert run.status == DONE, run
    (folder / "bystanders/folder").mkdir(parents=True)
    (folder / "bystanders/file").write_text("kept")
    (folder / "bystanders/folder/file").write_text("kept")
    return folder


def snapshot(folder):
    """Returns the names, kinds and bytes of the files that must not change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        mode = path.lstat().st_mode
        text = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else ""
        found[name] = stat.S_IFMT(mode), text
    return found


DRAWN = {c.name for c in random.Random(SEED).sample(CASES, len(CASES) // SHARE)}


def test_there_are_enough():
    assert len(CASES) >= 250 and len({c.name for c in CASES}) == len(CASES)


@pytest.mark.parametrize("planted", CASES, ids=[c.name for c in CASES])
@pytest.mark.all_tier("a fifth of the mistakes is drawn for every commit", unless=lambda planted: planted.name in DRAWN)
def test_planted(planted, base, tmp_path):
    folder = tmp_path / "case"
    shutil.copytree(base, folder, symlinks=True)
    for path in (folder / CONFIG, folder / "second.pbtxt"):
        path.write_text(path.read_text().replace(str(base), str(folder)))
    if planted.plant:
        planted.plant(folder)
    before = snapshot(folder / "bystanders")
    process = subprocess.Popen(
        ["bash", "-c", planted.command.replace("{L}", LOCKSTEP)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=dict(os.environ, LC_ALL="C"),
    )
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"it has not ended after {LIMIT_S} s\n{out[-500:]}\n{err[-500:]}")
    err = err.decode(errors="replace")
    what = f"{planted.command}\nstatus {process.returncode}\n{out[-500:]}\n{err}"
    statuses = planted.status if isinstance(planted.status, set) else {planted.status}
    assert process.returncode in statuses, what
    lines = [line for line in err.splitlines() if line.strip() and not line.startswith("env OMPI_MCA")]
    assert len(lines) == planted.lines, what
    for line in lines:
        assert line.startswith(planted.tells or ("lockstep: error: ", "lockstep: warning: ")), what
    for part in planted.says:
        assert any(part in line for line in lines), what
    assert "LibTorch" not in err and "terminate called" not in err, what
    wait_until_gone(folder, LIMIT_S)
    assert snapshot(folder / "bystanders") == before, what
    if planted.check:
        planted.check(folder, out)
