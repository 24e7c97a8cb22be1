"""Compares mixed precision and the handling of non-finite values with PyTorch: autocast, GradScaler, anomalies.

On GPUs the 16-bit curves are compared with PyTorch's on the same GPU, and on the CPU with PyTorch's on the CPU.
"""

import json
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sampler_reference
from harness import (
    DEVICE,
    DONE,
    USAGE,
    events,
    noisy_digits,
    save_init,
    skip_without_gpus,
    step_losses,
    train,
    weight_bytes,
    write_config,
)

SAMPLES, BATCH, STEPS, SEED = 640, 64, 200, 7
TORCH_DEVICE = DEVICE.lower()
GROWTH = 7


def pytorch(folder, precision, planted=(), steps=STEPS, growth=GROWTH):
    """Trains in PyTorch. Returns the losses, the loss scales and the skipped steps, and saves the initial weights to
    `folder`."""
    x, y = (tensor.to(TORCH_DEVICE) for tensor in noisy_digits(folder, SAMPLES, planted))
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    save_init(folder, model.state_dict())
    model.to(TORCH_DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    dtype = {"BF16": torch.bfloat16, "FP16": torch.float16}.get(precision)
    scaler = torch.amp.GradScaler(TORCH_DEVICE, enabled=precision == "FP16", growth_interval=growth)
    losses, scales, skipped = [], [], []
    for step in sampler_reference.steps(SAMPLES, BATCH, SEED, epochs=STEPS):
        with torch.autocast(TORCH_DEVICE, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            loss = F.cross_entropy(model(x[step]), y[step])
        scales.append(scaler.get_scale())
        losses.append(loss.item())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        finite = all(p.grad.isfinite().all() for p in model.parameters())
        if not finite:
            skipped.append(len(losses))
        if precision == "FP16":
            scaler.step(optimizer)
            scaler.update()
        elif finite:
            optimizer.step()
        if len(losses) == steps:
            break
    return np.array(losses), scales, skipped


def config_of(folder, precision, more="", steps=STEPS, optimizer="", growth=GROWTH):
    return write_config(
        folder,
        f"""seed: {SEED} global_batch: {BATCH} epochs: 1000 max_steps: {steps} init_from: "init.safetensors"
        precision: {precision} loss_scale {{ growth_interval: {growth} }} log {{ every_steps: 1 }}
        data {{ train: "train.csv" }} model {{ mlp {{ hidden: 48 }} }}
        optimizer {{ type: SGD lr: 0.1 momentum: 0.9 {optimizer} }} {more}""",
    )


@pytest.mark.parametrize("precision", ["BF16", "FP16"])
def test_the_curve_is_pytorchs(precision, tmp_path):
    # The loss scale does not grow here: at a larger scale, Lockstep's weight gradients on a GPU stay finite where
    # PyTorch's, rounded to float16, overflow.
    expected, _, skipped = pytorch(tmp_path, precision, growth=STEPS)
    assert not skipped
    run = train(config_of(tmp_path, precision, growth=STEPS), tmp_path / "run")
    assert run.status == DONE, run
    losses = np.array(step_losses(tmp_path / "run"), dtype=float)
    # The curves are averaged over windows of 20 steps and must agree within 1 %. Single losses are not compared:
    # rounding may change small ones by more.
    finite = np.isfinite(expected) & np.isfinite(losses)
    assert finite.mean() > 0.7
    windows = [slice(i, i + 20) for i in range(0, STEPS, 20)]
    for window in windows:
        ours, theirs = losses[window][finite[window]].mean(), expected[window][finite[window]].mean()
        assert ours == pytest.approx(theirs, rel=0.01, abs=2e-3)


def test_fp16_skips_the_steps_that_gradscaler_skips(tmp_path):
    expected, scales, skipped = pytorch(tmp_path, "FP16", planted=[3, 200, 555], steps=60)
    assert len(skipped) > 3
    run = train(config_of(tmp_path, "FP16", steps=60), tmp_path / "run")
    assert run.status == DONE, run
    steps = events(tmp_path / "run", "step")
    assert [s["loss_scale"] for s in steps] == scales
    counts = [s.get("skipped_steps", 0) for s in steps]
    assert [i + 1 for i in range(60) if counts[i] > (counts[i - 1] if i > 0 else 0)] == skipped


def planted_step(row):
    return next(i for i, step in enumerate(sampler_reference.steps(SAMPLES, BATCH, SEED, epochs=1), 1) if row in step)


@pytest.mark.parametrize("ranks,accumulation", [(1, 1), (2, 2)])
@pytest.mark.parametrize("clip", ["", "clip_norm: 1"])
@pytest.mark.parametrize("policy", ["STOP", "STOP_AND_SAVE"])
@pytest.mark.all_tier(
    "policies, clipping and ranks are tried in another combination",
    unless=lambda policy, clip, ranks: bool(clip) == (ranks == 2) == (policy == "STOP_AND_SAVE"),
)
def test_an_anomaly_stops_the_run_with_its_step(policy, clip, ranks, accumulation, tmp_path):
    skip_without_gpus(ranks)
    pytorch(tmp_path, "FP32", planted=[200], steps=1)
    more = f"anomaly {{ policy: {policy} }} accumulation: {accumulation}"
    run = train(config_of(tmp_path, "FP32", more, optimizer=clip), tmp_path / "run", ranks=ranks)
    assert run.status == USAGE and len(run.error_lines) == 1, run
    step = planted_step(200)
    assert f"error: step {step}: the loss is " in run.error_lines[0], run
    saved = tmp_path / "run" / "anomaly.json"
    assert saved.exists() == (policy == "STOP_AND_SAVE")
    if saved.exists():
        anomaly = json.loads(saved.read_text())
        samples = list(sampler_reference.steps(SAMPLES, BATCH, SEED, epochs=1))[step - 1]
        assert (anomaly["step"], anomaly["samples"]) == (step, samples)


def test_anomaly_detection_names_the_operation(tmp_path):
    pytorch(tmp_path, "FP32", planted=[200], steps=1)
    more = "debug { anomaly_detection: true launch_blocking: true }"
    run = train(config_of(tmp_path, "FP32", more), tmp_path / "run")
    # The stack of the forward comes before this line. On a GPU the loss is Lockstep's own operation, whose autograd
    # node has another name.
    named = r"debug.anomaly_detection: Function '(\w+Backward0|torch::autograd::CppNode<.*>)' returned nan values in its "
    assert run.status == USAGE and re.search(named, run.error_lines[-1]), run
    if DEVICE == "CUDA":
        assert events(tmp_path / "run", "no_graph")[0]["reason"] == "debug is set"


def test_an_anomaly_may_be_skipped(tmp_path):
    expected, _, skipped = pytorch(tmp_path, "FP32", planted=[200], steps=30)
    run = train(config_of(tmp_path, "FP32", "anomaly { policy: SKIP }", steps=30), tmp_path / "run")
    assert run.status == DONE, run
    losses = np.array(step_losses(tmp_path / "run"), dtype=float)
    fine = np.isfinite(expected)
    np.testing.assert_allclose(losses[fine], expected[fine], rtol=1e-5)
    assert events(tmp_path / "run", "step")[-1]["skipped_steps"] == len(skipped) == 3


def test_fp16_that_never_fits_ends_with_a_reason(tmp_path):
    pytorch(tmp_path, "FP16", planted=range(SAMPLES), steps=1)
    run = train(config_of(tmp_path, "FP16"), tmp_path / "run")
    assert run.status == USAGE and "the loss scale fell to" in run.error_lines[0], run


def test_a_precision_that_the_device_has_not(tmp_path):
    if DEVICE == "CUDA":
        pytest.skip("is the CPU's")
    pytorch(tmp_path, "FP32", steps=1)
    run = train(config_of(tmp_path, "TF32"), tmp_path / "run")
    assert run.status == USAGE and "precision TF32: a CPU has none" in run.error_lines[0], run


def test_deterministic_runs_give_the_same_bits(tmp_path):
    pytorch(tmp_path, "FP32", steps=1)
    for name in ("one", "two"):
        run = train(config_of(tmp_path, "BF16", "deterministic: true"), tmp_path / name)
        assert run.status == DONE, run
    assert weight_bytes(tmp_path / "one") == weight_bytes(tmp_path / "two")
