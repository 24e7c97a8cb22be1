"""Compares the memory that Lockstep predicts with the memory that training takes on a GPU: the peak that a run predicts
at its start, and the largest micro-batch that fits according to `lockstep estimate`. Also tests micro_batch: AUTO."""

import json
import pathlib
import subprocess
import sys

import pytest

from harness import DONE, Run, command_of, events, nearly_full_gpu, needs_gpus, sets, wait_until

PEERS = pathlib.Path(__file__).parent / "peers"
CASES = [("gpt2", 16), ("gpt2", 64), ("resnet50", 64), ("resnet50", 256), ("vit_b_16", 128), ("lstm", 256)]


@pytest.fixture(autouse=True)
def gpu():
    needs_gpus(1)


def train_words(folder, name, batch, more=()):
    settings = sets(
        f"global_batch={batch}",
        "precision=BF16",
        "max_steps=6",
        "epochs=1000",
        f"data.synthetic.samples={max(batch, 4096)}",
        f"run_dir={folder}/run",
    )
    return ["train", PEERS / f"{name}.pbtxt", *settings, *more]


def train(folder, name, batch, more=(), **options):
    return Run(train_words(folder, name, batch, more), timeout=200, **options)


@pytest.mark.parametrize("name, batch", CASES)
def test_the_peak(name, batch, tmp_path):
    assert train(tmp_path, name, batch).status == DONE
    log = events(tmp_path / "run")
    (before,) = (line for line in log if line["event"] == "memory_foretold")
    first = next(line for line in log if line["event"] == "memory")
    print(name, batch, first["peak_bytes"] >> 20, before["peak_bytes"] >> 20, first["reserved_bytes"] >> 20)
    assert before["peak_bytes"] == pytest.approx(first["peak_bytes"], rel=0.05)
    assert first["foretold_bytes"] == before["peak_bytes"]
    assert 0 <= first["reserved_bytes"] - before["reserved_bytes"] < 200 << 20


NO_GRAPH = pytest.mark.xfail(reason="it trains, but memory is short while its step is captured as a graph", strict=True)


@pytest.mark.parametrize(
    "name, gib",
    [
        pytest.param(name, gib, marks=[NO_GRAPH] if (name, gib) == ("lstm", 10) else [])
        for name in ("gpt2", "resnet50", "vit_b_16", "lstm")
        for gib in (10, 16, 24, 40, 80)
    ],
)
def test_the_largest_that_fits(name, gib, tmp_path):
    """Checks that with the predicted micro-batch no step runs out of memory, not even the smaller last step of an
    epoch, and that steps run as a CUDA graph. With a micro-batch that is 10 % larger, memory must run out, or some step
    must fail to run as a graph."""
    _, total = gpu_bytes()
    share = gib * 2**30 / total
    if share > 1:
        pytest.skip(f"the GPU has less than {gib} GiB")
    limit = {"PYTORCH_CUDA_ALLOC_CONF": f"per_process_memory_fraction:{share:.6f}"}
    words = ["--memory", f"{gib}GiB", "--json", "--set", "precision=BF16"]
    line = json.loads(Run(["estimate", PEERS / f"{name}.pbtxt", *words]).out)
    batches = line["largest_micro_batch"], int(line["largest_micro_batch"] * 1.1) + 1
    short = []
    for batch in batches:
        folder = tmp_path / str(batch)
        folder.mkdir()
        assert train(folder, name, batch, env=limit).status == DONE
        log = events(folder / "run")
        short.append([line for line in log if line["event"] in ("out_of_memory", "no_graph")])
    print(name, gib, batches, short)
    assert not short[0] and short[1], short


def gpu_bytes():
    """Returns the free and the total bytes of the GPU's memory. A child process reads these numbers, so that this
    process takes no memory on the GPU."""
    program = "import torch; print(*torch.cuda.mem_get_info())"
    return map(int, subprocess.check_output([sys.executable, "-c", program], text=True).split())


def micro_batches(folder):
    return [(line["step"], line["accumulation"]) for line in events(folder / "run", "micro_batch")]


def test_auto_fits_what_there_is(tmp_path):
    """Checks that micro_batch: AUTO chooses more than one micro-batch, and that memory then does not run out, if the
    batch of 512 samples does not fit in the GPU's memory at once."""
    assert train(tmp_path, "gpt2", 512, more=["--set", "micro_batch=AUTO"]).status == DONE
    ((step, accumulation),) = micro_batches(tmp_path)
    assert step == 1 and accumulation > 1
    assert not events(tmp_path / "run", "out_of_memory")
    (foretold,) = events(tmp_path / "run", "memory_foretold")
    assert foretold["reserved_bytes"] < 0.95 * foretold["device_bytes"]


def test_auto_grows_when_there_is_room_again(tmp_path):
    settings = ["--set", "micro_batch=AUTO", "--set", "max_steps=800", "--set", "log.every_steps=1"]
    with nearly_full_gpu(12 << 30) as release:
        command = command_of(train_words(tmp_path, "lstm", 16384, settings))
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as run:
            wait_until(lambda: (tmp_path / "run" / "log.jsonl").exists() and step_of(tmp_path) > 10)
            release()
            assert run.wait() == DONE
    (first, cut), (later, whole) = micro_batches(tmp_path)
    assert first == 1 and cut > 1 and (later - 1) % 256 == 0 and whole == 1, (cut, later, whole)


def step_of(folder):
    return max((line["step"] for line in events(folder / "run", "step")), default=0)
