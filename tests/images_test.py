"""Tests image folders end to end: training, evaluation and prediction from image files, files that cannot be read, and
`bench loader`. The pixels of PNG, WebP and BMP files must be those that Pillow reads."""

import json
import shutil
import struct
import subprocess
import tarfile
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from harness import (
    DATA,
    DEVICE,
    DONE,
    USAGE,
    Run,
    events,
    expect_error,
    path_of,
    predict,
    rows_of,
    sets,
    skip_without_gpus,
    step_losses,
    train,
    write_table,
)
from labelled_images import CLASSES, photograph, turned_by, write_images_config

needs_a_gpu = pytest.mark.skipif(DEVICE != "CUDA", reason="images_test_on_gpus runs it")

@pytest.fixture
def folder(tmp_path):
    """Returns a folder with train/ (20 images for each class), test/ (four images for each of two classes) and new/
    (three images)."""
    random = np.random.default_rng(2)
    kinds = ("png", "jpg", "webp", "jpg", "bmp")
    for label, name in enumerate(CLASSES):
        for kind, count in (("train", 20), ("test", 4 if name != "green" else 0)):
            (tmp_path / kind / name).mkdir(parents=True)
            for i in range(count):
                photo = photograph(random, label, 20 + 3 * i)
                photo.save(tmp_path / kind / name / f"{i:02}.{kinds[i % 5]}")
    (tmp_path / "test/green").rmdir()
    (tmp_path / "new").mkdir()
    for i, label in enumerate([2, 0, 1]):
        photograph(random, label, 40).save(tmp_path / f"new/{i}.jpg")
    return tmp_path


def train_on(folder, data='validation: "test"', *, images="", ranks=None, options=()):
    skip_without_gpus(ranks)
    config = write_images_config(folder, f'train: "train" {data}', images, epochs=8)
    return train(config, folder / "run", *options, ranks=ranks)


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("a test on one rank is a part of the test on two", unless=lambda ranks: ranks == 2)
def test_trains_evaluates_and_predicts(folder, ranks):
    run = train_on(folder, ranks=ranks)
    assert run.status == DONE, run
    done = events(folder / "run", "done")[0]
    assert done["val_accuracy"] == 1
    assert 'classes: "blue"' in (folder / "run/config.pbtxt").read_text()

    evaluation = Run(["evaluate", folder / "run", "--input", folder / "test"])
    assert evaluation.status == DONE, evaluation
    assert "(8 samples)" in evaluation.out and "accuracy 1" in evaluation.out

    predictions = [(row["file"], row["label"]) for row in predict(folder / "run", folder / "new")]
    assert predictions == [(f"{i}.jpg", CLASSES[label]) for i, label in enumerate((2, 0, 1))]

    # A sample submission may name images by their files' names without the extension.
    write_table(folder / "sample.csv", [[i, *[0] * len(CLASSES)] for i in (2, 0, 1)], ["id", *reversed(CLASSES)])
    words = ["--input", folder / "new", "--submission", folder / "sample.csv", "--output", folder / "sent.csv"]
    assert Run(["predict", folder / "run", *words]).status == DONE
    for row, label in zip(rows_of(folder / "sent.csv"), (1, 2, 0), strict=True):
        assert max(CLASSES, key=lambda name: float(row[name])) == CLASSES[label]


def test_the_number_of_threads_changes_nothing(folder):
    seen = []
    for threads in (0, 1, 3):
        run = train_on(folder, "validation_fraction: 0.2", options=sets(f"loader.threads={threads}"))
        assert run.status == DONE, run
        seen.append((step_losses(folder / "run"), events(folder / "run", "eval")[-1]["val_loss"]))
        (folder / "run").rename(folder / f"run{threads}")
    assert seen[0] == seen[1] == seen[2]


def pictures(folder):
    """Writes 19 WebP and BMP files of different kinds in each of five sizes. Returns their paths. Pillow can read all
    of them."""
    random = np.random.default_rng(6)
    for width, height in ((1, 1), (3, 2), (17, 33), (64, 48), (203, 150)):
        noise = random.integers(0, 60, (height, width, 4)) + np.mgrid[0:height, 0:width].sum(axis=0)[..., None]
        rgba = Image.fromarray(np.clip(noise, 0, 255).astype(np.uint8), "RGBA")
        rgb = rgba.convert("RGB")
        name = f"{width}x{height}"
        for quality in (0, 30, 75, 100):
            rgb.save(folder / f"{name}-{quality}.webp", quality=quality)
            rgba.save(folder / f"{name}-{quality}-alpha.webp", quality=quality, exact=True)
        rgb.save(folder / f"{name}-lossless.webp", lossless=True)
        rgba.save(folder / f"{name}-lossless-alpha.webp", lossless=True, exact=True)
        rgb.save(folder / f"{name}-24.bmp")
        rgba.save(folder / f"{name}-32.bmp")
        rgb.convert("L").save(folder / f"{name}-grey.bmp")
        rgb.convert("1").save(folder / f"{name}-1.bmp")
        for colours in (16, 100, 256):
            rgb.quantize(colours).save(folder / f"{name}-{colours}.bmp")
        # Pillow does not write these kinds of BMP files: rows from the top down, and colour masks.
        rows = np.asarray(rgb)[:, :, ::-1].tobytes()
        stride = -3 * width % 4
        rows = b"".join(rows[3 * width * y:][:3 * width] + bytes(stride) for y in range(height))
        head = struct.pack("<2sIHHI", b"BM", 0, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, width, -height, 1, 24, 0, 0, 0, 0, 0, 0)
        (folder / f"{name}-top-down.bmp").write_bytes(head + rows)
        masks = struct.pack("<4I", 0xff, 0xff00, 0xff0000, 0xff000000)
        head = struct.pack("<2sIHHI", b"BM", 0, 0, 0, 14 + 108) + struct.pack(
            "<IiiHHIIiiII", 108, width, -height, 1, 32, 3, 0, 0, 0, 0, 0) + masks + bytes(108 - 40 - len(masks))
        (folder / f"{name}-masks.bmp").write_bytes(head + np.asarray(rgba).tobytes())
    return sorted(path for path in folder.iterdir() if path.is_file())


def png(width, depth, colours, rows, extra=()):
    """Returns a PNG file with the bytes of its rows, and with further chunks."""
    head = struct.pack(">IIBBBBB", width, len(rows), depth, colours, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    chunks = [(b"IHDR", head), *extra, (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks)


PNG_CHANNELS = {"grey": (0, 1), "rgb": (2, 3), "palette": (3, 1), "grey-alpha": (4, 2), "rgba": (6, 4)}
PNG_DEPTHS = {"grey": (1, 2, 4, 8, 16), "rgb": (8, 16), "palette": (1, 2, 4, 8), "grey-alpha": (8, 16), "rgba": (8, 16)}


def pngs(folder):
    """Writes PNG files of all kinds, most of which Pillow reads but does not write. Returns their paths."""
    random = np.random.default_rng(7)
    for kind, (colours, channels) in PNG_CHANNELS.items():
        for depth in PNG_DEPTHS[kind]:
            for width, height in ((1, 1), (17, 5)):
                rows = [random.bytes(-(-width * channels * depth // 8)) for _ in range(height)]
                palette = [(b"PLTE", random.bytes(3 << depth))] if kind == "palette" else []
                see_through = {"grey": bytes(2), "palette": random.bytes(2), "rgb": bytes(6)}.get(kind)
                name = folder / f"{kind}-{depth}-{width}x{height}"
                name.with_suffix(".png").write_bytes(png(width, depth, colours, rows, palette))
                if see_through:
                    more = [*palette, (b"tRNS", see_through)]
                    name.with_name(name.name + "-see-through.png").write_bytes(png(width, depth, colours, rows, more))
    return sorted(folder.iterdir())


def pillows(path):
    """Returns the pixels as Pillow's convert("RGB") gives them; of grey levels of 16 bits the upper 8 bits, as Pillow
    gives them for colours of 16 bits."""
    image = Image.open(path)
    if image.mode == "I;16":
        return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[..., None], 3, axis=2)
    return np.asarray(image.convert("RGB"))


def test_pixels_are_pillows(tmp_path):
    (tmp_path / "png").mkdir()
    paths = [*pngs(tmp_path / "png"), *pictures(tmp_path)]
    done = subprocess.run([path_of("IMAGE_PRINT"), *paths], capture_output=True)
    assert done.returncode == DONE, done.stderr
    at = 0
    for path in paths:
        expected = pillows(path)
        end = done.stdout.index(b"\n", at)
        width, height = map(int, done.stdout[at:end].split())
        at = end + 1 + 3 * width * height
        assert (height, width) == expected.shape[:2], path.name
        pixels = np.frombuffer(done.stdout[end + 1:at], np.uint8).reshape(expected.shape)
        assert np.array_equal(pixels, expected), path.name
    assert at == len(done.stdout) and len(paths) == 5 * 19 + 52


def damage(folder):
    path = folder / "train/green/08.jpg"
    path.write_bytes(path.read_bytes()[:200])
    (folder / "train/red/06.jpg").write_bytes(b"")
    return [str(path), str(folder / "train/red/06.jpg")]


def test_a_damaged_file_ends_the_run_with_its_name(folder):
    damage(folder)
    expect_error(train_on(folder), DATA, "/train/", ".jpg: ")


def test_validation_images_that_cannot_be_read_are_told_before_the_first_step(folder):
    path = sorted((folder / "test").glob("*/*.jpg"))[0]
    path.write_bytes(path.read_bytes()[:200])
    run = train_on(folder)
    warning, error = run.error_lines
    assert run.status == DATA and error.startswith(f"lockstep: error: {path}: truncated"), run
    assert warning.startswith(f"lockstep: warning: {path}: truncated") and "of 8 validation images that were tried 1 " in warning
    assert "policy: SKIP" in warning and events(folder / "run")[1]["event"] == "warning"
    run = train_on(folder, 'validation: "test" bad_samples { policy: SKIP }', options=["--fresh"])
    assert run.status == DONE and "validation images" not in run.err, run


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.all_tier("a test on one rank is a part of the test on two", unless=lambda ranks: ranks == 2)
def test_damaged_files_are_skipped_where_asked(folder, ranks):
    paths = damage(folder)
    skips = 'validation: "test" bad_samples { policy: SKIP limit: 2 }'
    run = train_on(folder, skips, ranks=ranks)
    assert run.status == DONE, run
    said = [event["reason"] for event in events(folder / "run", "bad_sample")] + run.err.splitlines()
    for path in paths:
        assert 1 <= sum(path in line for line in said) <= (ranks or 1), said
    first = step_losses(folder / "run")
    (folder / "run").rename(folder / "run1")
    # The sample that replaces a bad one does not depend on the number of threads.
    assert train_on(folder, skips, ranks=ranks, options=sets("loader.threads=3")).status == DONE
    assert step_losses(folder / "run") == first


def test_no_prediction_stands_for_another(folder):
    assert train_on(folder, 'validation: "test" bad_samples { policy: SKIP }').status == DONE
    (folder / "new/1.jpg").write_bytes(b"")
    expect_error(Run(["predict", folder / "run", "--input", folder / "new"]), DATA, "new/1.jpg: empty file")
    (folder / "test/red/03.jpg").write_bytes(b"")
    evaluation = Run(["evaluate", folder / "run", "--input", folder / "test"])
    assert evaluation.status == DONE and "red/03.jpg: empty file; another stands for it" in evaluation.err, evaluation


def test_a_name_that_is_no_utf8(folder):
    with open(bytes(folder / "train/red") + b"/caf\xe9.jpg", "wb"):
        pass
    run = train_on(folder, 'bad_samples { policy: SKIP }')
    assert run.status == DONE and events(folder / "run", "bad_sample"), run


def test_more_damaged_files_than_allowed(folder):
    damage(folder)
    expect_error(train_on(folder, "bad_samples { policy: SKIP limit: 1 }"), DATA,
                 "2 samples cannot be read, more than data.bad_samples.limit", "the last: ", ".jpg: ")


def test_names_wrong_configs_and_folders(folder):
    expect_error(train_on(folder, 'validation: "nowhere"'), USAGE, "data.validation: no such folder: ", "nowhere")
    expect_error(train_on(folder, 'train: "test"'), USAGE, "data.train: IMAGES takes one folder")
    expect_error(train_on(folder, "classes: 4"), DATA, "train: 3 classes where data.classes says 4")
    expect_error(train_on(folder, "input_shape: [3, 8, 8]"), USAGE, "IMAGES are 3 x 16 x 16: set data.images.size")
    expect_error(train_on(folder, "task: REGRESSION"), USAGE, "data.task: IMAGES holds classes")
    expect_error(train_on(folder, options=sets("data.images.min_area=0.9", "data.images.max_area=0.5")), USAGE,
                 "data.images.min_area: is greater than max_area")
    expect_error(train_on(folder, options=sets("data.train=new")), USAGE, "data.train: no such folder")
    expect_error(train_on(folder, options=sets(f"data.train={folder / 'new'}")), DATA, "an image beside the classes")
    expect_error(train_on(folder, images='classes: ["red", "red"]'), USAGE, 'data.images.classes: "red" twice')
    expect_error(train_on(folder, images="decode: GPU cache: DECODED", options=sets("device=AUTO")), USAGE,
                 "data.images.decode: GPU goes with")
    expect_error(train_on(folder, images="decode: GPU", options=sets("device=CPU")), USAGE,
                 "data.images.decode: is GPU where device is CPU")
    (folder / "test/purple").mkdir()
    expect_error(train_on(folder), DATA, 'test/purple: no class "purple" was trained on')


@pytest.mark.parametrize("images", ["cache: OFF", "cache: DECODED", pytest.param("decode: GPU", marks=needs_a_gpu)])
@pytest.mark.all_tier(
    "the cache and the GPU get pictures whose turn was read by the same code",
    unless=lambda images: images == "cache: OFF",
)
def test_pictures_are_turned_as_their_cameras_say(tmp_path, images):
    """Checks that, with `exif_orientation`, a run on pictures with EXIF orientation has the losses of a run on pictures
    that Pillow has turned, and that its losses differ without the option."""
    random = np.random.default_rng(3)
    slope = np.mgrid[0:30, 0:48].sum(axis=0)[..., None] * np.array([3, 1, 2])
    for label, name in enumerate(CLASSES):
        for kind in ("stored", "turned"):
            (tmp_path / kind / name).mkdir(parents=True)
        for value in range(1, 9):
            for kind in (("png", "jpg"), ("webp", "jpg"), ("png", "webp"))[label]:
                pixels = np.clip(slope - 60 * label + random.integers(0, 60, (30, 48, 3)), 0, 255).astype(np.uint8)
                path = tmp_path / f"stored/{name}/{value}{kind}.{kind}"
                Image.fromarray(pixels).save(path, exif=turned_by(value), quality=100, lossless=True)
                ImageOps.exif_transpose(Image.open(path)).save(tmp_path / f"turned/{name}/{value}{kind}.png")
    seen = {}
    for source, turns in (("stored", "true"), ("turned", "false"), ("stored", "false")):
        changes = [f"data.train={tmp_path / source}", f"data.images.exif_orientation={turns}", "epochs=2"]
        run = train_on(tmp_path, "", images=images, options=sets(*changes))
        assert run.status == DONE, run
        seen[source, turns] = np.array(step_losses(tmp_path / "run"))
        (tmp_path / "run").rename(tmp_path / f"run-{source}-{turns}")
    expected = seen["turned", "false"]
    assert len(expected) == 6
    # The turned files are PNG files, which are decoded on the CPU. A pixel from the GPU's decoder may differ by a grey
    # level, so losses with that decoder may differ more.
    assert np.abs(seen["stored", "true"] / expected - 1).max() < (1e-2 if "GPU" in images else 2e-3)
    assert np.abs(seen["stored", "false"] / expected - 1).max() > 2e-2


def test_what_is_left_out_is_said(folder):
    (folder / "train/red/a.tiff").write_bytes(b"II*\0")
    (folder / "train/red/b.gif").write_bytes(b"GIF8")
    (folder / "train/notes.txt").write_text("no image")
    (folder / "train/red/more").symlink_to(folder / "new")
    run = train_on(folder)
    assert run.status == DONE, run
    assert events(folder / "run", "start")[0]["samples"] == 60
    for words in ("train/red/a.tiff and another one are left out: not JPEG, PNG, WebP or BMP: convert such images",
                  "train/notes.txt is left out: not named .jpg, .jpeg, .png, .webp or .bmp",
                  "train/red/more is left out: a link to a folder"):
        assert sum(words in line for line in run.err.splitlines()) == 1, run
    # The message also appears if the list of files comes from the index that the earlier run has written.
    evaluation = Run(["evaluate", folder / "run", "--input", folder / "train"])
    assert evaluation.status == DONE and "a.tiff and another one are left out" in evaluation.err, evaluation


def test_an_empty_class(folder):
    (folder / "train/.ipynb_checkpoints").mkdir()
    assert train_on(folder, options=sets("epochs=1")).status == DONE
    (folder / "train/purple").mkdir()
    reason = "train/purple: a folder is a class, and there are no .jpg, .jpeg, .png, .webp or .bmp files in"
    expect_error(train_on(folder), DATA, reason)


def test_an_archive_with_a_name_that_leads_out_of_it(folder):
    with tarfile.open(folder / "train.tar", "w") as tar:
        tar.add(folder / "train/red/01.jpg", "red/01.jpg")
        tar.add(folder / "train/red/03.jpg", "../02.jpg")
    expect_error(train_on(folder, options=sets(f"data.train={folder / 'train.tar'}")), DATA,
                 "train.tar: ../02.jpg: a name that leads out of its archive")


def test_one_class(folder):
    for name in ("blue", "green"):
        shutil.rmtree(folder / "train" / name)
    run = train_on(folder, "")
    assert run.status == DONE and "train: all samples are of one class: there is nothing to learn" in run.err, run
    assert "20 samples, none held back (data.validation_fraction does so)" in run.out


def test_bench_loader(folder):
    bench = ["bench", "loader", "--images", folder / "train", *sets("device=CPU", "global_batch=7")]
    for threads in (-1, 0, 3):
        run = Run([*bench, "--json", *sets(f"loader.threads={threads}")])
        assert run.status == DONE, run
        line = json.loads(run.out)
        assert line["samples_per_s"] > 0 and line["per_core"] > 0 and line["batch"] == 7 and line["first_batch_s"] > 0
        assert line["first_epoch_samples_per_s"] > 0 and line["samples"] == 60 and line["warm"]
        shares = [line[f"{phase}_share"] for phase in ("read", "decode", "resize", "gpu", "normalize", "idle")]
        assert all(0 <= share <= 1 for share in shares) and abs(sum(shares) - 1) < 0.01
    text = Run(bench)
    assert "samples/s" in text.out and "limit: " in text.out
    assert "set loader.threads" in Run([*bench, *sets("loader.threads=0")]).out
    cold = json.loads(Run([*bench, "--json", "--cold"]).out)
    assert cold["samples_per_s"] > 0 and not cold["warm"] and "first_epoch_samples_per_s" not in cold
    cached = json.loads(Run([*bench, "--json", *sets("data.images.cache=ENCODED")]).out)
    size = sum(path.stat().st_size for path in (folder / "train").rglob("*.*"))
    assert cached["kept_mib"] == pytest.approx(size / 2**20, abs=0.06)
    expect_error(Run([*bench, *sets("global_batch=61")]), USAGE, "global_batch: 60 samples")
    expect_error(Run(["bench", "loader", "--images", folder / "nowhere"]), USAGE, "nowhere: no such folder")
    expect_error(Run([*bench, *sets("data.images.decode=GPU")]), USAGE, "data.images.decode")
    expect_error(Run(["bench", "loader"]), USAGE, "either a config file or --images")
    expect_error(Run(["bench", "loader", write_images_config(folder, 'train: "train"'), "--images", folder]), USAGE, "either")


@pytest.mark.parametrize("ranks", [1, 2])
def test_bench_loader_of_a_config(folder, ranks):
    skip_without_gpus(ranks)
    config = write_images_config(folder, 'train: "train"')
    run = Run(["bench", "loader", config, "--json", "--seconds", "0.5"], ranks=ranks)
    assert run.status == DONE, run
    line = json.loads(run.out)
    assert line["ranks"] == ranks and line["samples_per_s"] > 0 and line["samples"] == 60


@needs_a_gpu
def test_bench_loader_with_the_gpus_decoder(folder):
    bench = ["bench", "loader", "--images", folder / "train", "--json", *sets("device=CUDA", "global_batch=7")]
    for decode in ("GPU", "CPU", "AUTO"):
        run = Run([*bench, *sets(f"data.images.decode={decode}")])
        assert run.status == DONE, run
        assert (json.loads(run.out)["gpu_share"] > 0) == (decode == "GPU"), run


@needs_a_gpu
@pytest.mark.parametrize("cache", ["OFF", "ENCODED"])
def test_decoding_on_the_gpu_trains_the_same_for_any_number_of_threads(folder, cache):
    damaged = folder / "train/red/08.jpg"
    damaged.write_bytes(damaged.read_bytes()[:300])
    seen = []
    for threads in (0, 1, 3):
        data, images = 'validation: "test" bad_samples { policy: SKIP }', f"decode: GPU cache: {cache}"
        run = train_on(folder, data, images=images, options=sets(f"loader.threads={threads}"))
        assert run.status == DONE, run
        assert events(folder / "run", "start")[0]["decode"] == "GPU"
        assert [event["reason"].count("08.jpg: truncated") for event in events(folder / "run", "bad_sample")] == [1]
        done = events(folder / "run", "done")[0]
        assert done["val_accuracy"] == 1
        seen.append((step_losses(folder / "run"), done["val_loss"]))
        (folder / "run").rename(folder / f"run{threads}")
    assert seen[0] == seen[1] == seen[2]
