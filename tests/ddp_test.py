"""What several ranks make of a training: against PyTorch's DistributedDataParallel as it is, and sharded against not."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import ddp_reference
import sampler_reference
from ddp_reference import BATCH, SAMPLES, SEED
from harness import DEVICE, DIGITS, DONE, Run, events, skip_without_gpus, write_config

FAULTY = os.path.abspath(os.environ["FAULTY"])
STEPS = 200
MLP = "model { mlp { hidden: [48, 32] } }"
NORM = 'model { name: "faulty" option { key: "norm" value: "1" } }'
SGD = "optimizer { type: SGD lr: 0.05 momentum: 0.9 weight_decay: 0.0005 }"


def write_data(folder, samples=SAMPLES):
    rows = np.loadtxt(DIGITS, delimiter=",")[:samples]
    np.savetxt(folder / "train.csv", rows, fmt="%d", delimiter=",")


def write_weights(folder, model):
    torch.manual_seed(11)
    weights = ddp_reference.MODELS[model]().state_dict()
    safetensors.torch.save_file(weights, folder / "init.safetensors")


def train(folder, run_dir, ranks, text, steps=STEPS):
    """The loss of every step and the final weights."""
    skip_without_gpus(ranks)
    config = write_config(
        folder,
        f"""run_dir: "{run_dir}" seed: {SEED} global_batch: {BATCH} epochs: 1000 max_steps: {steps}
        init_from: "init.safetensors" log {{ every_steps: 1 }}
        data {{ train: "train.csv" csv {{ scale: 0.0625 }} }}
        {text}""",
    )
    run = Run(["train", config], ranks=ranks, program=FAULTY)
    assert run.status == DONE, run
    return [s["loss"] for s in events(run_dir, "step")], run_dir / "weights.safetensors"


@pytest.fixture(scope="module", params=["mlp", "norm"])
def ddp(request, tmp_path_factory):
    """(model, folder with DDP's losses and weights) of two ranks."""
    folder = tmp_path_factory.mktemp("ddp")
    write_data(folder)
    write_weights(folder, request.param)
    ranks = [
        subprocess.Popen([sys.executable, ddp_reference.__file__, str(rank), "2", str(folder), request.param, str(STEPS)])
        for rank in range(2)
    ]
    assert [rank.wait(timeout=300) for rank in ranks] == [0, 0]
    return request.param, folder


@pytest.mark.parametrize("more", ["", "ddp { broadcast_buffers: true }", "ddp { first_bucket_bytes: 1000 bucket_bytes: 5000 }"])
@pytest.mark.all_tier(unless=lambda ddp, more: (ddp, more[:9]) in (("norm", ""), ("mlp", "ddp { fir")))
def test_losses_and_weights_are_ddps(ddp, more, tmp_path):
    """BatchNorm's statistics too, which are rank 0's there as here."""
    model, folder = ddp
    losses, weights = train(folder, tmp_path / "run", 2, f"{MLP if model == 'mlp' else NORM} {SGD} {more}")
    np.testing.assert_allclose(losses, json.loads((folder / "losses.json").read_text()), rtol=1e-5)
    expected, trained = (safetensors.torch.load_file(f) for f in (folder / "ddp.safetensors", weights))
    assert sorted(trained) == sorted(expected)
    for name, tensor in expected.items():
        torch.testing.assert_close(trained[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize(
    "text",
    [
        SGD,
        "optimizer { type: ADAMW lr: 0.002 weight_decay: 0.01 clip_norm: 0.5 } accumulation: 2",
        "optimizer { type: ADAM lr: 0.002 } ddp { first_bucket_bytes: 1000 bucket_bytes: 5000 }",
        "optimizer { type: ADAMW lr: 0.002 } ddp { reduce_dtype: BF16 }",
    ],
    ids=["sgd", "adamw_clip_accumulation", "adam_small_buckets", "bf16_gradients"],
)
@pytest.mark.all_tier(unless=lambda ranks, text: ranks == (4 if "ADAM " in text else 3 if "clip" in text else 2))
def test_a_sharded_optimizer_changes_no_bit(ranks, text, tmp_path):
    """On the CPU, where a reduce-scatter has the bits of an all-reduce; NCCL may add up in another order."""
    write_data(tmp_path, 1437)  # the last batch does not divide
    write_weights(tmp_path, "mlp")
    whole, whole_weights = train(tmp_path, tmp_path / "whole", ranks, f"{MLP} {text}")
    sharded, sharded_weights = train(tmp_path, tmp_path / "sharded", ranks, f"{MLP} {text.replace('optimizer {', 'optimizer { shard: true')}")
    if DEVICE == "CPU":
        assert sharded == whole
        assert sharded_weights.read_bytes() == whole_weights.read_bytes()
    else:
        np.testing.assert_allclose(sharded, whole, rtol=2e-2 if "BF16" in text else 1e-5)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("samples", [1400, 402], ids=["even", "ranks_without_samples"])
@pytest.mark.all_tier(unless=lambda ranks, samples: (ranks, samples) in ((2, 1400), (4, 402)))
def test_synchronised_batch_norm_is_that_of_the_whole_batch(ranks, samples, tmp_path):
    """402 samples in batches of 100 leave two for the last step: of four ranks two have none. To normalise two numbers
    is to divide by their difference, so rounding shows more in the weights."""
    write_data(tmp_path, samples)
    write_weights(tmp_path, "norm")
    x, y = ddp_reference.read(tmp_path)
    model = ddp_reference.WithNorm()
    model.load_state_dict(safetensors.torch.load_file(tmp_path / "init.safetensors"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.0005)
    expected = []
    for step in sampler_reference.steps(samples, BATCH, SEED, epochs=1000):
        loss = nn.functional.cross_entropy(model(x[step]), y[step])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
        if len(expected) == 50:
            break
    losses, weights = train(tmp_path, tmp_path / "run", ranks, f"{NORM} {SGD} ddp {{ sync_batch_norm: true }}", steps=50)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    trained = safetensors.torch.load_file(weights)
    tolerance = dict(rtol=1e-3, atol=1e-4) if samples % BATCH == 0 else dict(rtol=2e-2, atol=1e-3)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(trained[name], tensor, **tolerance)


@pytest.mark.all_tier
def test_gradients_in_16_bits_train_as_well(tmp_path):
    write_data(tmp_path)
    write_weights(tmp_path, "mlp")
    exact, _ = train(tmp_path, tmp_path / "fp32", 2, f"{MLP} {SGD}")
    for dtype in "FP16", "BF16":
        losses, _ = train(tmp_path, tmp_path / dtype, 2, f"{MLP} {SGD} ddp {{ reduce_dtype: {dtype} }}")
        assert losses != exact
        assert abs(np.mean(losses[-20:]) - np.mean(exact[-20:])) < 0.02
