"""Compares trainings on several ranks with PyTorch's DistributedDataParallel. Also checks that a sharded optimizer
gives the same results as an optimizer that is not sharded."""

import json
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
from harness import (
    DEVICE,
    DIGITS,
    digits_data,
    faulty_model,
    path_of,
    save_init,
    skip_without_gpus,
    trained_losses,
    weight_bytes,
    weights_of,
    write_config,
)

FAULTY = path_of("FAULTY")
STEPS = 200
MLP = "model { mlp { hidden: [48, 32] } }"
NORM = f"model {{ {faulty_model(norm=1)} }}"
SGD = "optimizer { type: SGD lr: 0.05 momentum: 0.9 weight_decay: 0.0005 }"


def write_data(folder, samples=SAMPLES):
    rows = np.loadtxt(DIGITS, delimiter=",")[:samples]
    np.savetxt(folder / "train.csv", rows, fmt="%d", delimiter=",")


def write_weights(folder, model):
    torch.manual_seed(11)
    save_init(folder, ddp_reference.MODELS[model]().state_dict())


def losses_of(folder, run_dir, ranks, text, steps=STEPS):
    """Trains in the run folder `run_dir`, and returns the loss of each step."""
    skip_without_gpus(ranks)
    config = write_config(
        folder,
        f"""seed: {SEED} global_batch: {BATCH} epochs: 1000 max_steps: {steps}
        init_from: "init.safetensors" log {{ every_steps: 1 }}
        {digits_data(train="train.csv")} {text}""",
    )
    return trained_losses(config, run_dir, ranks=ranks, program=FAULTY)


@pytest.fixture(scope="module", params=["mlp", "norm"])
def ddp(request, tmp_path_factory):
    """Trains with DistributedDataParallel on two ranks. Returns (the model's name, the folder with its losses and
    weights)."""
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
@pytest.mark.all_tier(
    "buckets and buffers change the exchange of either model in the same way",
    unless=lambda ddp, more: (ddp, more[:9]) in (("norm", ""), ("mlp", "ddp { fir")),
)
def test_losses_and_weights_are_ddps(ddp, more, tmp_path):
    """Compares the losses and the final state with those of DistributedDataParallel. The state includes BatchNorm's
    running statistics, which both programs take from rank 0."""
    model, folder = ddp
    losses = losses_of(folder, tmp_path / "run", 2, f"{MLP if model == 'mlp' else NORM} {SGD} {more}")
    np.testing.assert_allclose(losses, json.loads((folder / "losses.json").read_text()), rtol=1e-5)
    expected = safetensors.torch.load_file(folder / "ddp.safetensors")
    torch.testing.assert_close(weights_of(tmp_path / "run"), expected, rtol=1e-3, atol=1e-4)


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
@pytest.mark.all_tier(
    "each way to exchange is sharded on one number of ranks already",
    unless=lambda ranks, text: ranks == (4 if "ADAM " in text else 3 if "clip" in text else 2),
)
def test_a_sharded_optimizer_changes_no_bit(ranks, text, tmp_path):
    """Checks that a sharded optimizer changes no bit of the losses and weights on the CPU, where a reduce-scatter gives
    the same bits as an all-reduce. NCCL may sum in another order, so on GPUs the losses need only be close."""
    write_data(tmp_path, 1437)  # the last batch cannot be divided evenly among the ranks
    write_weights(tmp_path, "mlp")
    whole = losses_of(tmp_path, tmp_path / "whole", ranks, f"{MLP} {text}")
    sharded_text = text.replace("optimizer {", "optimizer { shard: true")
    sharded = losses_of(tmp_path, tmp_path / "sharded", ranks, f"{MLP} {sharded_text}")
    if DEVICE == "CPU":
        assert sharded == whole
        assert weight_bytes(tmp_path / "sharded") == weight_bytes(tmp_path / "whole")
    else:
        np.testing.assert_allclose(sharded, whole, rtol=2e-2 if "BF16" in text else 1e-5)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("samples", [1400, 402], ids=["even", "ranks_without_samples"])
@pytest.mark.all_tier(
    "other numbers of ranks sum the same statistics",
    unless=lambda ranks, samples: (ranks, samples) in ((2, 1400), (4, 402)),
)
def test_synchronised_batch_norm_is_that_of_the_whole_batch(ranks, samples, tmp_path):
    """Compares synchronised BatchNorm with BatchNorm over the whole batch in one process. 402 samples in batches of 100
    leave two for the last step, so two of four ranks have none. Normalising two numbers divides by their difference,
    which enlarges rounding errors, so this case has a larger tolerance for the weights."""
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
    text = f"{NORM} {SGD} ddp {{ sync_batch_norm: true }}"
    losses = losses_of(tmp_path, tmp_path / "run", ranks, text, steps=50)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    tolerance = dict(rtol=1e-3, atol=1e-4) if samples % BATCH == 0 else dict(rtol=2e-2, atol=1e-3)
    torch.testing.assert_close(weights_of(tmp_path / "run"), dict(model.state_dict()), **tolerance)


@pytest.mark.all_tier("the case bf16_gradients of a sharded optimizer exchanges 16 bits on every commit")
def test_gradients_in_16_bits_train_as_well(tmp_path):
    write_data(tmp_path)
    write_weights(tmp_path, "mlp")
    exact = losses_of(tmp_path, tmp_path / "fp32", 2, f"{MLP} {SGD}")
    for dtype in "FP16", "BF16":
        losses = losses_of(tmp_path, tmp_path / dtype, 2, f"{MLP} {SGD} ddp {{ reduce_dtype: {dtype} }}")
        assert losses != exact
        assert abs(np.mean(losses[-20:]) - np.mean(exact[-20:])) < 0.02
