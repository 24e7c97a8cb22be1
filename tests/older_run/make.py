#!/usr/bin/env python3
"""Makes the corpus of older runs, for older_run_test.py, with a program of an older version.

    tests/older_run/make.py PROGRAM OUTPUT [RUN ...]

PROGRAM is a lockstep program whose version is released or in use, and PYTHONPATH has its package `lockstep`. OUTPUT is
a folder to make, or to add runs to: existing parts are never made again. The script writes these files below it:

    data/                      samples that this script draws, files of `prepare`, a .lsm and a TorchScript file
    runs/NAME/train.pbtxt      the config as its user wrote it (older_runs.py)
    runs/NAME/printed.pbtxt    the output of `lockstep config` for this config
    runs/NAME/run/             the run folder, as a kill after the middle of the training would have left it
    runs/NAME/weights*         the final weights of the whole training, for some runs
    runs/NAME/predictions.*    the predictions from the newest checkpoint, or from the best one if the run keeps it
    runs/NAME/expected.json    the output of `lockstep evaluate` and `lockstep runs`, the losses, the digests of the
                               weights, and the machine's fingerprint

The numbers are the same each time on the same kind of machine. Only the times in log.jsonl differ.
"""

import datetime
import gzip
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

import numpy as np
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import older_runs  # noqa: E402
from older_runs import ORIGIN, RUNS  # noqa: E402


class Program:
    def __init__(self, path):
        self.path = str(pathlib.Path(path).absolute())

    def __call__(self, *words, ranks=1):
        several = ["-n", str(ranks)] if ranks > 1 else []
        environment = dict(os.environ, XDG_CACHE_HOME=f"{ORIGIN}/cache", **older_runs.environment())
        done = subprocess.run(
            [*older_runs.launcher(ranks), self.path, *several, *map(str, words)],
            cwd=ORIGIN,
            env=environment,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout


# ---- Data ---------------------------------------------------------------------------------------


def write_lines(path, rows):
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))


def write_tables(folder):
    draw = np.random.default_rng(1)
    rows = [["id", "age", "income", "city", "joined", "choice"]]
    for i in range(48):
        age, income, city = draw.integers(18, 80), draw.lognormal(7, 1), draw.integers(0, 6)
        day = datetime.datetime(2020, 1, 1) + datetime.timedelta(hours=int(draw.integers(0, 30000)))
        choice = ["no", "maybe", "yes"][int(np.digitize(age / 40 + draw.normal(0, 0.3), [1, 1.6]))]
        town = ["Bonn", "Köln", "Aachen", "Trier", "Mainz", "Ulm"][city]
        cells = [age, f"{income:.2f}", town, day.isoformat(" "), choice]
        missing = draw.integers(0, 12)  # one of the first four cells is missing in a third of the rows
        if missing < 4:
            cells[missing] = ["", "NA", "", "NaT"][missing]
        rows.append([f"person{i}", *cells])
    write_lines(folder / "table.csv", rows)

    rows = [["rooms", "area", "age", "street", "price"]]
    for i in range(60):
        rooms, area = draw.integers(1, 9), draw.lognormal(4.5, 0.5)
        age, street = draw.exponential(30), draw.geometric(0.4)
        price = 50000 + 2000 * area + 9000 * rooms - 300 * age + draw.normal(0, 9000)
        rows.append([rooms, f"{area:.1f}", f"{age:.0f}", f"street {street}", f"{price:.0f}"])
    text = "".join(",".join(map(str, row)) + "\n" for row in rows[:45])
    (folder / "houses.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    write_lines(folder / "houses_held_back.csv", [rows[0], *rows[45:]])

    with open(folder / "labels.csv", "w") as file:
        for i in range(40):
            x = draw.normal(size=4)
            labels = [int(x[0] + x[1] > 0.3), int(x[2] > 0)]
            file.write(";".join(map(str, [draw.integers(1, 5), *(f"{v:.4f}" for v in x), *labels])) + "\n")


def photograph(draw, label, width, height):
    pixels = draw.integers(0, 4, (height, width, 3)) * 40
    pixels[:, :, label] += 100
    return Image.fromarray(pixels.astype(np.uint8))


def write_images(folder):
    draw = np.random.default_rng(2)
    kinds = {"png": {}, "jpg": {"quality": 90}, "webp": {"lossless": True}, "bmp": {}}
    for label, name in enumerate(["red", "green", "blue"]):
        for i in range(6):
            kind = ["png", "jpg", "png", "webp", "jpg", "bmp"][i]
            path = folder / "photos" / name / f"{i}.{kind}"
            path.parent.mkdir(parents=True, exist_ok=True)
            size = draw.integers(9, 15, 2)
            photograph(draw, label, *map(int, size)).save(path, **kinds[kind])
    for name in ("images", "masks"):
        (folder / "scenes" / name).mkdir(parents=True)
    colours = np.array([(40, 40, 40), (200, 60, 60), (60, 60, 200)])
    for i in range(8):
        height, width = map(int, draw.integers(10, 16, 2))
        mask = np.zeros((height, width), np.uint8)
        for label in (1, 2):
            y, x = draw.integers(0, height - 5), draw.integers(0, width - 5)
            mask[y : y + 5, x : x + 5] = label
        picture = colours[mask] + draw.integers(-3, 4, (height, width, 3)) * 10
        mask[0] = 9  # a row of pixels whose value the config ignores
        Image.fromarray(picture.astype(np.uint8)).save(folder / "scenes/images" / f"{i}.png")
        Image.fromarray(mask).save(folder / "scenes/masks" / f"{i}.png")


def write_arrays(folder):
    draw = np.random.default_rng(3)
    series = draw.normal(size=(40, 5, 3)).astype(np.float32)
    np.save(folder / "series.npy", series)
    np.save(folder / "series_targets.npy", np.stack([series.sum((1, 2)), series[:, -1, 0]], 1))
    texts = draw.integers(0, 20, (32, 7))
    np.save(folder / "texts.npy", texts.astype(np.int32))
    np.save(folder / "texts_labels.npy", (texts.sum(1) % 3).astype(np.int64))
    labels = draw.integers(0, 10, 32).astype(np.uint8)
    images = (draw.integers(0, 100, (32, 8, 8)) + 15 * labels[:, None, None]).astype(np.uint8)
    (folder / "images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, *images.shape) + images.tobytes())
    (folder / "labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, len(labels)) + labels.tobytes())
    samples = draw.integers(0, 256, (16, 1 + 3 * 32 * 32)).astype(np.uint8)
    samples[:, 0] %= 10
    (folder / "cifar.bin").write_bytes(samples.tobytes())


def write_story(folder):
    draw = np.random.default_rng(4)
    words = "the a of and to fox dog hen sees runs sleeps grüßt red old lazy".split()
    (folder / "story.txt").write_text("".join(f"{words[i]} " for i in draw.integers(0, len(words), 300)))


def write_models(folder):
    import torch
    from torch import nn

    import lockstep
    from small_unet import UNet

    class Texts(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(20, 6)
            self.head = nn.Linear(6, 3)

        def forward(self, tokens):
            return self.head(torch.tanh(self.words(tokens)).mean(1))

    torch.manual_seed(1)
    lockstep.export(UNet(3), torch.zeros(3, 3, 8, 8), folder / "unet.lsm")
    torch.jit.script(Texts()).save(folder / "texts.pt")


def make_data(program, folder):
    folder.mkdir()
    write_tables(folder)
    write_images(folder)
    write_arrays(folder)
    write_story(folder)
    write_models(folder)
    for words in older_runs.PREPARED.values():
        program("prepare", *words)


# ---- Runs ---------------------------------------------------------------------------------------


def events_of(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text().split("\n")[:-1]]


def strip(run, older):
    """Reduces a finished run to the state in which a kill after its middle would have left it."""
    (run / "weights.safetensors").unlink()
    (run / "lock").unlink()
    shutil.rmtree(run / "flight", ignore_errors=True)  # several ranks write half a megabyte each
    for path in (run / "checkpoints").iterdir():
        step = int(re.fullmatch(r"step-(\d+)", path.name)[1])
        if step > older.middle or (step < older.middle and not older.keeps_all):
            shutil.rmtree(path)
    kept = []
    for line in (run / "log.jsonl").read_text().splitlines(keepends=True):
        event = json.loads(line)
        if event.get("step", 0) > older.middle or event["event"] in ("done", "seconds"):
            break
        kept.append(line)
    (run / "log.jsonl").write_text("".join(kept))


def make_run(program, name, made_by):
    older = RUNS[name]
    folder = pathlib.Path(ORIGIN) / "runs" / name
    folder.mkdir(parents=True)
    config, run = folder / "train.pbtxt", folder / "run"
    config.write_text(older.config())
    (folder / "printed.pbtxt").write_text(program("config", config))
    folds = ["--folds", older.folds] if older.folds else []
    program("train", config, *folds, "--set", f"run_dir={run}", ranks=older.ranks)
    expected = {"made_by": made_by, "machine": older_runs.machine(), "losses": {}, "weights": {}}
    for part in older.parts():
        steps = [event for event in events_of(run / part) if event["event"] == "step"]
        expected["losses"][part] = {str(event["step"]): event["loss"] for event in steps}
        weights = run / part / "weights.safetensors"
        expected["weights"][part] = older_runs.digest_of(older_runs.tensors_of(weights))
        if older.weights:
            shutil.copy(weights, folder / f"weights{'' if part == '.' else '-' + part}.safetensors")
        if older.middle:
            strip(run / part, older)
    (run / "held_back.csv").unlink(missing_ok=True)
    expected["evaluate"] = json.loads(program("evaluate", run, "--json"))
    expected["runs"] = older_runs.listed(program("runs", run if older.folds else folder, "--json"))
    if older.predict:
        program("predict", run, *older.predict, "--output", folder / older.output)
    if not older.middle:
        shutil.rmtree(run)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def main(program, output, *names):
    program, output = Program(program), pathlib.Path(output)
    origin = pathlib.Path(ORIGIN)
    if origin.exists():
        sys.exit(f"{origin}: exists already; remove it, because the runs' configs name their data there")
    origin.mkdir()
    try:
        if (output / "data").exists():
            shutil.copytree(output / "data", origin / "data")
        else:
            make_data(program, origin / "data")
        made_by = program("version").splitlines()[0]
        for name in names or RUNS:
            if not (output / "runs" / name).exists():
                make_run(program, name, made_by)
        shutil.rmtree(origin / "cache", ignore_errors=True)
        shutil.copytree(origin, output, dirs_exist_ok=True)
    finally:
        shutil.rmtree(origin)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
