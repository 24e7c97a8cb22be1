"""Plants causes of lost time in runs: the verdict must name the cause. In `--all`, on a machine with nothing else to
do, the reported share of the run's time must be the share by which the same run is faster without the cause, and
healthy runs must get no verdict."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from harness import DONE, Run, events, faulty_model, path_of, write_config
from network_hosts import Network, why_not
from planted_loss import (
    COMPUTE_US,
    DIGITS_DATA,
    FAULTY,
    MODEL,
    POINTS,
    Plant,
    accounts,
    config,
    expect_right,
    mistakes,
    own_data,
    wrong_name,
)

FAULTS = {"LD_PRELOAD": path_of("MACHINE_FAULTS_SO")}
CORES = len(os.sched_getaffinity(0))
ONE_CORE = ("taskset", "-c", str(min(os.sched_getaffinity(0))))


def sleeping_data(severity, images):
    """Plants a data set in which each read sleeps."""
    loader = "loader { threads: 1 }"
    return Plant(
        "reading",
        config(own_data(sleep_us=[500, 900, 1500][severity]), MODEL, loader, batch=16),
        config(own_data(), MODEL, loader, batch=16),
        remedy="loader.threads: 1 ->",
    )


def slow_disk(severity, images):
    """Plants a disk that opens each image file slowly."""
    data = f'format: IMAGES train: "{images}" images {{ size: 32 }}'
    text = config(data, MODEL, "loader { threads: 1 }", batch=16)
    env = {**FAULTS, "OPEN_END": ".jpg", "OPEN_US": str([400, 800, 1600][severity])}
    return Plant("reading", text, text, remedy="loader.threads: 1 ->", env=env)


def one_loader_thread(severity, images):
    """Plants samples that the only loader thread prepares more slowly than the steps use them."""
    loader = "loader { threads: 1 }"
    return Plant(
        "decoding",
        config(own_data(busy_us=[130, 200, 400][severity]), MODEL, loader),
        config(own_data(), MODEL, loader),
        remedy="loader.threads: 1 -> 2" if CORES > 1 else "lockstep prepare",
    )


def no_loader_thread(severity, images):
    """Plants samples that take time to decode in a run without loader threads, whose training thread reads the samples.
    """
    loader = "loader { threads: 0 }"
    return Plant(
        "decoding",
        config(own_data(busy_us=[20, 60, 200][severity]), MODEL, loader),
        config(own_data(), MODEL, loader),
        remedy="loader.threads: 1",
    )


def heavy_augmentation(severity, images):
    """Plants an augmentation of the pixels, which the training thread computes."""
    augment = ["brightness: 0.4 contrast: 0.4", "brightness: 0.4 contrast: 0.4 saturation: 0.4", "hue: 0.5"][severity]
    data = f'format: IMAGES train: "{images}" images {{ size: 48 }}'
    return Plant(
        "decoding",
        config(f"{data} augment {{ {augment} }}", MODEL, batch=32),
        config(data, MODEL, batch=32),
        remedy="data.augment",
    )


def slow_rank(severity, images):
    """Plants a slow rank: rank 1 of two takes 2, 5 or 12 ms longer in each step."""
    return Plant(
        "slow_rank",
        config(DIGITS_DATA, faulty_model(base_us=COMPUTE_US, sleep_us=[2000, 5000, 12000][severity], rank=1)),
        config(DIGITS_DATA, MODEL),
        remedy="rank 1",
        ranks=2,
    )


class OnNetwork(Plant):
    """Runs on two simulated machines, whose messages take `planted_s` seconds longer in the planted run, and `clean_s`
    seconds longer in the clean run."""

    def __init__(self, planted, clean, remedy, planted_s, clean_s):
        super().__init__("communication", planted, clean, remedy, ranks=2)
        self.planted_s, self.clean_s = planted_s, clean_s

    def on_network(self, folder, text, delay_s):
        folder.mkdir()
        with Network(folder, ["a", "b"]) as network:
            options = {"ranks": 2, "launcher": network["a"].enter, "words": ["--hosts", "a,b"]}
            root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            options["env"] = {"OMPI_MCA_plm_rsh_agent": str(network.agent), "OMPI_MCA_mpi_yield_when_idle": "1", **root}
            if delay_s > 0:
                network.slow("b", delay_s)
            return accounts(folder / "run", text, **options)

    def run_with(self, folder):
        return self.on_network(folder / "planted", self.planted, self.planted_s)

    def run_without(self, folder):
        return self.on_network(folder / "clean", self.clean, self.clean_s)


def small_buckets(severity, images):
    """Plants small gradient buckets: many are exchanged, and each crosses a network."""
    size = [8192, 4096, 2048][severity]
    model = f'name: "mlp" mlp {{ hidden: [{", ".join(["32"] * 20)}] }}'
    buckets = f"ddp {{ bucket_bytes: {size} first_bucket_bytes: {size} }}"
    return OnNetwork(
        config(DIGITS_DATA, model, buckets, steps=200),
        config(DIGITS_DATA, model, steps=200),
        remedy=f"ddp.bucket_bytes: {size} -> 26214400",
        planted_s=0.001,
        clean_s=0.001,
    )


def slow_network(severity, images):
    """Plants a network on which messages between the machines take longer."""
    text = config(DIGITS_DATA, MODEL, steps=300)
    return OnNetwork(text, text, remedy="global_batch", planted_s=[0.001, 0.003, 0.008][severity], clean_s=0)


def slow_saving(severity, images):
    """Plants a checkpoint after each epoch on a disk that syncs slowly. Each checkpoint waits until the one before is
    written."""
    text = config(DIGITS_DATA, MODEL, batch=512, steps=400, validation=0.1)
    env = {**FAULTS, "SYNC_MS": str([4, 6, 12][severity])}
    return Plant("checkpoints", text + 'checkpoint { keep_best: "loss" }', text, "checkpoint.keep_best", env=env)


def frequent_evaluation(severity, images):
    """Plants evaluations after epochs of few steps."""
    batch = [512, 1024, 1437][severity]
    return Plant(
        "evaluation",
        config(DIGITS_DATA, MODEL, batch=batch, validation=0.5),
        config(DIGITS_DATA, MODEL, batch=batch),
        remedy="data.validation_fraction: 0.5 ->",
    )


def more_ranks_than_cores(severity, images):
    """Plants more ranks than there are cores; all ranks compute all the time."""
    ranks = CORES * [2, 3, 4][severity]
    model = 'name: "mlp" mlp { hidden: [512, 512] }'
    return Plant(
        "cores",
        config(DIGITS_DATA, model, batch=64 * ranks, steps=1200),
        config(DIGITS_DATA, model, batch=64 * CORES, steps=1200),
        remedy=f"{ranks} ranks share {CORES} cores: start {CORES} (-n {CORES})",
        ranks=ranks,
        clean_ranks=CORES,
        also=("communication",),
        points=0.08,  # ranks that share a core also share its caches, and so compute longer
    )


class BusyNeighbours(Plant):
    """Plants `count` other processes that use the cores on which the run trains. `launcher` chooses the cores of both.
    """

    def __init__(self, count, steps, launcher, **options):
        model = 'name: "mlp" mlp { hidden: [512, 512] }'
        text = config(DIGITS_DATA, model, "loader { threads: 0 }", steps=steps)
        super().__init__("cores", text, text, remedy="other processes use this machine's cores", launcher=launcher, **options)
        self.count = count

    @contextlib.contextmanager
    def around(self):
        neighbours = [
            subprocess.Popen([*self.launcher, sys.executable, "-c", "while True: pass"]) for _ in range(self.count)
        ]
        try:
            yield
        finally:
            for neighbour in neighbours:
                neighbour.kill()
                neighbour.wait()


def busy_neighbours(severity, images):
    return BusyNeighbours(severity + 1, 2000, ONE_CORE)


def busy_neighbours_of_ranks(severity, images):
    """Plants other processes on all cores. While one rank has no core, the other rank waits for it."""
    # The threads of the ranks share the cores also without neighbours, so the shares of the two runs differ more.
    return BusyNeighbours(CORES + severity, 40, (), ranks=2, points=0.12)


PLANTS = [
    sleeping_data,
    slow_disk,
    one_loader_thread,
    no_loader_thread,
    heavy_augmentation,
    slow_rank,
    small_buckets,
    slow_network,
    slow_saving,
    frequent_evaluation,
    more_ranks_than_cores,
    busy_neighbours,
    busy_neighbours_of_ranks,
]
SEVERITIES = range(3)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Returns a folder with 256 JPEG images of noise in two classes."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(1)
    for number in range(256):
        (folder / f"class{number % 2}").mkdir(exist_ok=True)
        pixels = random.integers(0, 255, (48, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"class{number % 2}" / f"{number}.jpg")
    return folder


def skip_without_network(plant):
    if isinstance(plant, OnNetwork) and why_not():
        pytest.skip(why_not())


# The losses that are named on a busy machine, too.
IN_COMMITS = [
    sleeping_data,
    slow_disk,
    heavy_augmentation,
    slow_rank,
    slow_network,
    slow_saving,
    frequent_evaluation,
]


@pytest.mark.all_tier(
    "which loss is the largest depends on time, and needs a machine with nothing else to do",
    unless=lambda make: make in IN_COMMITS,
)
@pytest.mark.parametrize("make", PLANTS, ids=lambda make: make.__name__)
def test_a_planted_loss_is_named(tmp_path, images, make):
    plant = make(1, images)
    skip_without_network(plant)
    expect_right(lambda folder: wrong_name(plant, plant.run_with(folder)), tmp_path)


@pytest.mark.all_tier("how large a share is depends on time, and needs a machine with nothing else to do")
@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("make", PLANTS, ids=lambda make: make.__name__)
def test_its_share_is_what_the_run_without_it_saves(tmp_path, images, make, severity):
    plant = make(severity, images)
    skip_without_network(plant)
    expect_right(lambda folder: mistakes(plant, folder), tmp_path)


@pytest.mark.all_tier(
    "memory that grows slower or faster is named by the same rule",
    unless=lambda severity: severity == 1,
)
@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize(
    "leak,words",
    [("leak_kb", "not in tensors of its steps"), ("leak_tensor_kb", "in tensors that the forward pass of linear allocates")],
    ids=["bytes", "tensors"],
)
def test_memory_that_grows_is_named(tmp_path, leak, words, severity):
    leak_kb = [512, 1024, 4096][severity]
    model = faulty_model(base_us=COMPUTE_US, rank=-1, **{leak: leak_kb})
    reports = accounts(tmp_path / "leaks", config(DIGITS_DATA, model, "observe { readings_every_s: 0.05 }"))
    first = next(report for report in reports if report["findings"])
    finding = first["findings"][0]
    assert finding["rule"] == "memory_grows", first
    found = float(finding["words"].split("grows by ")[1].split(" MiB")[0])
    assert abs(found / (leak_kb / 1024) - 1) < POINTS, finding
    assert words in finding["words"], finding
    assert ("free it" if leak == "leak_kb" else "keep no tensor") in finding["remedy"]


@pytest.mark.all_tier("what a restart takes depends on time, and needs a machine with nothing else to do")
@pytest.mark.parametrize("severity", SEVERITIES)
def test_what_a_restart_takes_is_named(tmp_path, severity):
    """Checks that the account has the time that a restart takes: the time for starting, and the time for repeating the
    steps after the last checkpoint."""
    at = [205, 230, 249][severity]
    saving = "checkpoint { every_steps: 50 }"

    def attempt(folder):
        runs = {}
        for name, options in (("clean", {}), ("planted", {"fault": 2, "at": at, "rank": 0})):
            (folder / name).mkdir()
            text = config(DIGITS_DATA, faulty_model(base_us=COMPUTE_US, **options), saving, steps=400)
            words = ["train", write_config(folder / name, text), "--set", f"run_dir={folder / name / 'run'}"]
            runs[name] = Run([*words, "--restarts", "1"], ranks=1, program=FAULTY)
            assert runs[name].status == DONE, runs[name]
        last = events(folder / "planted" / "run", "seconds")[-1]
        wanted = (runs["planted"].seconds - runs["clean"].seconds) / last["wall_s"]
        found = last["lost_s"]["restarts"] / last["wall_s"]
        text = f"restarts: planted {wanted:.3f}, found {found:.3f}: {last['verdict']}"
        print(text)
        is_right = "restarts" in last["verdict"] and abs(found - wanted) < POINTS
        return "" if is_right else f"{text}: {last}"

    expect_right(attempt, tmp_path)


MLP = 'name: "mlp" mlp { hidden: [256] }'
HEALTHY = {
    "digits": (config(DIGITS_DATA, MLP, steps=4000), 1),
    "digits_two_ranks": (config(DIGITS_DATA, MLP, batch=512, steps=2000), 2),
    "small_batch": (config(DIGITS_DATA, MLP, batch=16, steps=6000), 1),
    "one_thread": (config(DIGITS_DATA, MLP, "loader { threads: 1 }", batch=128, steps=3000), 1),
    "deep": (config(DIGITS_DATA, f'name: "mlp" mlp {{ hidden: [{", ".join(["128"] * 12)}] }}', steps=1500), 1),
    "dropout": (config(DIGITS_DATA, 'name: "mlp" mlp { hidden: [256] dropout: 0.2 }', steps=4000), 1),
    "accumulation": (config(DIGITS_DATA, MLP, "accumulation: 4", batch=256, steps=2000), 1),
    "own_data": (config(own_data(), MODEL), 1),
    "own_data_two_ranks": (config(own_data(), MODEL), 2),
    "validation": (config(DIGITS_DATA, MODEL, batch=16, validation=0.1), 1),
}


@pytest.mark.all_tier("no verdict comes only on a machine that has nothing else to do")
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_gets_no_verdict(tmp_path, name):
    text, ranks = HEALTHY[name]

    def attempt(folder):
        reports = accounts(folder / "run", text, ranks=None if ranks == 1 else ranks)
        assert reports[-1]["steps"] > 0
        # A busy machine may cause other findings, but the memory of this run does not grow on any machine.
        grows = [finding for report in reports for finding in report["findings"] if "memory_grows" in finding["rule"]]
        assert not grows, grows
        said = [report for report in reports if report["verdict"] or report["findings"]]
        return "\n".join(map(str, said))

    expect_right(attempt, tmp_path)
