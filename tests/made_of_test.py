"""Tests that a run knows what it was made of: content that has changed is named when the run goes on or is used, and
copies of the same content are the same data."""

import os
import pathlib
import re
import shutil
import sys
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from harness import DATA, DONE, USAGE, Run, Started, events, expect_error, sets, skip_without_gpus, write_config

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
import lockstep  # noqa: E402

RUN = 'global_batch: 8 max_steps: 6 log { every_steps: 1 } model { name: "mlp" mlp { hidden: 8 } }'
GO_ON = sets("max_steps=12")


# ---- Data: each function writes files and returns the config's `data` ------------------------------------------------


def table_rows(seed, label):
    random = np.random.default_rng(seed)
    return [[f"{x:.6f}" for x in random.normal(size=3)] + [f"note{i}", label(i)] for i in range(24)]


def write_rows(path, rows):
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in [["a", "b", "c", "note", "y"], *rows]))


def table(folder, more='label: "y"', task="", label=lambda i: i % 3):
    for seed, name in enumerate(("train.csv", "valid.csv")):
        write_rows(folder / name, table_rows(seed, label))
    return (
        f'data {{ train: "train.csv" validation: "valid.csv" {task} '
        f'csv {{ header: true {more} ignore: "note" scaling: STANDARD }} }}'
    )


def numbers(folder):
    return table(folder, task="task: REGRESSION", label=lambda i: i / 8)


def arrays(folder, order="C"):
    random = np.random.default_rng(0)
    np.save(folder / "x.npy", np.asarray(random.normal(size=(24, 5)), order=order))
    np.save(folder / "y.npy", np.arange(24) % 3)
    return 'data { format: NPY train: ["x.npy", "y.npy"] }'


def columns(folder):
    return arrays(folder, order="F")


def tokens(folder):
    for name in ("a.bin", "b.bin"):
        np.random.default_rng(len(name)).integers(0, 50, 12 * 16 + 1).astype("<u2").tofile(folder / name)
    return 'data { format: TOKENS train: ["a.bin", "b.bin"] tokens { length: 16 } classes: 50 }'


def digits(folder):
    random = np.random.default_rng(0)
    images = random.integers(0, 255, (24, 4, 4)).astype(np.uint8)
    (folder / "images").write_bytes(bytes([0, 0, 8, 3, 0, 0, 0, 24, 0, 0, 0, 4, 0, 0, 0, 4]) + images.tobytes())
    (folder / "labels").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 24]) + bytes(i % 3 for i in range(24)))
    return 'data { format: MNIST train: ["images", "labels"] }'


def pixels(seed):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (8, 8, 3)).astype(np.uint8))


def photos(folder):
    for part in ("photos", "held"):
        for i in range(24):
            path = folder / part / "ab"[i % 2] / f"{i:02}.bmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels(i).save(path)
    return 'data { format: IMAGES train: "photos" validation: "held" images { size: 8 } }'


def pack(folder):
    for part, numbers_of in (("0.tar", range(12)), ("1.tar", range(12, 24))):
        with tarfile.open(folder / "shards" / part, "w") as tar:
            for i in numbers_of:
                name = f"{'ab'[i % 2]}/{i:02}.bmp"
                tar.add(folder / "photos" / name, name)


def shards(folder):
    photos(folder)
    (folder / "shards").mkdir()
    pack(folder)
    return 'data { format: IMAGES train: "shards" images { size: 8 } }'


def masks(folder):
    for part in ("images", "masks"):
        (folder / part).mkdir()
    for i in range(24):
        pixels(i).save(folder / f"images/{i:02}.png")
        mask = np.random.default_rng(i).integers(0, 2, (8, 8)).astype(np.uint8)
        Image.fromarray(mask).save(folder / f"masks/{i:02}.png")
    return 'data { format: IMAGES task: SEGMENTATION train: ["images", "masks"] images { size: 8 } }'


class Pixelwise(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 2, 1)

    def forward(self, x):
        return self.layer(x)


MODELS = {
    masks: 'model { name: "imported" imported { file: "net.lsm" } }',
    tokens: 'model { name: "gpt2" gpt2 { layers: 1 heads: 1 width: 8 } }',
}


def copy_run(folder, target):
    """Copies a folder with a run and its files, which the copy of the run is then of."""
    shutil.copytree(folder, target, dirs_exist_ok=True)
    config = target / "run/config.pbtxt"
    config.write_text(config.read_text().replace(f"{folder}/", f"{target}/"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns a function that copies the folder of a run of six steps on data that `make` has written."""
    folders = {}

    def copy(make, target):
        if make not in folders:
            folder = folders[make] = tmp_path_factory.mktemp(make.__name__)
            data = make(folder)
            if make is masks:
                lockstep.export(Pixelwise(), torch.zeros(2, 3, 8, 8), folder / "net.lsm")
            text = RUN if make not in MODELS else RUN[: RUN.index("model")] + MODELS[make]
            write_config(folder, f'{text} {data} run_dir: "run" checkpoint {{ every_steps: 3 keep: 3 }}')
            run = Run(["train", "config.pbtxt"], cwd=folder)
            assert run.status == DONE, run
        copy_run(folders[make], target)

    return copy


# ---- Changes: each function changes the content of a file ------------------------------------------------------------


def rows_of(path):
    return [line.split(",") for line in path.read_text().split("\n")[1:-1]]


def change_cell(name, row, column, value):
    def change(folder):
        rows = rows_of(folder / name)
        rows[row][column] = value if isinstance(value, str) else str(value(float(rows[row][column])))
        write_rows(folder / name, rows)

    return change


def swap_rows(name):
    def change(folder):
        rows = rows_of(folder / name)
        write_rows(folder / name, [rows[1], rows[0], *rows[2:]])

    return change


def more_rows(folder):
    rows = rows_of(folder / "train.csv")
    write_rows(folder / "train.csv", [*rows, rows[0]])


def change_byte(name, place):
    """Changes the lowest bit of a byte, and keeps the file's time."""

    def change(folder):
        path = folder / name
        before = path.stat()
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(bytes(content))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    return change


def replace_photo(folder):
    pixels(99).save(folder / "photos/b/07.bmp")


def larger_photo(folder):
    pixels(99).resize((9, 8)).save(folder / "photos/b/07.bmp")


def replace_in_shard(folder):
    replace_photo(folder)
    pack(folder)


def relabel_photo(folder):
    (folder / "photos/b/07.bmp").rename(folder / "photos/a/07.bmp")


def replace_mask(folder):
    Image.fromarray(np.ones((8, 8), np.uint8)).save(folder / "masks/05.png")


CHANGES = {
    "a label": (table, change_cell("train.csv", 5, 4, "1"), "train.csv: the labels of the training samples have"),
    "a validation label": (
        table,
        change_cell("valid.csv", 5, 4, "1"),
        "valid.csv: the labels of the validation samples have changed",
    ),
    "a feature": (table, change_cell("train.csv", 5, 1, "9"), "train.csv: the features of the training samples have"),
    "a digit": (table, change_cell("train.csv", 5, 1, lambda x: x + 1e-9), "train.csv: the features"),
    "a validation feature": (table, change_cell("valid.csv", 0, 0, "9"), "valid.csv: the features of the validation"),
    "both": (
        table,
        lambda f: (change_cell("train.csv", 5, 1, "9")(f), change_cell("train.csv", 5, 4, "1")(f)),
        "train.csv: the features and labels of the training samples have changed",
    ),
    "the order": (table, swap_rows("train.csv"), "train.csv: the order of the training samples has"),
    "the validation's order": (table, swap_rows("valid.csv"), "valid.csv: the order of the validation samples has"),
    "a row": (table, more_rows, "train.csv: the 24 training samples have become 25 training samples"),
    "a target": (numbers, change_cell("train.csv", 5, 4, "0.75"), "train.csv: the labels of the training samples"),
    "an array's byte": (arrays, change_byte("x.npy", -8 * 5 * 3), "x.npy: sample 21: its content is not what"),
    "a column's byte": (columns, change_byte("x.npy", -8), "x.npy: sample 23: its content is not what"),
    "an array's label": (arrays, change_byte("y.npy", -8 * 3), "y.npy: the labels of the training samples have"),
    "a token": (tokens, change_byte("b.bin", 2 * 17), "b.bin: tokens 16 to 32: its content is not what"),
    "a pixel": (digits, change_byte("images", -1), "images: the pixels of the training samples have changed"),
    "a digit's label": (digits, change_byte("labels", -2), "labels: the labels of the training samples have changed"),
    "an image": (photos, replace_photo, "photos/b/07.bmp: its content is not what the run has read there before"),
    "a larger image": (photos, larger_photo, "photos/b/07.bmp: its content is not what"),
    "an image's byte": (photos, change_byte("photos/a/00.bmp", -1), "photos/a/00.bmp: its content is not what"),
    "an image's label": (photos, relabel_photo, "photos: the names, sizes or labels of the training samples"),
    "a member": (shards, replace_in_shard, "shards/0.tar: b/07.bmp: its content is not what"),
    "a mask": (masks, replace_mask, "masks/05.png: its content is not what"),
}


# test_the_way_out changes a label on every commit, and test_ranks_share_what_they_have_read an image. A unit test
# compares all parts of samples (trainer/run/made_of_test.cc).
IN_COMMITS = ["the order", "an array's byte"]


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.all_tier("a unit test compares the parts of samples", unless=lambda name: name in IN_COMMITS)
def test_a_change_is_named_before_the_first_step(trained, tmp_path, name):
    make, change, says = CHANGES[name]
    trained(make, tmp_path)
    change(tmp_path)
    run = Run(["train", "config.pbtxt", *GO_ON], cwd=tmp_path)
    assert run.status in (DATA, USAGE), run
    expect_error(run, run.status, says, "--fresh")
    assert len(events(tmp_path / "run", "step")) == 6


def test_the_way_out(trained, tmp_path):
    """Tests that a run begins anew with the weights of the run whose data have changed, as the error says."""
    trained(table, tmp_path)
    change_cell("train.csv", 5, 4, "1")(tmp_path)
    refused = Run(["train", "config.pbtxt", *GO_ON], cwd=tmp_path)
    expect_error(refused, USAGE, "train.csv: the labels of the training samples have changed since the checkpoint ")
    weights = re.search(r"--set (init_from=\S+) ", refused.err)[1]
    shutil.copytree(tmp_path / "run", tmp_path / "kept")
    run = Run(["train", "config.pbtxt", "--fresh", "--set", weights.replace("=run/", "=kept/")], cwd=tmp_path)
    assert run.status == DONE, run


def test_ranks_share_what_they_have_read(trained, tmp_path):
    """Tests that one rank notices a change of an image that another rank has read before."""
    skip_without_gpus(2)
    trained(photos, tmp_path)
    run = Run(["train", "config.pbtxt", "--fresh"], ranks=2, cwd=tmp_path)
    assert run.status == DONE, run
    larger_photo(tmp_path)
    run = Run(["train", "config.pbtxt", *GO_ON], cwd=tmp_path)
    expect_error(run, DATA, "photos/b/07.bmp: its content is not what")


def touch(folder):
    for path in folder.rglob("*"):
        if "run" not in path.parts:
            os.utime(path)


def copy_data(folder):
    for path in [path for path in folder.iterdir() if path.name not in ("run", "config.pbtxt")]:
        copy = path.with_name("copy")
        (shutil.copytree if path.is_dir() else shutil.copy)(path, copy)
        (shutil.rmtree if path.is_dir() else os.remove)(path)
        copy.rename(path)


def note(folder):
    change_cell("train.csv", 3, 3, "another")(folder)


def trailing_line(folder):
    with open(folder / "train.csv", "a") as file:
        file.write("\n")


@pytest.mark.parametrize(
    "make, change",
    [
        (table, touch),
        (table, note),
        (table, trailing_line),
        (photos, touch),
        *((make, copy_data) for make in (table, arrays, tokens, digits, photos, shards, masks)),
    ],
)
@pytest.mark.all_tier(
    "the same code compares other formats",
    unless=lambda make, change: (make, change) in ((table, note), (photos, copy_data)),
)
def test_the_same_content_is_the_same_data(trained, tmp_path, make, change):
    trained(make, tmp_path)
    change(tmp_path)
    run = Run(["train", "config.pbtxt", *GO_ON], cwd=tmp_path)
    assert run.status == DONE, run
    assert len(events(tmp_path / "run", "step")) == 12


def test_an_image_that_changes_while_a_run_trains(trained, tmp_path):
    """Tests that a changed image is noticed when it is read, also if unreadable images are passed over."""
    trained(photos, tmp_path)
    skipping = sets("max_steps=1000000000", "epochs=1000000", "data.bad_samples.policy=SKIP")
    pixels(99).save(tmp_path / "new.bmp")
    with Started(tmp_path / "config.pbtxt", tmp_path / "endless", words=skipping, cwd=tmp_path) as run:
        run.wait_for("epoch", 2)
        os.replace(tmp_path / "new.bmp", tmp_path / "photos/b/07.bmp")
        status, _, error = run.end()
    assert status == DATA, error
    assert "photos/b/07.bmp: its content is not what the run has read there before" in error


def test_other_validation_samples_are_for_another_folder(trained, tmp_path):
    trained(table, tmp_path)
    change_cell("valid.csv", 5, 4, "1")(tmp_path)
    refused = Run(["train", "config.pbtxt", *GO_ON], cwd=tmp_path)
    expect_error(refused, USAGE, "go on from it in another folder with --from run@6 --set run_dir=...")
    run = Run(["train", "config.pbtxt", *GO_ON, "--from", "run@6", *sets("run_dir=other")], cwd=tmp_path)
    assert run.status == DONE, run
    (resume,) = events(tmp_path / "other", "resume")
    assert [line.split("/")[-1] for line in resume["differences"]] == [
        "valid.csv: the labels of the validation samples have changed"
    ]


USED = {
    "evaluate": ["evaluate", "run"],
    "predict": ["predict", "run", "--held-back", "--output", "-"],
}
OF_HELD_BACK = {
    "label": (table, change_cell("valid.csv", 5, 4, "1"), "valid.csv: the labels of the validation samples have changed"),
    "order": (table, swap_rows("valid.csv"), "valid.csv: the order of the validation samples has changed"),
    "image": (photos, lambda folder: pixels(99).save(folder / "held/b/07.bmp"), "held/b/07.bmp: its content has changed"),
    "images": (
        photos,
        lambda folder: [pixels(99).save(folder / f"held/a/{i:02}.bmp") for i in (0, 4, 8)],
        "held/a/00.bmp: its content, and that of 2 others, has changed",
    ),
    "nothing": (photos, copy_data, ""),
    "training": (photos, replace_photo, ""),
}


@pytest.mark.parametrize("name", OF_HELD_BACK)
@pytest.mark.parametrize("use", USED)
@pytest.mark.all_tier(
    "both commands compare alike",
    unless=lambda use, name: (use, name) in (("predict", "order"), ("evaluate", "images")),
)
def test_changes_of_what_was_held_back_are_told_when_it_is_used(trained, tmp_path, use, name):
    make, change, says = OF_HELD_BACK[name]
    trained(make, tmp_path)
    change(tmp_path)
    run = Run(USED[use], cwd=tmp_path)
    assert run.status == DONE, run
    warnings = [line for line in run.error_lines if "since the run was trained" in line]
    assert len(warnings) == (says != ""), run
    assert all(says in line for line in warnings), run


# ---- Graphs ----------------------------------------------------------------------------------------------------------


class Net(nn.Module):
    """A module whose variants have the same parameters."""

    def __init__(self, variant="as it was"):
        super().__init__()
        self.variant = variant
        self.first = nn.Linear(3, 8)
        self.last = nn.Linear(8, 3)
        self.register_buffer("shift", torch.full((8,), 2.0 if variant == "a buffer" else 1.0), persistent=False)

    def forward(self, x):
        x = self.first(x)
        x = torch.tanh(x) if self.variant == "an activation" else torch.relu(x)
        if self.variant == "evaluation" and not self.training:
            x = -x
        return self.last((3.0 if self.variant == "a number" else 2.0) * x + self.shift)


def save(folder, kind, net):
    if kind == "imported":
        lockstep.export(net, torch.zeros(2, 3), folder / "net.lsm")
    else:
        torch.jit.script(net).save(folder / "net.lsm")


@pytest.fixture(scope="module", params=["imported", "torchscript"])
def of_graph(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    data = table(folder)
    save(folder, request.param, Net())
    text = RUN[: RUN.index("model")] + f'model {{ name: "{request.param}" {request.param} {{ file: "net.lsm" }} }}'
    write_config(folder, f'{text} {data} run_dir: "run"')
    run = Run(["train", "config.pbtxt"], cwd=folder)
    assert run.status == DONE, run
    return request.param, folder


GRAPHS = {
    "a number": "training",
    "an activation": "training",
    "evaluation": "evaluation",
    "a buffer": "constants",
}


USES_OF_GRAPHS = {
    "evaluate": ["evaluate", "run"],
    "predict": ["predict", "run", "--input", "valid.csv", "--output", "-"],
    "train": ["train", "config.pbtxt", *GO_ON],
}


@pytest.mark.parametrize("variant", GRAPHS)
@pytest.mark.parametrize("use", USES_OF_GRAPHS)
@pytest.mark.all_tier(
    "a unit test compares the parts of an exported graph, and evaluate loads a run as predict does",
    unless=lambda of_graph, variant, use: of_graph == "torchscript" and variant == "a number" and use != "evaluate",
)
def test_another_graph_is_refused(of_graph, tmp_path, variant, use):
    kind, folder = of_graph
    if kind == "torchscript" and variant == "a buffer":
        pytest.skip("TorchScript saves every buffer with the weights")
    copy_run(folder, tmp_path)
    save(tmp_path, kind, Net(variant))
    part = GRAPHS[variant] if kind == "imported" else "constants"
    run = Run(USES_OF_GRAPHS[use], cwd=tmp_path)
    expect_error(run, USAGE, "net.lsm: its graph is not the one that the weights of run/", part)


@pytest.mark.all_tier("a unit test changes the weights of an exported graph", unless=lambda of_graph: of_graph == "torchscript")
def test_other_initial_weights_are_the_same_graph(of_graph, tmp_path):
    kind, folder = of_graph
    copy_run(folder, tmp_path)
    torch.manual_seed(7)
    save(tmp_path, kind, Net())
    run = Run(["train", "config.pbtxt", *GO_ON], cwd=tmp_path)
    assert run.status == DONE, run


@pytest.mark.all_tier("a run goes on with such a file on every commit")
def test_other_initial_weights_change_no_evaluation(of_graph, tmp_path):
    kind, folder = of_graph
    copy_run(folder, tmp_path)
    expected = Run(["evaluate", "run"], cwd=tmp_path)
    torch.manual_seed(7)
    save(tmp_path, kind, Net())
    run = Run(["evaluate", "run"], cwd=tmp_path)
    assert run.status == DONE, run
    assert run.out == expected.out
