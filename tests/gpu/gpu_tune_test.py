"""Tests `lockstep tune` on a real GPU, also with a batch that does not fit in memory as one micro-batch."""

import json
import pathlib

import pytest

from harness import DONE, Run, events, nearly_full_gpu, needs_gpus, sets, write_config

PEERS = pathlib.Path(__file__).parent / "peers"


@pytest.fixture(autouse=True)
def gpu():
    needs_gpus(1)


def test_a_step_that_does_not_fit(tmp_path):
    """Checks that tune suggests the fastest usable setting if the batch does not fit in memory at once. Its logits
    alone would take 2048 x 256 tokens x 50304 classes x 4 bytes = 105 GB."""
    text = f"""global_batch: 2048 precision: BF16 run_dir: "{tmp_path}/runs/mine"
        data {{ format: SYNTHETIC input_shape: 256 classes: 50304 synthetic {{ kind: TOKENS samples: 8192 }} }}
        model {{ name: "gpt2" gpt2 {{ layers: 4 heads: 8 width: 512 }} }} optimizer {{ type: ADAMW }}"""
    run = Run(["tune", write_config(tmp_path, text), "--only", "batch", "--json", "--time", "100"], timeout=300)
    assert run.status == DONE, run
    lines = [json.loads(line) for line in run.out.split("\n")[:-1]]
    print(*lines, sep="\n")
    users, *ways = (line for line in lines if "step_ms" in line)
    assert users["does_not_fit"] == 1 and users["accumulation"] >= 2, users
    (found,) = (line for line in lines if "suggestion" in line)
    usable = [way for way in (users, *ways) if not way.get("leaves_too_little")]
    assert found["samples_per_s"] == max(way["samples_per_s"] for way in usable), lines
    assert any(way["activation_checkpointing"] for way in ways), lines
    # The peak must not include attempts that ran out of memory.
    assert users["peak_gib"] < 0.9 * users["device_gib"], users
    for way in (users, *ways):
        assert way["peak_gib"] > 0 and way["left_gib"] >= 0, way
        assert way["peak_gib"] + way["left_gib"] < way["device_gib"], way
        assert way.get("leaves_too_little", False) == (way["left_gib"] < 0.05 * way["device_gib"]), way
    text = (tmp_path / "config.tuned.pbtxt").read_text()
    assert f"accumulation: {found['suggestion']['accumulation']}" in text, text


def runs_out(folder, model, batch, steps=6):
    """Returns whether a training with micro-batches of `batch` samples fails, because memory runs out, or because
    cuDNN's LSTM does not support this many sequences."""
    settings = sets(
        f"global_batch={batch}",
        "precision=BF16",
        f"max_steps={steps}",
        "epochs=100000",
        f"data.synthetic.samples={max(batch, 4096)}",
        f"run_dir={folder}/run{batch}",
    )
    run = Run(["train", PEERS / f"{model}.pbtxt", *settings], timeout=500)
    return run.status != DONE or bool(events(folder / f"run{batch}", "out_of_memory"))


def largest(folder, model, reserve):
    config = write_config(folder, (PEERS / f"{model}.pbtxt").read_text())
    words = ["--only", "largest", "--json", "--reserve", str(reserve), "--time", "120"]
    settings = sets("precision=BF16", "data.synthetic.samples=131072", f"run_dir={folder}/mine")
    run = Run(["tune", config, *words, *settings], timeout=300)
    assert run.status == DONE, run
    *tried, found = (json.loads(line) for line in run.out.split("\n")[:-1])
    print(*tried, found, sep="\n")
    assert not found["out_of_time"]
    return found["largest_micro_batch"]


@pytest.mark.parametrize("model", ["gpt2", "resnet50", "vit_b_16", "lstm"])
def test_the_largest_micro_batch(model, tmp_path):
    """Checks that training works with the largest micro-batch that tune finds, and fails with one that is 3 %
    larger."""
    found = largest(tmp_path, model, reserve=0)
    assert not runs_out(tmp_path, model, found)
    assert runs_out(tmp_path, model, int(1.03 * found) + 1)


@pytest.mark.parametrize("model", ["gpt2", "resnet50", "vit_b_16", "lstm"])
def test_a_thousand_steps_with_the_usual_reserve(model, tmp_path):
    """Checks that 1000 steps run with the largest micro-batch if 5 % of the memory is left free. Another process holds
    all but 12 GiB of the GPU's memory, so that the micro-batch is small and a step is short."""
    with nearly_full_gpu(12 << 30):
        found = largest(tmp_path, model, reserve=0.05)
        assert not runs_out(tmp_path, model, found, steps=1000)
