"""Runs that lose time to something that is planted, and what they say of it: the verdict names the cause, and its share
of the time is that by which the same run without it is faster. Healthy runs get no verdict."""

import functools
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from harness import (
    DIGITS,
    DONE,
    digits_data,
    events,
    faulty_data,
    faulty_model,
    train,
    write_config,
)
from network_hosts import Network, why_not

FAULTY = os.environ["FAULTY"]
FAULTS = {"LD_PRELOAD": os.environ["MACHINE_FAULTS_SO"]}
POINTS = 0.05  # that a share may be off
STEPS = 300
COMPUTE_US = 6000  # of a step


def config(data, model, *more, batch=64, steps=STEPS, validation=0):
    return f"""global_batch: {batch} max_steps: {steps} epochs: 100000 log {{ every_steps: 50 }}
        optimizer {{ type: SGD lr: 0.0001 }} data {{ {data} validation_fraction: {validation} }}
        model {{ {model} }} {" ".join(more)}"""


def own_data(**options):
    return f'format: OWN train: "{DIGITS}" own {{ {faulty_model(**options)} }}'


DIGITS_DATA = f'train: "{DIGITS}" csv {{ scale: 0.0625 }}'
MODEL = faulty_model(sleep_us=COMPUTE_US, rank=-1)


class Plant:
    """A cause of one severity: the run with it, and the same without."""

    def __init__(self, cause, planted, clean, ranks=None, env=None, remedy="", launcher=(), words=()):
        self.cause, self.planted, self.clean = cause, planted, clean
        self.ranks, self.env, self.remedy, self.launcher, self.words = ranks, env, remedy, launcher, words


def sleeping_data(severity):
    """A data set whose samples take their time to come."""
    sleep_us = [60, 150, 300][severity]
    return Plant(
        "reading",
        config(own_data(sleep_us=sleep_us), MODEL, "loader { threads: 1 }"),
        config(own_data(), MODEL, "loader { threads: 1 }"),
        remedy="loader.threads: 1 ->",
    )


def slow_disk(severity, images):
    """Image files on a disk that takes its time to open each."""
    open_us = [400, 1000, 2500][severity]
    model = 'name: "mlp" mlp { hidden: 512 }'
    text = config(f'format: IMAGES train: "{images}" images {{ size: 32 }}', model, "loader { threads: 1 }", batch=16)
    return Plant("reading", text, text, env={**FAULTS, "OPEN_END": ".jpg", "OPEN_US": str(open_us)})


def one_loader_thread(severity):
    """Samples that take a core longer than the step takes."""
    busy_us = [130, 200, 400][severity]
    return Plant(
        "decoding",
        config(own_data(busy_us=busy_us), MODEL, "loader { threads: 1 }"),
        config(own_data(), MODEL, "loader { threads: 1 }"),
    )


def no_loader_thread(severity):
    """The thread that trains reads the samples, too."""
    busy_us = [20, 60, 200][severity]
    return Plant(
        "decoding",
        config(own_data(busy_us=busy_us), MODEL, "loader { threads: 0 }"),
        config(own_data(), MODEL, "loader { threads: 0 }"),
        remedy="loader.threads: 1",
    )


def heavy_augmentation(severity, images):
    """Pixels that the thread that trains changes."""
    augment = ["brightness: 0.4", "brightness: 0.4 contrast: 0.4 saturation: 0.4", "brightness: 0.4 hue: 0.5"][severity]
    model = 'name: "mlp" mlp { hidden: 64 }'
    data = f'format: IMAGES train: "{images}" images {{ size: 32 }}'
    return Plant(
        "decoding",
        config(f"{data} augment {{ {augment} }}", model, batch=64),
        config(data, model, batch=64),
        remedy="data.augment",
    )


def slow_rank(severity):
    """One of two ranks computes longer."""
    sleep_us = [2000, 5000, 12000][severity]
    return Plant(
        "slow_rank",
        config(DIGITS_DATA, faulty_model(sleep_us=sleep_us, rank=1), "accumulation: 1"),
        config(DIGITS_DATA, faulty_model(), "accumulation: 1"),
        ranks=2,
        remedy="rank 1",
    )


def small_buckets(severity):
    """Gradients that are exchanged in many small pieces."""
    bucket_bytes = [16384, 4096, 1024][severity]
    model = 'name: "mlp" mlp { hidden: [64, 64, 64, 64, 64, 64, 64, 64, 64, 64] }'
    return Plant(
        "communication",
        config(DIGITS_DATA, model, f"ddp {{ bucket_bytes: {bucket_bytes} first_bucket_bytes: {bucket_bytes} }}", steps=3000),
        config(DIGITS_DATA, model, steps=3000),
        ranks=2,
        remedy="ddp.bucket_bytes",
    )


def slow_saving(severity):
    """Checkpoints of each epoch, which the next one waits for, on a disk that takes its time."""
    sync_ms = [2, 6, 20][severity]
    saving = 'checkpoint { keep_best: "loss" }'
    # Of 512 samples an epoch.
    text = config(DIGITS_DATA, MODEL, batch=512, steps=150, validation=0.1)
    return Plant("checkpoints", text + saving, text, env={**FAULTS, "SYNC_MS": str(sync_ms)})


def frequent_evaluation(severity):
    """Epochs of few steps."""
    batch = [512, 1024, 1437][severity]
    slow = faulty_model(sleep_us=COMPUTE_US, rank=-1)
    return Plant(
        "evaluation",
        config(DIGITS_DATA, slow, batch=batch, steps=600, validation=0.5),
        config(DIGITS_DATA, slow, batch=batch, steps=600),
        remedy="data.validation_fraction",
    )


def more_ranks_than_cores(severity):
    """Ranks that compute all the time and share cores."""
    cores = len(os.sched_getaffinity(0))
    ranks = cores * [2, 3, 4][severity]
    model = 'name: "mlp" mlp { hidden: [512, 512] }'
    return Plant(
        "cores",
        config(DIGITS_DATA, model, batch=64 * ranks, steps=200),
        config(DIGITS_DATA, model, batch=64 * cores, steps=200),
        ranks=(ranks, cores),
        remedy=f"{ranks} ranks share {cores} cores: start {cores} (-n {cores})",
    )


PLANTS = {
    plant.__name__: plant
    for plant in (
        sleeping_data,
        slow_disk,
        one_loader_thread,
        no_loader_thread,
        heavy_augmentation,
        slow_rank,
        small_buckets,
        slow_saving,
        frequent_evaluation,
        more_ranks_than_cores,
    )
}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder of photographs of noise."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(1)
    for number in range(256):
        (folder / f"class{number % 2}").mkdir(exist_ok=True)
        pixels = random.integers(0, 255, (48, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"class{number % 2}" / f"{number}.jpg")
    return folder


def seconds_of(folder, text, ranks, env, launcher=(), words=()):
    """The account of a run."""
    folder.mkdir()
    run = train(write_config(folder, text), folder / "run", *words, ranks=ranks, env=env, program=FAULTY, launcher=launcher)
    assert run.status == DONE, run
    return events(folder / "run", "seconds")


def check(folder, plant):
    ranks = plant.ranks if isinstance(plant.ranks, tuple) else (plant.ranks, plant.ranks)
    planted = seconds_of(folder / "planted", plant.planted, ranks[0], plant.env, plant.launcher, plant.words)
    clean = seconds_of(folder / "clean", plant.clean, ranks[1], None, plant.launcher, plant.words)[-1]
    last = planted[-1]

    def step(report, seconds):
        return seconds / report["steps"]

    first = next(report for report in planted if report["verdict"])
    shares = {cause: lost / last["wall_s"] for cause, lost in last["lost_s"].items()}
    expected = 1 - step(clean, clean["wall_s"]) / step(last, last["wall_s"])
    before = step(clean, clean["lost_s"][plant.cause]) / step(last, last["wall_s"])
    print(plant.cause, f"planted {expected:.3f} found {shares[plant.cause] - before:.3f}", first["verdict"], first["remedy"])
    assert max(first["lost_s"], key=lambda cause: first["lost_s"][cause]) == plant.cause, (first, clean)
    assert abs(shares[plant.cause] - before - expected) < POINTS, (expected, before, last, clean)
    assert plant.remedy in first["remedy"], first
    assert abs(last["ideal_s"] + sum(last["lost_s"].values()) - last["wall_s"]) < 0.02 * last["wall_s"]


@pytest.mark.parametrize("severity", range(3))
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_loss_is_named(tmp_path, request, name, severity):
    make = PLANTS[name]
    needs_images = "images" in make.__code__.co_varnames[: make.__code__.co_argcount]
    check(tmp_path, make(severity, request.getfixturevalue("images")) if needs_images else make(severity))
