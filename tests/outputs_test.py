"""Tests that no output of a command replaces an input of the command or the state of a run, by whatever name the output
is called, and that outputs which replace neither are written."""

import hashlib
import os
import pathlib
import shutil
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from harness import DIGITS, DONE, LOCKSTEP, USAGE, Run, digits_data, expect_error, sets, train, write_config

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
import lockstep  # noqa: E402
from lockstep.export import tensor_file  # noqa: E402

CONFIG = f"""{digits_data("validation_fraction: 0.2", train="train.csv")} model {{ name: "mlp" mlp {{ hidden: [8] }} }}
epochs: 1 global_batch: 64 checkpoint {{ every_steps: 10 keep: 5 }} observe {{ tensorboard: true }}"""
KEPT = "which an output does not replace: name another file"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns a folder with a trained run, its data and config, another run, and further names of their files."""
    folder = tmp_path_factory.mktemp("trained")
    for name in ("train.csv", "t.csv"):
        shutil.copy(DIGITS, folder / name)
    run = train(write_config(folder, CONFIG), folder / "run")
    assert run.status == DONE, run
    shutil.copytree(folder / "run", folder / "other")
    shutil.copy(folder / "run/weights.safetensors", folder / "w.safetensors")
    samples = len((folder / "t.csv").read_text().splitlines())
    (folder / "sample.csv").write_text("id,label\n" + "".join(f"{i},0\n" for i in range(samples)))
    (folder / "new").mkdir()
    (folder / "link.csv").symlink_to("t.csv")
    (folder / "second.csv").symlink_to("link.csv")
    os.link(folder / "t.csv", folder / "hard.csv")
    os.link(folder / "run/log.jsonl", folder / "hard.html")
    os.link(folder / "w.safetensors", folder / "hard.safetensors")
    (folder / "linked").symlink_to("run")
    (folder / "config.tuned.pbtxt").symlink_to("train.csv")
    return folder


def tree_of(folder):
    """Returns {path: link target or hash of the content} of all files below a folder."""
    tree = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            tree[path] = os.readlink(path)
        elif path.is_file():
            tree[path] = hashlib.sha256(path.read_bytes()).hexdigest()
    return tree


def checkpoint_of(folder, run):
    return max((folder / run / "checkpoints").iterdir()).relative_to(folder) / "model.safetensors"


PREDICT = "predict run --input t.csv --output"
OF_RUN = "is a file that the run "
# {case: (an output of PREDICT with further words, what the command says of the output)}
PREDICTED = {
    "itself": ("t.csv", "is the input, "),
    "link": ("link.csv", "is the input, "),
    "links": ("second.csv", "is the input, "),
    "hard-link": ("hard.csv", "is the input, "),
    "dots": ("new/../t.csv", "is the input, "),
    "training-data": ("train.csv", "is data.train of the run run, "),
    "log": ("run/log.jsonl", OF_RUN),
    "config": ("run/config.pbtxt", OF_RUN),
    "checkpoint": ("{checkpoint} --format csv", OF_RUN),
    "other-run": ("other/log.jsonl", OF_RUN),
    "linked-run": ("linked/log.jsonl", OF_RUN),
    "stop": ("run/STOP", OF_RUN),
    "tensorboard": ("run/tensorboard/new.csv", OF_RUN),
}
REFUSED = {name: (f"{PREDICT} {output}", f"{output.split()[0]}: {said}") for name, (output, said) in PREDICTED.items()} | {
    "linked-input": ("predict run --input second.csv --output t.csv", "t.csv: is the input, "),
    "second-input": ("predict run --input train.csv t.csv --output t.csv --format jsonl", "t.csv: is the input, "),
    "standard-input": ("predict run --input - --output t.csv < t.csv", "t.csv: is standard input, "),
    "held-back": ("predict run --held-back --output train.csv", "train.csv: is "),
    "submission": (
        "predict run --input t.csv --submission sample.csv --output sample.csv",
        "sample.csv: is the sample submission, ",
    ),
    "other-weights": ("predict run --weights w.safetensors --input t.csv --format csv --output w.safetensors", "is the weights, "),
    "append": ("predict run --input t.csv --output - >> t.csv", "is the input, "),
    "append-to-log": (f"{PREDICT} - >> run/log.jsonl", OF_RUN),
    "append-to-checkpoint": (f"{PREDICT} /dev/fd/7 --format csv 7>> {{checkpoint}}", OF_RUN),
    "report-log": ("report run --output run/log.jsonl", f"run/log.jsonl: {OF_RUN}"),
    "report-config": ("report run other --output other/config.pbtxt", OF_RUN),
    "report-other": ("report run --output other/lock", f"other/lock: {OF_RUN}"),
    "report-hard-link": ("report run --output hard.html", "hard.html: is a file that the run run keeps"),
    "export-checkpoint": ("export run --output {checkpoint}", OF_RUN),
    "export-weights": ("export run --output run/weights.safetensors", OF_RUN),
    "export-itself": ("export w.safetensors --output w.safetensors", "is the weights w.safetensors, "),
    "export-hard-link": ("export w.safetensors --output hard.safetensors", "is the weights w.safetensors, "),
    "export-new": ("export run --output other/checkpoints/new.safetensors", OF_RUN),
    "average": ("average run w.safetensors --output w.safetensors", "is the weights w.safetensors, "),
    "average-checkpoint": ("average run run@10 --output {checkpoint}", OF_RUN),
    "trace": ("bench step config.pbtxt --steps 1 --warmup 1 --trace train.csv", "train.csv: is data.train of the config, "),
    "trace-config": ("bench step config.pbtxt --steps 1 --warmup 1 --trace config.pbtxt", "is the config, "),
    "trace-log": ("bench step config.pbtxt --steps 1 --warmup 1 --trace run/log.jsonl", OF_RUN),
    "tuned": ("tune config.pbtxt --only loader --time 1", "config.tuned.pbtxt: is data.train of the config, "),
    "new": ("new t.csv --output run/STOP", f"run/STOP: {OF_RUN}"),
    "new-append": ("new t.csv --output - >> t.csv", "is the data, "),
    "tokens": ("prepare tokens t.csv --output run/checkpoints/t.bin", OF_RUN),
    "bundle": ("bundle run/checkpoints/lockstep.tar.gz", OF_RUN),
}
# One case of each command (`average` writes as `export` does) and of each kind of input. kept_files_test.cc has the
# names that lead to a file.
IN_COMMITS = {
    "hard-link",
    "training-data",
    "standard-input",
    "submission",
    "append-to-log",
    "report-hard-link",
    "export-itself",
    "trace",
    "tuned",
    "new",
    "tokens",
    "bundle",
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.all_tier("other names and inputs go through the same check", unless=lambda name: name in IN_COMMITS)
def test_what_is_kept(name, trained):
    """Gives a command an output that is one of its inputs or a file of a run. The command says so in one line, and
    changes nothing."""
    before = tree_of(trained)
    command, said = (words.format(checkpoint=checkpoint_of(trained, "run")) for words in REFUSED[name])
    run = Run(["-c", f'"$0" {command}', LOCKSTEP], program="bash", cwd=trained)
    expect_error(run, USAGE, said, KEPT)
    assert tree_of(trained) == before


WRITTEN = {
    "new-file": (f"{PREDICT} new/predictions.csv", "new/predictions.csv"),
    "beside-a-run": (f"{PREDICT} run.csv", "run.csv"),
    "in-a-run": (f"{PREDICT} run/predictions.csv", "run/predictions.csv"),
    "report-in-a-run": ("report run --output run/page.html", "run/page.html"),
    "export-in-a-run": ("export run@10 --output run/step10.safetensors", "run/step10.safetensors"),
    "average-again": ("average run run@10 --output new/mean.safetensors", "new/mean.safetensors"),
}


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.all_tier("other tests write such files, too", unless=lambda name: name == "in-a-run")
def test_what_is_written(name, trained):
    """Gives a command an output that replaces nothing that is kept, twice."""
    words, path = WRITTEN[name]
    before = tree_of(trained)
    for _ in range(2):
        run = Run(words.split(), cwd=trained)
        assert run.status == DONE, run
    after = tree_of(trained)
    assert {changed for changed in after if before.get(changed) != after[changed]} <= {trained / path}
    assert (trained / path).stat().st_size > 100


@pytest.mark.parametrize(
    "fresh", [["--fresh"], pytest.param([], marks=pytest.mark.all_tier("--fresh goes through the same check and moves more"))]
)
def test_a_users_config_is_not_replaced(fresh, tmp_path):
    """Trains in the folder of the user's own config, whose name is that of a run's config."""
    shutil.copy(DIGITS, tmp_path / "train.csv")
    folder = tmp_path / "mine"
    folder.mkdir()
    config = write_config(folder, "# mine\n" + CONFIG.replace("train.csv", "../train.csv"))
    before = tree_of(tmp_path)
    expect_error(train(config, folder, *fresh), USAGE, f"{folder}: exists already and is no run's")
    assert tree_of(tmp_path) == before


@pytest.mark.parametrize(
    "name,said",
    [
        ("data.prom", "is data.train of the config"),
        ("link.prom", "is data.train of the config"),
        ("config.prom", "is the config"),
        ("other/checkpoints/x.prom", OF_RUN),
    ],
)
@pytest.mark.all_tier("other names and inputs go through the same check", unless=lambda name: name == "link.prom")
def test_metrics_do_not_replace_what_is_kept(name, said, trained):
    """Names an input, or a file in a run, as the file of the metrics, which a run replaces each second and removes."""
    if not (trained / "data.prom").exists():
        shutil.copy(DIGITS, trained / "data.prom")
        os.link(trained / "data.prom", trained / "link.prom")
        text = CONFIG.replace("train.csv", "data.prom")
        write_config(trained, text, name="config.prom")
    before = tree_of(trained)
    run = train(trained / "config.prom", trained / "made", *sets(f"observe.prometheus_file={trained / name}"))
    expect_error(run, USAGE, "observe.prometheus_file: ", said)
    assert tree_of(trained) == before


@pytest.mark.parametrize(
    "words,said",
    [
        ("--folds 2 --set run_dir=new", "new: exists already and holds no folds"),
        ("--set run_dir=other/checkpoints/inner", "other/checkpoints/inner: is a file that the run "),
        ("--set run_dir=other/STOP", "other/STOP: is a file that the run "),
    ],
)
@pytest.mark.all_tier("kept_files_test.cc has the names of other runs")
def test_a_run_needs_a_folder_of_its_own(words, said, trained):
    """Trains in a folder that holds something else, and in the folder of another run's state."""
    (trained / "new/notes.txt").write_text("mine")
    before = tree_of(trained)
    expect_error(Run(["train", "config.pbtxt", *words.split()], cwd=trained), USAGE, said, "choose another folder")
    assert tree_of(trained) == before


class Segments(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 2, 1)

    def forward(self, x):
        return self.layer(x)


@pytest.fixture(scope="module")
def masks(tmp_path_factory):
    """Returns a folder with a run that has learnt masks, its images and masks, and links to them."""
    folder = tmp_path_factory.mktemp("masks")
    random = np.random.default_rng(1)
    for kind in ("images", "masks", "photos"):
        (folder / kind).mkdir()
        for i in range(6):
            pixels = random.integers(0, 2, (8, 8)) if kind == "masks" else random.integers(0, 256, (8, 8, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / kind / f"{i}.png")
    torch.manual_seed(1)
    lockstep.export(Segments(), torch.zeros(3, 3, 8, 8), folder / "net.lsm")
    config = write_config(
        folder,
        """global_batch: 6 epochs: 1 data { format: IMAGES task: SEGMENTATION train: ["images", "masks"] images { size: 8 } }
        model { name: "imported" imported { file: "net.lsm" } }""",
    )
    run = train(config, folder / "run")
    assert run.status == DONE, run
    (folder / "linked").symlink_to("photos")
    (folder / "out/below").mkdir(parents=True)
    (folder / "out/3.png").symlink_to("../photos/3.png")
    (folder / "hard").mkdir()
    os.link(folder / "photos/5.png", folder / "hard/5.png")
    return folder


@pytest.mark.parametrize(
    "output",
    ["photos/", "photos/below/", "linked/", "out/", "hard/", "masks/", "images/new/", "out/../photos/", "run/checkpoints/"],
)
@pytest.mark.all_tier(
    "kept_files_test.cc has the names that lead to a file", unless=lambda output: output in ("photos/", "out/")
)
def test_masks_replace_no_images(output, masks):
    """Writes masks into the folder of the images or of the training data, or through links to images."""
    before = tree_of(masks)
    run = Run(["predict", "run", "--input", "photos", "--output", output], cwd=masks)
    expect_error(run, USAGE, KEPT)
    assert tree_of(masks) == before


@pytest.mark.parametrize(
    "output", ["predicted/", pytest.param("photos/masks.npy", marks=pytest.mark.all_tier("an array is one plain file"))]
)
def test_masks_beside_images(output, masks):
    for _ in range(2):
        run = Run(["predict", "run", "--input", "photos", "--output", output], cwd=masks)
        assert run.status == DONE, run
    assert len(list((masks / output).iterdir())) == 6 if output.endswith("/") else (masks / output).exists()


def test_the_names_of_a_run_are_known(trained):
    """Checks that the list of names that no output replaces has all that a run makes."""
    made = {path.name for path in (trained / "run").iterdir() if not path.suffix == ".html"}
    assert {"log.jsonl", "config.pbtxt", "checkpoints", "tensorboard", "weights.safetensors"} <= made
    assert made - {"predictions.csv", "step10.safetensors"} <= set(tensor_file.NAMES_OF_RUNS)


@pytest.mark.parametrize("name", tensor_file.NAMES_OF_RUNS)
@pytest.mark.all_tier("each name of the list is looked up alike", unless=lambda name: name == "STOP")
def test_the_program_and_the_exporter_keep_the_same_names(name, trained):
    output = f"other/{name}/new" if (trained / "other" / name).is_dir() else f"other/{name}"
    expect_error(Run(["export", "w.safetensors", "--output", output], cwd=trained), USAGE, KEPT)


def test_python_keeps_inputs(trained, monkeypatch):
    """Gives functions of the Python package outputs that are inputs or files of a run."""
    monkeypatch.chdir(trained)
    monkeypatch.setenv("LOCKSTEP", LOCKSTEP)
    run = lockstep.Run("run")
    before = tree_of(trained)
    for output in ("t.csv", "run/log.jsonl"):
        with pytest.raises(lockstep.LockstepError, match="does not replace"):
            run.predict("t.csv", output=output)
    for path in ("run/log.jsonl", "other/weights.safetensors", "run/checkpoints/new.lsm"):
        with pytest.raises(lockstep.ExportError, match="the run"):
            lockstep.export(torch.nn.Linear(2, 2), torch.zeros(3, 2), path)
    assert tree_of(trained) == before


@pytest.mark.parametrize(
    "words,said",
    [
        ("--to-torch run --output run/log.jsonl", "the run"),
        ("--to-torch w.safetensors --output hard.w", "is what is exported"),
        ("--to-torch run --output linked/config.pbtxt", "the run"),
    ],
)
@pytest.mark.all_tier("importing torch takes seconds, and test_python_keeps_inputs calls the same function")
def test_the_exporter_keeps_inputs(words, said, trained):
    if not (trained / "hard.w").exists():
        os.link(trained / "w.safetensors", trained / "hard.w")
    before = tree_of(trained)
    python = pathlib.Path(__file__).parents[1] / "python"
    run = Run(["-m", "lockstep.export", *words.split()], program=sys.executable, cwd=trained, env={"PYTHONPATH": str(python)})
    assert run.status == USAGE and said in run.err and len(run.error_lines) == 1, run
    assert tree_of(trained) == before
