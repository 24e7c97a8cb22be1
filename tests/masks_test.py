"""Tests folders of images and masks end to end: an exported U-Net learns them and predicts masks, and its metrics are
those for masks that Pillow resizes. Also tests masks of 0 and 255, wrong files, and a config that `new` writes."""

import json
import pathlib
import re
import shutil
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from harness import DATA, DEVICE, DONE, USAGE, Run, events, expect_error, sets, skip_without_gpus, train, write_config
from small_unet import UNet

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
import lockstep  # noqa: E402

SIZE = 16
COLOURS = np.array([(40, 40, 40), (200, 60, 60), (60, 60, 200)])


def scene(random, classes):
    """Returns (a picture of boxes in the colours of their classes, the class of each pixel)."""
    height, width = random.integers(24, 60, 2)
    mask = np.zeros((height, width), np.uint8)
    for label in range(1, classes):
        y, x = random.integers(0, height - 12), random.integers(0, width - 12)
        mask[y : y + 12, x : x + 12] = label
    return Image.fromarray((COLOURS[mask] + random.integers(-30, 30, (height, width, 3))).astype(np.uint8)), mask


def write_scenes(folder, count, classes=3, values=(0, 1, 2), void=None, images="images", masks="masks"):
    """Writes `count` images and their masks. `values` are the values of the classes in the mask files. `void` is the
    value of pixels without a class, which are those in row 3; None: all pixels have a class."""
    random = np.random.default_rng(count)
    kinds = ("jpg", "png", "webp", "bmp")
    for i in range(count):
        picture, mask = scene(random, classes)
        below = "more/" if i % 5 == 0 else ""
        for kind in (images, masks):
            (folder / kind / below).mkdir(parents=True, exist_ok=True)
        picture.save(folder / images / f"{below}{i:02}.{kinds[i % 4]}", quality=95)
        pixels = np.array(values, np.uint8)[mask]
        if void is not None:
            pixels[3] = void
        file = Image.fromarray(pixels)
        if i % 2:
            file.putpalette([7 * j % 256 for j in range(768)])
        file.save(folder / masks / f"{below}{i:02}.png")


def write_masks_config(folder, data="", images="", more="", classes=3, epochs=12):
    torch.manual_seed(1)
    lockstep.export(UNet(classes), torch.zeros(3, 3, SIZE, SIZE), folder / "net.lsm")
    return write_config(
        folder,
        f"""seed: 1 global_batch: 8 epochs: {epochs} log {{ every_steps: 1 }} {more}
        data {{ format: IMAGES task: SEGMENTATION train: ["images", "masks"] {data}
          images {{ size: {SIZE} min_area: 0.3 {images} }} mean: 0.5 std: 0.25 }}
        model {{ name: "imported" imported {{ file: "net.lsm" }} }} optimizer {{ type: ADAM lr: 0.01 }}""",
    )


def masks_of(folder):
    """Returns the masks in the order of a run's samples: those in subfolders come first."""
    paths = sorted(folder.rglob("*.png"), key=lambda path: (len(path.parts) == len(folder.parts) + 1, path))
    return [np.asarray(Image.open(path)) for path in paths]


def nearest(mask, size):
    return np.asarray(Image.fromarray(mask).resize(size, Image.NEAREST))


def enlarged(mask, size):
    """Resizes a mask by nearest-neighbour sampling, in integer arithmetic. If a centre lies exactly between two pixels,
    Pillow's floating-point arithmetic may choose either of them."""
    rows, columns = ((2 * np.arange(count) + 1) * own // (2 * count) for count, own in zip(size, mask.shape, strict=True))
    return mask[rows][:, columns]


def iou(predicted, expected, classes):
    has_class = expected != 255
    shares = []
    for c in range(classes):
        union = (((predicted == c) | (expected == c)) & has_class).sum()
        if union:
            shares.append(((predicted == c) & (expected == c)).sum() / union)
    return np.mean(shares)


@pytest.mark.parametrize(
    "ranks",
    [
        None,
        pytest.param(2, marks=pytest.mark.all_tier("two ranks train on masks as on other targets")),
    ],
)
def test_a_u_net_learns(tmp_path, ranks):
    """Checks that `evaluate` gives the metrics for masks that Pillow resizes, and that the mask files of `predict`
    contain the predictions, enlarged to the sizes of the images."""
    skip_without_gpus(ranks)
    write_scenes(tmp_path, 40, void=255)
    write_scenes(tmp_path, 12, images="test_images", masks="test_masks")
    run = train(write_masks_config(tmp_path, "validation_fraction: 0.2"), tmp_path / "run", ranks=ranks)
    assert run.status == DONE and "32 samples, 8 held back" in run.out, run
    assert events(tmp_path / "run", "eval")[-1]["val_iou"] > 0.6
    config = (tmp_path / "run/config.pbtxt").read_text()
    assert re.findall(r"mask_values: (.*)", config) in (["0", "1", "2"], ["[0, 1, 2]"]) and "classes: 3" in config

    files = [tmp_path / "test_images", tmp_path / "test_masks"]
    predicted = ["predict", tmp_path / "run", "--input", files[0], "--output"]
    assert Run([*predicted, tmp_path / "predicted.npy"], ranks=ranks).status == DONE
    assert Run([*predicted, f"{tmp_path}/predicted/"], ranks=ranks).status == DONE
    array = np.load(tmp_path / "predicted.npy")
    expected = masks_of(files[1])
    assert array.shape == (12, SIZE, SIZE) and array.dtype == np.uint8
    evaluation = Run(["evaluate", tmp_path / "run", "--input", *files, "--json"], ranks=ranks)
    assert evaluation.status == DONE, evaluation
    resized = np.stack([nearest(mask, (SIZE, SIZE)) for mask in expected])
    close = 1e-6 if DEVICE == "CPU" else 5e-3
    assert json.loads(evaluation.out)["iou"] == pytest.approx(iou(array, resized, 3), rel=close)
    written = masks_of(tmp_path / "predicted")
    assert {path.relative_to(tmp_path / "predicted") for path in (tmp_path / "predicted").rglob("*.png")} == {
        path.relative_to(files[1]) for path in files[1].rglob("*.png")}
    for small, large, truth in zip(array, written, expected, strict=True):
        assert large.shape == truth.shape and large.dtype == np.uint8
        assert (large == enlarged(small, large.shape)).mean() > 1 - close
    assert np.mean([(a == b).mean() for a, b in zip(written, expected, strict=True)]) > 0.8

    expect_error(Run(["predict", tmp_path / "run", "--input", files[0]]), USAGE,
                 "--output predictions.csv: masks are written as an array: name a .npy file, or a folder for PNG files")


def test_masks_of_0_and_255(tmp_path):
    """Checks that masks of 0 and 255 have two classes, unless the config says that 255 means no class, and that the
    files of predicted masks have the values 0 and 255."""
    write_scenes(tmp_path, 24, classes=2, values=(0, 255))
    config = write_masks_config(tmp_path, "validation_fraction: 0.25", classes=2)
    run = train(config, tmp_path / "run")
    assert run.status == DONE, run
    assert sum("hold the values 0 and 255 alone, which are taken for the classes 0 and 1" in line for line in run.err.splitlines()) == 1, run
    assert events(tmp_path / "run", "eval")[-1]["val_iou"] > 0.7
    held_back = Run(["predict", tmp_path / "run", "--held-back", "--output", f"{tmp_path}/held_back/"])
    assert held_back.status == DONE and "6 predictions" in held_back.out, held_back
    written = list((tmp_path / "held_back").rglob("*.png"))
    assert len(written) == 6 and set().union(*(np.unique(Image.open(path)) for path in written)) == {0, 255}
    for path in written:
        assert Image.open(path).size == Image.open(tmp_path / "masks" / path.relative_to(tmp_path / "held_back")).size
    # The run's config has the values that were found, so a training with this config does not print the message.
    again = train(tmp_path / "run/config.pbtxt", tmp_path / "again", *sets("epochs=1"))
    assert again.status == DONE and "0 and 255 alone" not in again.err, again

    # 255 means no class here, so all pixels that have a class are of class 0.
    run = train(config, tmp_path / "ignored", *sets("data.images.mask_ignored=255", "data.classes=2", "epochs=1"))
    expect_error(run, DATA, "masks: masks of one class alone: each pixel has the value 0, or 255, which is no class: ",
                 "if 255 is a class, set data.images.mask_values: [0, 255] instead of data.images.mask_ignored")


ONE_CLASS = {  # maps a name to (the value of each pixel, the values in the config, parts of the error)
    "background": (0, "", ("masks of one class alone: each pixel has the value 0: there is nothing to learn",)),
    "objects": (1, "", ("masks of one class alone: each pixel has the value 1: ", "give masks of two classes")),
    "255": (255, "", ("masks without a class: each pixel has the value 255, which is no class", "data.images.mask_values")),
    "given": (80, "mask_values: [0, 80]", ("masks of one class alone: each pixel has the value 80: ",)),
}


@pytest.mark.parametrize("kind", ["files", "array"])
@pytest.mark.parametrize("name", ONE_CLASS)
@pytest.mark.all_tier("masks_test.cc has all of these", unless=lambda kind, name: (kind, name) in (("files", "255"), ("array", "objects")))
def test_masks_of_one_class_are_refused(kind, name, tmp_path):
    """Checks that a run does not begin if there is nothing to learn, and that nothing of it is left."""
    value, values, parts = ONE_CLASS[name]
    if kind == "files":
        write_scenes(tmp_path, 8, classes=1, values=[value])
        config = write_masks_config(tmp_path, "validation_fraction: 0.25", values)
    else:
        if values:
            pytest.skip("an array holds classes, not values of them")
        np.save(tmp_path / "x.npy", np.zeros((8, SIZE, SIZE, 3), "u1"))
        np.save(tmp_path / "y.npy", np.full((8, SIZE, SIZE), value, "u1"))
        parts = ("y.npy: ", parts[0].split(":")[0], f": each pixel is {value}", "there is nothing to learn")
        config = write_masks_config(tmp_path)
        text = config.read_text().replace('IMAGES', 'NPY npy { kind: PIXELS }').replace('["images", "masks"]', '["x.npy", "y.npy"]')
        config.write_text(re.sub(r"images \{.*?\}", "", text))
    expect_error(train(config, tmp_path / "run"), DATA, *parts)
    assert not (tmp_path / "run").exists()


def test_values_that_the_config_names(tmp_path):
    write_scenes(tmp_path, 16, values=(0, 80, 160), void=9)
    images = "mask_values: [0, 80, 160] mask_ignored: 9"
    run = train(write_masks_config(tmp_path, "validation_fraction: 0.25", images, epochs=2), tmp_path / "run")
    assert run.status == DONE, run
    # Without mask_values, the greatest value, 160, determines the number of classes, 161.
    run = train(write_masks_config(tmp_path, "validation_fraction: 0.25", "mask_ignored: 9", classes=161, epochs=1), tmp_path / "many")
    assert run.status == DONE and "the masks hold the values 0, 80, 160: classes are counted from 0, so the model learns 161" in run.err, run


@pytest.mark.parametrize("cache", ["OFF", "DECODED"])
def test_the_number_of_threads_changes_nothing(tmp_path, cache):
    write_scenes(tmp_path, 16)
    config = write_masks_config(tmp_path, "validation_fraction: 0.25", f"cache: {cache}", epochs=2)
    seen = []
    for threads in (0, 3):
        run = train(config, tmp_path / f"run{threads}", *sets(f"loader.threads={threads}"))
        assert run.status == DONE, run
        seen.append([event["loss"] for event in events(tmp_path / f"run{threads}", "step")])
    assert seen[0] == seen[1] and len(seen[0]) == 4


def test_folds(tmp_path):
    write_scenes(tmp_path, 12)
    run = train(write_masks_config(tmp_path, epochs=1), tmp_path / "run", "--folds", 2, "--side-by-side", 1)
    assert run.status == DONE, run
    assert np.load(tmp_path / "run/held_back.npy").shape == (12, SIZE, SIZE)


def missing(folder):
    (folder / "masks/01.png").unlink()
    (folder / "masks/02.png").unlink()


def another_size(folder):
    Image.fromarray(np.zeros((9, 8), np.uint8)).save(folder / "masks/01.png")


def another_value(folder):
    mask = np.array(Image.open(folder / "masks/01.png"))
    mask[0, 0] = 77
    Image.fromarray(mask).save(folder / "masks/01.png")


def colours(folder):
    Image.new("RGB", (40, 40), (1, 2, 3)).save(folder / "masks/01.png")


def no_png(folder):
    Image.new("L", (40, 40)).save(folder / "masks/01.png", format="JPEG")


def truncated(folder):
    path = folder / "masks/01.png"
    path.write_bytes(path.read_bytes()[:60])


def no_folder(folder):
    shutil.rmtree(folder / "masks")
    (folder / "masks").mkdir()


FILES = {
    missing: ("images/01.png: no mask: there is no ", "masks/01.png, and another image has none: put it there"),
    another_size: ("masks/01.png: 8 x 9 pixels, where its image ", "images/01.png has "),
    another_value: ("masks/01.png: row 0, column 0: 77 is none of the 3 classes' values, nor 255, which is no class",),
    colours: ("masks/01.png: row 0, column 0: the colour 1, 2, 3, where a mask's pixel is grey or of a palette",),
    no_png: ("masks/01.png: not a PNG file, which masks are",),
    truncated: ("masks/01.png: truncated PNG file",),
    no_folder: ("no mask: there is no ", "and 11 other images have none"),
}


@pytest.mark.parametrize("spoil", FILES, ids=lambda spoil: spoil.__name__)
def test_wrong_files(tmp_path, spoil):
    write_scenes(tmp_path, 12)
    spoil(tmp_path)
    config = write_masks_config(tmp_path, "classes: 3", epochs=1)
    run = train(config, tmp_path / "run")
    expect_error(run, DATA, *FILES[spoil])
    skips = sets("data.bad_samples.policy=SKIP")
    if spoil in (missing, no_folder):
        expect_error(train(config, tmp_path / "run", "--fresh", *skips), DATA, *FILES[spoil])
        return
    run = train(config, tmp_path / "run", "--fresh", *skips)
    assert run.status == DONE, run
    reasons = [event["reason"] for event in events(tmp_path / "run", "bad_sample")]
    assert len(reasons) == 1 and FILES[spoil][0] in reasons[0], reasons


@pytest.mark.parametrize("data, images, parts", [
    ('train: ["images"]', "", ("data.train: IMAGES takes two folders: images, masks",)),
    ('train: ["images", "masks"] validation: "images"', "", ("data.validation: IMAGES takes two folders: images, masks",)),
    ("", "exif_orientation: true", ("data.images.exif_orientation: is not for masks",)),
    ("", "center: 1", ("data.images.center: has no meaning for SEGMENTATION: evaluation sees whole images",)),
    ("", 'classes: ["a", "b"]', ("data.images.classes: is for folders of classes; masks have mask_values",)),
    ("", "mask_values: [0, 3, 3]", ("data.images.mask_values: 3 is there twice",)),
    ("classes: 4", "mask_values: [0, 3]", ("data.images.mask_values: 2 values for 4 of data.classes",)),
    ("", "mask_values: [0, 256]", ("data.images.mask_values", "256")),
    ("", "mask_values: [0, 3] mask_ignored: 3", ("data.images.mask_ignored: 3 is a class of mask_values",)),
    ("task: CLASSIFICATION", "mask_ignored: 3", ("data.images.mask_ignored: is for data.task: SEGMENTATION",)),
    ("task: REGRESSION", "", ("data.task: IMAGES holds classes of samples",)),
])
def test_wrong_configs(tmp_path, data, images, parts):
    write_scenes(tmp_path, 2)
    (tmp_path / "net.lsm").write_bytes(b"")
    task = "" if "task" in data else "task: SEGMENTATION"
    files = "" if "train" in data else 'train: ["images", "masks"]' if task else 'train: "images"'
    config = write_config(tmp_path, f"""data {{ format: IMAGES {task} {files} {data} images {{ size: 16 {images} }} }}
        model {{ name: "imported" imported {{ file: "net.lsm" }} }}""")
    expect_error(train(config, tmp_path / "run"), USAGE, *parts)


def test_new_writes_a_config(tmp_path):
    write_scenes(tmp_path / "cells/train", 30, classes=2, values=(0, 255))
    write_scenes(tmp_path / "cells", 4, images="test", masks="unused")
    shutil.rmtree(tmp_path / "cells/unused")
    (tmp_path / "cells/train.csv").write_text("id,rle\n1,1 2\n")
    run = Run(["new", "cells"], cwd=tmp_path)
    assert run.status == DONE, run
    assert "30 images with masks of 2 classes" in run.out and "note: " in run.out
    config = (tmp_path / "train.pbtxt").read_text()
    assert 'train: ["cells/train/images", "cells/train/masks"]' in config and "mask_values: [0, 255]" in config
    commands = [line.split() for line in re.findall(r"(?m)^  ((?:python3|lockstep) .*)$", run.out)]
    assert commands[0] == "python3 -m lockstep.export unet:make_net --size 32 --output unet.lsm".split()
    expect_error(Run(["train", "train.pbtxt"], cwd=tmp_path), USAGE, "unet.lsm")
    lockstep.export(UNet(2), torch.zeros(2, 3, 32, 32), tmp_path / "unet.lsm")
    done = Run([*commands[1][1:], *sets("epochs=2", f"device={DEVICE}")], cwd=tmp_path)
    assert done.status == DONE, done
    assert commands[2][1:] == "predict runs/train --input cells/test --output predicted/".split()
    assert Run(commands[2][1:], cwd=tmp_path).status == DONE
    assert len(list((tmp_path / "predicted").rglob("*.png"))) == 4


def test_new_refuses_masks_of_one_class(tmp_path):
    write_scenes(tmp_path, 12, classes=1)
    expect_error(Run(["new", "."], cwd=tmp_path), DATA, "masks: masks of one class alone: each pixel has the value 0: there is nothing to learn")
