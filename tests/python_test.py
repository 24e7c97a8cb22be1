"""Tests the Python package, and the wheel that `lockstep bundle --wheel` makes of it: pip installs it into an
environment that has torch and nothing else, where the package trains, evaluates and predicts like the program in a
shell."""

import base64
import csv
import doctest
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
import pandas
import pytest

from bare_machine import SITE
from harness import (
    CHECKPOINT,
    DEVICE,
    DIGITS,
    DONE,
    LOCKSTEP,
    USAGE,
    Run,
    checkpoints,
    digits_config,
    digits_data,
    events,
    expect_error,
    log_text,
    path_of,
    rows_of,
    skip_without_gpus,
    train,
    wait_until,
    wait_until_gone,
    write_config,
    write_table,
)
from open_mpi_5 import launchers_of_bundles

PACKAGE = pathlib.Path("python").absolute()
sys.path.insert(0, str(PACKAGE))

import lockstep  # noqa: E402
import lockstep.fields  # noqa: E402
import lockstep.program  # noqa: E402
import lockstep.run  # noqa: E402

OWN_MODEL = path_of("OWN_MODEL")

SMALL = digits_config(data=digits_data("validation_fraction: 0.2"), epochs=3, log_every=10)
PLATFORM = re.compile(r"manylinux_(2)_(\d+)_x86_64")


@pytest.fixture(autouse=True)
def the_program(monkeypatch):
    """Sets the variable LOCKSTEP, through which the package of a source checkout finds its program."""
    monkeypatch.setenv("LOCKSTEP", LOCKSTEP)


@pytest.fixture
def config(tmp_path):
    return write_config(tmp_path, SMALL)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns the folder of a finished run that keeps its best checkpoint."""
    folder = tmp_path_factory.mktemp("trained")
    run = train(write_config(folder, SMALL + ' checkpoint { keep_best: "loss" }'), folder / "run")
    assert run.status == DONE, run
    return folder / "run"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run = Run(["bundle", "--wheel", folder])
    assert run.status == DONE, run
    (path,) = folder.iterdir()
    assert re.fullmatch(rf"{path}: \d+\.\d MB, \d+ files; pip install it beside torch \d+\.\d+\n", run.out), run
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """Makes a new environment in which pip has installed the wheel. Returns the path of its Python. A .pth file
    appends the tests' own site-packages folder, which has torch and pip, to the environment's module search path."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    paths = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = subprocess.run(paths, capture_output=True, text=True, check=True).stdout.strip()
    (pathlib.Path(site) / "torch_beside.pth").write_text(f"{SITE}\n")
    words = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel]
    done = subprocess.run(words, capture_output=True, text=True, env=bare())
    assert done.returncode == 0, done
    return python


def bare(**more):
    """Returns `more` and the few environment variables that the tests need. With an empty PATH pip finds no compiler,
    and the package does not find this source tree."""
    begins = ("OMPI_ALLOW", "OMP_", "XDG_", "HOME")
    kept = {name: value for name, value in os.environ.items() if name.startswith(begins)}
    return {"PATH": "", **kept, **more}


def run_python(python, text, *arguments, cwd=None, env=None):
    words = [python, "-c", textwrap.dedent(text), *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=bare() if env is None else env)


# Tests of the wheel.


def test_the_wheel_is_small_and_whole(wheel):
    """Checks the wheel's size, files, checksums in RECORD, metadata and executable bits."""
    assert wheel.stat().st_size <= 40e6
    name, version, *tags = wheel.stem.split("-")
    assert (name, tags[:2]) == ("lockstep", ["py3", "none"])
    assert Run(["version"]).out.startswith(f"lockstep {version} ")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        content = {entry.filename: archive.read(entry) for entry in archive.infolist()}
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in archive.infolist()}
    info = f"lockstep-{version}.dist-info"
    lines = content[f"{info}/RECORD"].decode().splitlines()
    recorded = {path: (digest, size) for path, digest, size in csv.reader(lines)}
    assert recorded.keys() == content.keys()
    assert recorded.pop(f"{info}/RECORD") == ("", "")
    for path, (digest, size) in recorded.items():
        expected = base64.urlsafe_b64encode(hashlib.sha256(content[path]).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={expected}", str(len(content[path]))), path
    assert f"Tag: py3-none-{tags[2]}\n".encode() in content[f"{info}/WHEEL"]
    metadata = content[f"{info}/METADATA"].decode()
    assert f"Name: lockstep\nVersion: {version}\n" in metadata and "\nRequires-Dist: torch==" in metadata
    kinds = (".py", ".txt", ".typed")
    sources = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*") if path.suffix in kinds}
    assert sources == {path for path in content if not path.startswith(("lockstep/_program/", info))}
    for path in sources:
        assert content[path] == (PACKAGE / path).read_bytes()
    executable = {path for path, mode in modes.items() if mode & 0o111}
    series = re.match(r"\d+\.\d+", importlib.metadata.version("torch"))[0]
    programs = {f"torch-{series}/lockstep", *launchers_of_bundles()}
    assert executable == {"lockstep/_program/lockstep", *(f"lockstep/_program/bin/{name}" for name in programs)}


def test_the_tag_is_that_of_the_newest_glibc(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    binaries = [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    assert len(binaries) > 30
    said = subprocess.run(["objdump", "-p", *binaries], capture_output=True, text=True, check=True).stdout
    newest = max(int(minor) for minor in re.findall(r"\bGLIBC_2\.(\d+)\b", said))
    assert PLATFORM.search(wheel.name).groups() == ("2", str(newest))


@pytest.mark.all_tier("it packs the wheel again")
def test_the_same_program_makes_the_same_wheel(wheel, tmp_path):
    assert Run(["bundle", "--wheel", tmp_path]).status == DONE
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_a_wheel_that_cannot_be_made(wheel, tmp_path):
    before = wheel.read_bytes()
    expect_error(Run(["bundle", "--wheel", wheel.parent]), USAGE, f"{wheel}: is there already")
    assert wheel.read_bytes() == before and len(list(wheel.parent.iterdir())) == 1
    expect_error(Run(["bundle", "--wheel", tmp_path / "none"]), USAGE, f"{tmp_path}/none: is no folder")
    expect_error(Run(["bundle"]), USAGE, "give an ARCHIVE, or --wheel and a folder")
    expect_error(Run(["bundle", tmp_path / "b.tar.gz", "--wheel", tmp_path]), USAGE, "give an ARCHIVE, or --wheel")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("one rank trains from a wheel as two do", unless=lambda ranks: ranks == 2)
def test_an_installed_wheel_trains(environment, tmp_path, ranks):
    """Checks that the results in the environment are those of the program in a shell. pandas cannot be imported there,
    because the script hides it."""
    skip_without_gpus(ranks)
    config = write_config(tmp_path, SMALL)
    shell = train(config, tmp_path / "shell", ranks=ranks)
    assert shell.status == DONE, shell
    script = """
        import json, sys
        sys.modules["pandas"] = None
        import lockstep
        assert "torch" not in sys.modules and "site-packages" in lockstep.__file__, lockstep.__file__
        config, digits, ranks = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
        run = lockstep.train(config, ranks=ranks, run_dir="runs/here", progress=False)
        rows = run.predict(digits, ranks=ranks)
        print(json.dumps([repr(run), run.log, run.evaluate(ranks=ranks), rows]))
    """
    done = run_python(environment, script, config, DIGITS, json.dumps(ranks), cwd=tmp_path)
    assert done.returncode == 0, done
    name, log, metrics, rows = json.loads(done.stdout)
    assert name == "Run('runs/here')"
    losses = [event["loss"] for event in log if event["event"] == "step"]
    assert losses == [event["loss"] for event in events(tmp_path / "shell", "step")]
    evaluated = events(tmp_path / "shell", "eval")[-1]
    assert metrics["samples"] == 360 and metrics["weights"] == ""
    for name in ("loss", "accuracy"):
        np.testing.assert_allclose(metrics[name], evaluated[f"val_{name}"], rtol=1e-5)
    predicted = Run(["predict", tmp_path / "shell", "--input", DIGITS, "--output", tmp_path / "p.csv"])
    assert predicted.status == DONE, predicted
    for row, expected in zip(rows, rows_of(tmp_path / "p.csv"), strict=True):
        assert row["label"] == int(expected["label"])
        np.testing.assert_allclose(row["probability"], float(expected["probability"]), rtol=1e-4)


def test_the_command_of_the_wheel(environment):
    """Checks that the wheel's command is the program, with its exit statuses, and that the start script reports a
    missing torch."""
    command = environment.with_name("lockstep")
    run = Run(["version"], program=command)
    assert run.out == Run(["version"]).out
    expect_error(Run(["train", "nope.pbtxt"], program=command), USAGE, "nope.pbtxt: no config")
    expect_error(Run(["version"], program=command, env={"LOCKSTEP_TORCH": "/nowhere"}), USAGE, "no torch in /nowhere:")


@pytest.mark.all_tier("a program with a model of its own is packed as Lockstep is")
def test_a_program_with_its_own_model_makes_a_wheel(tmp_path):
    """Checks that the wheel's package starts the user's program, and that its command has the program's name."""
    assert Run(["bundle", "--wheel", tmp_path], program=OWN_MODEL).status == DONE
    (wheel,) = tmp_path.glob("*.whl")
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*words, "--target", tmp_path / "site", wheel], check=True)
    assert (tmp_path / "site/bin/tiny_net").exists()
    config = write_config(tmp_path, f'epochs: 1 {digits_data()} model {{ name: "tiny_net" }}')
    script = "import sys, lockstep; print(lockstep.train(sys.argv[1], run_dir='run', progress=False))"
    env = bare(PYTHONPATH=str(tmp_path / "site"))
    done = run_python(sys.executable, script, config, cwd=tmp_path, env=env)
    assert done.returncode == 0 and done.stdout == "Run('run')\n", done


# Tests of the package.


def test_docstrings(tmp_path, monkeypatch):
    """Runs the examples of the docstrings, in a folder with a run."""
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path, SMALL)
    lockstep.train(config, epochs=20, run_dir="runs/train", progress=False)
    write_table("table.csv", [[i % 7, i % 5, i % 2] for i in range(60)], ["a", "b", "y"])
    names = {"DIGITS": config, "DIGITS_CSV": DIGITS, "TABLE": "table.csv", "numpy": np, "pandas": pandas}
    for module in (lockstep.run, lockstep.fields):
        failed, tried = doctest.testmod(module, extraglobs=names, report=True)
        assert tried > 2 and failed == 0


def test_a_dict_trains_as_its_file_does(config, tmp_path, monkeypatch, capfd):
    """Checks that a dict trains as a file with the same config does. Also tests progress lines, overrides of each form,
    and paths relative to the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(DIGITS, "digits.csv")
    fields = {
        "device": DEVICE,
        "deterministic": True,
        "log": {"every_steps": np.int64(10)},
        "global_batch": 64,
        "data": {"train": pathlib.Path("digits.csv"), "csv.scale": 0.0625, "validation_fraction": 0.2},
        "model": {"name": "mlp", "mlp": {"hidden": [24], "dropout": 0.2}},
        "optimizer": {"type": "ADAMW", "lr": 1.0},
    }
    run = lockstep.train(fields, epochs=3, optimizer__lr=0.003)
    assert run.folder == pathlib.Path("runs/train")
    assert re.search(r"^epoch 3/3 .*\n", capfd.readouterr().out, re.MULTILINE)
    expected = lockstep.train(config, run_dir="expected", optimizer={"lr": 0.003}, progress=False)
    assert capfd.readouterr().out == ""
    losses = [event["loss"] for event in events(run.folder, "step")]
    assert losses == [event["loss"] for event in events(expected.folder, "step")]


class Tensor:
    """Stands for a tensor of PyTorch or a series of pandas, which have a method tolist()."""

    def tolist(self):
        return [1.5, 2.0]


@pytest.mark.parametrize(
    "value, text",
    [
        (np.int64(3), "3"),
        (np.float64(0.5), "0.5"),
        (np.bool_(True), "true"),
        (np.str_("a b"), "a b"),
        (np.array(7), "7"),
        (np.array([1, 2]), "[1, 2]"),
        (np.array([0.25, 4], dtype=np.float32), "[0.25, 4.0]"),
        (np.array(["a", "b"]), '["a", "b"]'),
        ([np.int64(8), np.int32(9)], "[8, 9]"),
        ((np.float64(1), True), "[1.0, true]"),
        (range(3), "[0, 1, 2]"),
        (np.arange(3)[::-1], "[2, 1, 0]"),
        (pandas.Series([3, 4]), "[3, 4]"),
        (Tensor(), "[1.5, 2.0]"),
        ([], "[]"),
        (np.array([]), "[]"),
    ],
)
def test_values_of_other_packages(value, text):
    fields = lockstep.fields.Fields()
    fields.add({"loss": {"class_weight": value}})
    fields.add({"loss__class_weight": value})
    assert fields.words == ["--set", f"loss.class_weight={text}"] * 2


@pytest.mark.parametrize("value", [None, object(), np.datetime64("2026-01-01"), {1: 2}.items(), b"bytes"])
def test_values_that_no_field_has(value):
    with pytest.raises(TypeError, match="loss.class_weight: .* is no number"):
        lockstep.fields.Fields().add({"loss": {"class_weight": value}})


def test_blocks_of_arrays():
    fields = lockstep.fields.Fields()
    fields.add({"optimizer": {"rule": [{"lr_factor": np.float64(0.5), "match": np.array(["a", "b"])}]}})
    assert fields.text == 'optimizer { rule { lr_factor: 0.5 match: ["a", "b"] } }'


def test_other_weights(trained, config, tmp_path):
    """Checks that `weights` takes the place of the run's weights: the results are those of the run that trained them."""
    run = lockstep.Run(trained)
    other = lockstep.train(config, epochs=1, optimizer__lr=0.001, run_dir=tmp_path / "other", progress=False)
    weights = other.folder / "weights.safetensors"
    loss = other.evaluate(DIGITS)["loss"]
    assert run.evaluate(DIGITS, weights=weights)["loss"] == loss != run.evaluate(DIGITS)["loss"]
    assert run.predict(DIGITS, weights=weights) == other.predict(DIGITS)
    with pytest.raises(lockstep.LockstepError, match="none.safetensors"):
        run.held_back(weights="none.safetensors")


# Characters at which str.splitlines() ends a line, and JSON and Python's files do not.
LINE_ENDS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"


def test_texts_with_unusual_line_ends(trained, config, tmp_path):
    """Checks the log, the config and the predictions of runs whose texts hold such characters: the run folder's name,
    an event of the log, and the names of classes."""
    run = lockstep.train(config, epochs=1, run_dir=tmp_path / "a\u2028b\x85c", progress=False)
    assert run.folder.name == "a\u2028b\x85c"
    assert run.evaluate()["samples"] == 360
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    with open(copy / "log.jsonl", "a", encoding="utf-8") as file:
        for end in LINE_ENDS:
            file.write(json.dumps({"event": "note", "text": f"a{end}b"}, ensure_ascii=False) + "\n")
    log = lockstep.Run(copy).log
    assert log[log.event == "note"].text.tolist() == [f"a{end}b" for end in LINE_ENDS]
    assert len(log) == len(events(trained)) + len(LINE_ENDS)
    names = [f"x{end}y" for end in LINE_ENDS]
    printed = lockstep.fields.read_printed((run.folder / "config.pbtxt").read_text(encoding="utf-8"))
    assert printed["run_dir"] == str(run.folder)
    write_table(tmp_path / "t.csv", [[i % 8, names[i % 8]] for i in range(80)], ["a", "kind"])
    fields = {"data": {"train": tmp_path / "t.csv", "csv": {"header": True, "label": ["kind"], "label_names": True}}}
    fields |= {"device": DEVICE, "model": {"name": "mlp"}, "epochs": 1}
    named = lockstep.train(fields, run_dir=tmp_path / "named", progress=False)
    rows = named.predict(tmp_path / "t.csv", probabilities=True)
    assert len(rows) == 80 and set(names) < set(rows[0])


def test_options_of_a_model_of_ones_own(tmp_path, monkeypatch):
    """Checks that the options of a user's own model reach the program from a dict, and are refused as overrides,
    because --set cannot change them."""
    config = {"data": {"train": str(DIGITS)}, "model": {"name": "mlp", "option": {"width": 3, 'a "b"': "c\\d"}}}
    with pytest.raises(lockstep.LockstepError, match="option") as caught:
        lockstep.train(config, run_dir=tmp_path / "run")
    assert caught.value.status == USAGE
    with pytest.raises(TypeError, match="in a config alone"):
        lockstep.train("config.pbtxt", model__option={"width": "3"})
    with pytest.raises(TypeError, match="optimizer.lr: None is no number"):
        lockstep.train("config.pbtxt", optimizer__lr=None)


def test_a_frame_an_array_and_a_file_predict_the_same(trained, tmp_path):
    table = np.loadtxt(DIGITS, delimiter=",")[:50, :64]
    np.savetxt(tmp_path / "new.csv", table, delimiter=",", fmt="%g")
    run = lockstep.Run(trained)
    by_file = run.predict(tmp_path / "new.csv")
    assert [row["index"] for row in by_file] == list(range(50))
    assert run.predict([tmp_path / "new.csv", tmp_path / "new.csv"])[50:][0]["label"] == by_file[0]["label"]
    assert run.predict(table) == by_file
    frame = run.predict(pandas.DataFrame(table, index=range(100, 150)))
    assert list(frame.index) == list(range(100, 150))
    assert frame.to_dict("records") == by_file
    best = run.best.evaluate(DIGITS)
    assert best["samples"] == 1797 and "best" in best["weights"]


def test_names_of_columns_and_classes_are_kept(tmp_path):
    """Checks that labels that look like numbers stay strings, and that columns are found by name."""
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"a": rng.uniform(size=200), "town": rng.choice(["x, y", 'z "q"'], size=200)})
    frame["kind"] = np.where(frame.town == "x, y", "007", "8")
    frame["id"] = range(900, 1100)
    frame.to_csv(tmp_path / "train.csv", index=False)
    fields = {
        "device": DEVICE,
        "data": {"train": tmp_path / "train.csv", "csv": {"header": True, "label": ["kind"], "label_names": True}},
        "model": {"name": "mlp", "mlp": {"hidden": [8]}},
        "optimizer": {"type": "ADAMW", "lr": 0.05},
    }
    fields["data"]["csv"] |= {"category": ["town"], "ignore": ["id"]}
    run = lockstep.train(fields, epochs=5, run_dir=tmp_path / "run", progress=False)
    predicted = run.predict(frame[["town", "a"]], probabilities=True)
    assert (predicted.label == frame.kind).all()
    assert (predicted[["007", "8"]].idxmax(axis=1) == frame.kind).all()
    new = frame[["id", "town", "a"]]
    pandas.DataFrame({"id": new.id[::-1], "kind": "8"}).to_csv(tmp_path / "sample.csv", index=False)
    sent = run.predict(new, submission=tmp_path / "sample.csv", output=tmp_path / "sent.csv")
    assert sent.id.tolist() == new.id[::-1].tolist()
    assert pandas.read_csv(tmp_path / "sent.csv", dtype={"kind": str}).kind.tolist() == frame.kind[::-1].tolist()
    (tmp_path / "new.csv").write_text('town,a\n"x, y",0.5\n')
    assert run.predict(str(tmp_path / "new.csv"))[0]["label"] == "007"


@pytest.mark.all_tier("arrays of rows are passed on as these arrays are")
def test_arrays_and_masks(tmp_path):
    """Checks that a run that was trained on NumPy arrays takes arrays, and that predicted classes of pixels are
    returned as an array."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (32, 8, 8, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", rng.integers(0, 2, 32))
    np.save(tmp_path / "masks.npy", (images[..., 0] > 127).astype(np.uint8))
    np.save(tmp_path / "some.npy", images[:5])
    data = {"format": "NPY", "npy": {"kind": "PIXELS"}, "train": [tmp_path / "images.npy", tmp_path / "labels.npy"]}
    fields = {"device": DEVICE, "data": data, "model": {"name": "mlp", "mlp": {"hidden": [8]}}, "epochs": 1}
    run = lockstep.train(fields, run_dir=tmp_path / "run", progress=False)
    rows = run.predict(images[:5])
    assert len(rows) == 5 and rows == run.predict(tmp_path / "some.npy")

    import torch

    lockstep.export(torch.nn.Conv2d(3, 2, 1), torch.zeros(2, 3, 8, 8), tmp_path / "net.lsm")
    data = {**data, "task": "SEGMENTATION", "train": [tmp_path / "images.npy", tmp_path / "masks.npy"]}
    model = {"name": "imported", "imported": {"file": tmp_path / "net.lsm"}}
    masks = lockstep.train({**fields, "data": data, "model": model}, run_dir=tmp_path / "masks", progress=False)
    predicted = masks.predict(images[:5])
    assert predicted.shape == (5, 8, 8) and predicted.dtype == np.uint8
    np.testing.assert_array_equal(predicted, masks.predict(tmp_path / "some.npy"))


def test_inputs_that_do_not_fit(trained, tmp_path):
    run = lockstep.Run(trained)
    for wrong, part in ((np.zeros((2, 3, 4)), "of two dimensions"), (pandas.DataFrame({"a": [1]}), "^the frame:1: ")):
        with pytest.raises(lockstep.LockstepError, match=part):
            run.predict(wrong)


def test_an_error_is_one_line(config, trained, tmp_path):
    (tmp_path / "bad.csv").write_text("1,2\n")
    for call, status, line in (
        (lambda: lockstep.train(config, optimizer__lrr=1), USAGE, 'has no field "lrr"; did you mean "lr"?'),
        (lambda: lockstep.train({"data": {"train": "nope.csv"}}), USAGE, "nope.csv"),
        (lambda: lockstep.train(tmp_path / "none.pbtxt"), USAGE, "none.pbtxt: no config can be read from it"),
        (lambda: lockstep.train(config, ranks=0), USAGE, "Value 0 not in range 1 to 4096"),
        (lambda: lockstep.Run(trained).evaluate(tmp_path / "bad.csv"), 3, "bad.csv:1"),
        (lambda: lockstep.Run(f"{trained}@77777").evaluate(), CHECKPOINT, "77777"),
    ):
        with pytest.raises(lockstep.LockstepError) as caught:
            call()
        assert caught.value.status == status and line in str(caught.value), caught.value
        assert "\n" not in str(caught.value) and "lockstep: error" not in str(caught.value)


def test_what_is_no_run(tmp_path):
    with pytest.raises(lockstep.LockstepError, match="no run's folder: it has no config.pbtxt"):
        lockstep.Run(tmp_path)
    with pytest.raises(lockstep.LockstepError, match="no run's folder"):
        lockstep.Run(f"{tmp_path}@best")


def test_a_program_that_is_not_there(monkeypatch):
    monkeypatch.setenv("LOCKSTEP", "/nowhere/lockstep")
    with pytest.raises(lockstep.LockstepError, match="LOCKSTEP=/nowhere/lockstep: there is no such program"):
        lockstep.train("config.pbtxt")
    monkeypatch.delenv("LOCKSTEP")
    monkeypatch.setattr(lockstep.program, "_PACKAGE", pathlib.Path("/nowhere/site/lockstep"))
    with pytest.raises(lockstep.LockstepError, match="install the wheel that `lockstep bundle --wheel` makes"):
        lockstep.train("config.pbtxt")


TRAIN = """
    import sys, lockstep
    try:
        run = lockstep.train(sys.argv[1], ranks=int(sys.argv[2]) or None, run_dir=sys.argv[3], **eval(sys.argv[4]))
        print("returned", run)
    except KeyboardInterrupt:
        print("interrupted")
"""


def start_training(tmp_path, ranks, **overrides):
    config = write_config(tmp_path, digits_config(log_every=1))
    words = [sys.executable, "-c", textwrap.dedent(TRAIN), config, str(ranks or 0), tmp_path / "run", repr(overrides)]
    env = dict(os.environ, PYTHONPATH=str(PACKAGE))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, env=env, start_new_session=True, **pipes)


def wait_for_steps(process, run_dir, count):
    wait_until(lambda: process.poll() is not None or log_text(run_dir).count('{"event":"step",') >= count)
    assert process.poll() is None, process.communicate()


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.parametrize("whom", ["process", "group"])
@pytest.mark.all_tier(
    "processes, groups and ranks are interrupted in other pairs already",
    unless=lambda ranks, whom: (ranks, whom) in ((None, "group"), (2, "process")),
)
def test_an_interrupt_leaves_a_checkpoint(tmp_path, ranks, whom):
    """Interrupts the Python process or, like a terminal, its whole process group; Jupyter may do either. The same call
    then resumes the run."""
    skip_without_gpus(ranks)
    run_dir = tmp_path / "run"
    process = start_training(tmp_path, ranks)
    wait_for_steps(process, run_dir, 5)
    if whom == "group":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and out.endswith("the same command goes on from there\ninterrupted\n"), (out, err)
    (step,) = checkpoints(run_dir)
    assert step == events(run_dir, "step")[-1]["step"]
    again = start_training(tmp_path, ranks, max_steps=step + 2)
    out, err = again.communicate(timeout=60)
    assert out.endswith(f"returned Run('{run_dir}')\n"), (out, err)
    assert [event["step"] for event in events(run_dir, "step")][-2:] == [step + 1, step + 2]


def test_a_run_does_not_outlive_its_python(tmp_path):
    """Checks that a run ends and leaves a checkpoint if its Python process, such as a Jupyter kernel, is killed."""
    process = start_training(tmp_path, None)
    wait_for_steps(process, tmp_path / "run", 5)
    process.kill()
    process.communicate()
    wait_until_gone(f"run_dir={tmp_path}/run")
    assert len(checkpoints(tmp_path / "run")) == 1


@pytest.mark.all_tier("stop_test asks runs to stop on every commit")
def test_a_run_that_was_asked_to_stop_is_returned(tmp_path):
    process = start_training(tmp_path, None)
    wait_for_steps(process, tmp_path / "run", 5)
    assert Run(["stop", tmp_path / "run"]).status == DONE
    out, err = process.communicate(timeout=60)
    assert out.endswith(f"returned Run('{tmp_path}/run')\n"), (out, err)


def test_importing_other_modules_keeps_the_function(tmp_path):
    """Checks that lockstep.export stays a function, whichever modules of the package lockstep.export are imported."""
    script = """
        import sys, lockstep
        import lockstep.export.errors
        from lockstep.export import sources
        assert callable(lockstep.export) and lockstep.ExportError is sources.ExportError
        import torch
        lockstep.export(torch.nn.Linear(2, 2), torch.zeros(3, 2), "net.lsm")
    """
    done = run_python(sys.executable, script, cwd=tmp_path, env=bare(PYTHONPATH=str(PACKAGE)))
    assert done.returncode == 0 and (tmp_path / "net.lsm").exists(), done
