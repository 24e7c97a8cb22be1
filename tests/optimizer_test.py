"""Compares optimizers, schedules and their options with PyTorch, on one net; each option has a case of its own.

From the same weights and the same sample order, every step's loss and learning rate must be PyTorch's (1e-5 relative,
fp32). LAMB and LARS, which torch.optim lacks, are implemented here from their papers.
"""


import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler, swa_utils

import sampler_reference
import tabm_reference
from harness import (
    DEVICE,
    DONE,
    digits_data,
    events,
    faulty_model,
    noisy_digits,
    path_of,
    save_init,
    sets,
    skip_without_gpus,
    train,
    weights_of,
    write_config,
)

SAMPLES, BATCH, STEPS, SEED = 640, 64, 60, 7
FAULTY = path_of("FAULTY")


class Lamb(torch.optim.Optimizer):
    """Implements LAMB: You et al. 2020, algorithm 2."""

    def __init__(self, parameters, lr, weight_decay):
        super().__init__(parameters, dict(lr=lr, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                state = self.state[w]
                t = state["t"] = state.get("t", 0) + 1
                m = state["m"] = 0.9 * state.get("m", 0) + 0.1 * w.grad
                v = state["v"] = 0.999 * state.get("v", 0) + 0.001 * w.grad**2
                u = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8) + group["weight_decay"] * w
                adapts = group.get("adapts", True) and w.norm() > 0 and u.norm() > 0
                ratio = w.norm() / u.norm() if adapts else 1
                w -= group["lr"] * ratio * u


class Lars(torch.optim.Optimizer):
    """Implements LARS: You et al. 2017, algorithm 1."""

    def __init__(self, parameters, lr, weight_decay):
        super().__init__(parameters, dict(lr=lr, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            decay = group["weight_decay"]
            for w in group["params"]:
                if w.grad is None:
                    continue
                below = w.grad.norm() + decay * w.norm()
                ratio = 0.02 * w.norm() / below if w.norm() > 0 and below > 0 else 1
                state = self.state[w]
                v = state["v"] = 0.9 * state.get("v", 0) + group["lr"] * ratio * (w.grad + decay * w)
                w -= v


def vectors_apart(model):
    parameters = list(model.parameters())
    return [
        dict(params=[p for p in parameters if p.dim() > 1], weight_decay=0.3),
        dict(params=[p for p in parameters if p.dim() <= 1], weight_decay=0.0),
    ]


def sgd(model, lr=0.1):
    return torch.optim.SGD(model.parameters(), lr=lr)


def one_cycle(optimizer):
    return lr_scheduler.OneCycleLR(optimizer, 0.1, STEPS, pct_start=10 / STEPS, div_factor=25, final_div_factor=1 / 25 / 0.01, cycle_momentum=False)


def range_test(optimizer):
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * 1e-4
    return lr_scheduler.ExponentialLR(optimizer, 1e4 ** (1 / (STEPS - 1)))


# Maps a name to (the text of the config's optimizer and schedule, PyTorch's optimizer, PyTorch's schedule, further
# options of the case).
SGD = "optimizer { type: SGD lr: 0.1 }"
CASES = {
    "lamb": ("optimizer { type: LAMB lr: 0.02 weight_decay: 0.1 }", lambda m: Lamb(m.parameters(), 0.02, 0.1), None, {}),
    "lars": ("optimizer { type: LARS lr: 0.5 momentum: 0.9 weight_decay: 0.1 trust: 0.02 }", lambda m: Lars(m.parameters(), 0.5, 0.1), None, {}),
    "no_decay": ("optimizer { lr: 0.01 weight_decay: 0.3 no_decay: VECTORS }", lambda m: torch.optim.AdamW(vectors_apart(m), lr=0.01), None, {}),
    "no_decay_name": (
        'optimizer { lr: 0.01 weight_decay: 0.3 no_decay_name: "bias" }',
        lambda m: torch.optim.AdamW(vectors_apart(m), lr=0.01),
        None,
        {},
    ),
    "clip_value": ("optimizer { type: SGD lr: 0.1 clip_value: 0.01 }", sgd, None, dict(clip_value=0.01)),
    "label_smoothing": (SGD, sgd, None, dict(label_smoothing=0.2)),
    "ema": ("optimizer { type: SGD lr: 0.1 ema_decay: 0.9 }", sgd, None, dict(ema=0.9)),
    "long_ema": ("optimizer { type: SGD lr: 0.1 ema_decay: 0.999 }", sgd, None, dict(ema=0.999)),
    "linear_scaling": ("optimizer { type: SGD lr: 0.1 lr_scaling: LINEAR scaling_batch: 128 }", lambda m: sgd(m, 0.05), None, {}),
    "square_root_scaling": ("optimizer { type: SGD lr: 0.1 lr_scaling: SQUARE_ROOT scaling_batch: 16 }", lambda m: sgd(m, 0.2), None, {}),
    "linear": (SGD + " schedule { type: LINEAR final_fraction: 0.2 }", sgd, lambda o: lr_scheduler.LinearLR(o, 1, 0.2, STEPS), {}),
    "step": (SGD + " schedule { type: STEP every_steps: 20 factor: 0.5 }", sgd, lambda o: lr_scheduler.StepLR(o, 20, 0.5), {}),
    "one_cycle": (SGD + " schedule { type: ONE_CYCLE warmup_steps: 10 final_fraction: 0.01 }", sgd, one_cycle, {}),
    "range_test": (SGD + " schedule { type: RANGE_TEST first_fraction: 1e-4 }", sgd, range_test, {}),
}


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """Returns (folder, config's text, label smoothing, PyTorch's losses, PyTorch's learning rates, PyTorch's final
    weights)."""
    text, make_optimizer, make_schedule, more = CASES[request.param]
    folder = tmp_path_factory.mktemp("optimizer")
    x, y = noisy_digits(folder, SAMPLES)

    torch.manual_seed(11)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    save_init(folder, model.state_dict())
    optimizer = make_optimizer(model)
    schedule = make_schedule(optimizer) if make_schedule else None
    averaged = None
    if "ema" in more:
        averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(more["ema"]))
    losses, rates = [], []
    for step in sampler_reference.steps(SAMPLES, BATCH, SEED, epochs=STEPS):
        loss = F.cross_entropy(model(x[step]), y[step], label_smoothing=more.get("label_smoothing", 0))
        losses.append(loss.item())
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        loss.backward()
        if "clip_value" in more:
            nn.utils.clip_grad_value_(model.parameters(), more["clip_value"])
        optimizer.step()
        if schedule:
            schedule.step()
        if averaged:
            averaged.update_parameters(model)
        if len(losses) == STEPS:
            break
    weights = {name: p.detach() for name, p in (averaged.module if averaged else model).named_parameters()}
    return folder, text, more.get("label_smoothing", 0), np.array(losses), np.array(rates), weights


@pytest.mark.parametrize("ranks,accumulation,shard", [(1, 1, False), (2, 2, False), (2, 1, True)])
@pytest.mark.all_tier(
    "an update does not depend on ranks, except with shards, which ddp_test covers",
    unless=lambda case, ranks, shard: ranks == 1 or (case, shard) in (("lamb", False), ("long_ema", True)),
)
def test_losses_and_rates_are_pytorchs(case, ranks, accumulation, shard, tmp_path):
    skip_without_gpus(ranks)
    folder, text, label_smoothing, losses, rates, weights = case
    if shard and ("LAMB" in text or "LARS" in text):
        pytest.skip("refused: LAMB and LARS need whole parameters")
    config = write_config(
        folder,
        f"""seed: {SEED} global_batch: {BATCH} accumulation: {accumulation} epochs: {STEPS} max_steps: {STEPS}
        init_from: "init.safetensors" log {{ every_steps: 1 }} ddp {{ first_bucket_bytes: 1000 bucket_bytes: 5000 }}
        data {{ train: "train.csv" }} model {{ mlp {{ hidden: 32 }} label_smoothing: {label_smoothing} }} {text}""",
    )
    run = train(config, tmp_path / "run", *sets(f"optimizer.shard={str(shard).lower()}"), ranks=ranks)
    assert run.status == DONE, run
    steps = events(tmp_path / "run", "step")
    # PyTorch's own GPU and CPU runs of AdamW differ by 1e-5, so the tolerance on a GPU is larger.
    np.testing.assert_allclose([s["loss"] for s in steps], losses, rtol=1e-5 if DEVICE == "CPU" else 5e-5)
    np.testing.assert_allclose([s["lr"] for s in steps], rates, rtol=1e-6)
    torch.testing.assert_close(weights_of(tmp_path / "run"), weights, rtol=1e-3, atol=1e-4)


# Maps a name to (the text of the config's optimizer, a function of the parameters that returns PyTorch's optimizer).
WITH_MEMORY = {
    "sgd": ("type: SGD lr: 0.1 momentum: 0.9 weight_decay: 0.1", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1)),
    "adam": ("type: ADAM lr: 0.01 weight_decay: 0.1", lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1)),
    "adamw": ("type: ADAMW lr: 0.01 weight_decay: 0.3", lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.3)),
    "lamb": ("type: LAMB lr: 0.02 weight_decay: 0.1", lambda p: Lamb(p, 0.02, 0.1)),
    "lars": ("type: LARS lr: 0.5 momentum: 0.9 weight_decay: 0.1 trust: 0.02", lambda p: Lars(p, 0.5, 0.1)),
}
# (number of ranks, whether the optimizer is sharded)
JOBS = [(1, False), (2, False), (3, False), (4, False), (2, True), (3, True)]


@pytest.mark.parametrize("ranks,shard", JOBS)
@pytest.mark.parametrize("name", WITH_MEMORY)
@pytest.mark.all_tier(
    "each kind of job leaves out a gradient with one optimizer already",
    unless=lambda name, ranks, shard: (name, ranks, shard)
    in (("sgd", 2, False), ("adamw", 2, True), ("adam", 1, False)),
)
def test_a_parameter_that_got_no_gradient_stays_as_it_is(name, ranks, shard, tmp_path):
    """Compares the final weights with PyTorch's if no rank uses the bias in the steps 40 to 69, counted from 0. In
    PyTorch .grad is None in these steps: neither momentum nor weight decay changes the bias, and the steps do not count
    as updates of the bias."""
    skip_without_gpus(ranks)
    if shard and name in ("lamb", "lars"):
        pytest.skip("refused: LAMB and LARS need whole parameters")
    steps, unused = 100, range(40, 70)
    x, y = noisy_digits(tmp_path, SAMPLES)
    torch.manual_seed(11)
    torch.set_num_threads(1)
    model = nn.Linear(64, 10)
    save_init(tmp_path, {f"linear.{k}": v for k, v in model.state_dict().items()})
    text, make_optimizer = WITH_MEMORY[name]
    optimizer = make_optimizer(model.parameters())
    for number, step in zip(range(steps), sampler_reference.steps(SAMPLES, BATCH, SEED, epochs=steps)):
        optimizer.zero_grad()
        loss = F.cross_entropy(F.linear(x[step], model.weight, None if number in unused else model.bias), y[step])
        loss.backward()
        optimizer.step()
    config = write_config(
        tmp_path,
        # The run uses no CUDA graph, because the model counts its forwards, and a graph's replays do not call the
        # model.
        f"""seed: {SEED} global_batch: {BATCH} epochs: {steps} max_steps: {steps} init_from: "init.safetensors" graph: false
        data {{ train: "train.csv" }} ddp {{ missing_gradient: ZERO }} optimizer {{ {text} shard: {str(shard).lower()} }}
        model {{ {faulty_model(fault=4, at=unused.start, until=unused.stop, rank=-1)} }}""",
    )
    run = train(config, tmp_path / "run", ranks=ranks, program=FAULTY)
    assert run.status == DONE, run
    expected = {f"linear.{k}": v for k, v in model.state_dict().items()}
    atol = 2e-6 if DEVICE == "CPU" else 1e-5
    torch.testing.assert_close(weights_of(tmp_path / "run"), expected, rtol=1e-5, atol=atol)


@pytest.mark.parametrize("name, lr, decay", [("ADAMW", 0.001, 3), ("LAMB", 0.01, 0.3)])
def test_tabms_vectors_are_vectors(name, lr, decay, tmp_path):
    """Checks that `no_decay` and LAMB treat TabM's biases and factors as vectors. Each member has a vector, although
    the vectors of all members together are stored as a matrix."""
    x, y = noisy_digits(tmp_path, SAMPLES)
    torch.manual_seed(11)
    torch.set_num_threads(1)
    model = tabm_reference.TabM(64, [16, 16], 10, members=4)
    save_init(tmp_path, model.state_dict())
    matrices = [p for n, p in model.named_parameters() if n.endswith("weight")]
    vectors = [p for n, p in model.named_parameters() if not n.endswith("weight")]
    groups = [dict(params=matrices, weight_decay=decay), dict(params=vectors, weight_decay=0.0, adapts=False)]
    optimizer = torch.optim.AdamW(groups, lr=lr) if name == "ADAMW" else Lamb(groups, lr, 0)
    losses = []
    for step in sampler_reference.steps(SAMPLES, BATCH, SEED, epochs=2):
        loss = F.cross_entropy(model(x[step]).flatten(0, 1), y[step].repeat_interleave(4))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    config = write_config(
        tmp_path,
        f"""seed: {SEED} global_batch: {BATCH} epochs: 2 init_from: "init.safetensors" log {{ every_steps: 1 }}
        data {{ train: "train.csv" }} model {{ name: "tabm" tabm {{ members: 4 hidden: [16, 16] dropout: 0 }} }}
        optimizer {{ type: {name} lr: {lr} weight_decay: {decay} no_decay: VECTORS }}""",
    )
    run = train(config, tmp_path / "run")
    assert run.status == DONE, run
    np.testing.assert_allclose([s["loss"] for s in events(tmp_path / "run", "step")], losses, rtol=1e-5 if DEVICE == "CPU" else 5e-5)


def test_plateau_lowers_the_rate_when_the_validation_loss_stays(tmp_path):
    config = write_config(
        tmp_path,
        f"""epochs: 12 {digits_data("validation_fraction: 0.2")}
        optimizer {{ type: SGD lr: 4 }} schedule {{ type: PLATEAU factor: 0.5 patience: 0 }} log {{ every_steps: 23 }}""",
    )
    run = train(config, tmp_path / "run")
    assert run.status == DONE, run
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=4)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    expected = []
    for evaluation in events(tmp_path / "run", "eval"):
        expected.append(optimizer.param_groups[0]["lr"])
        plateau.step(evaluation["val_loss"])
    rates = {s["epoch"]: s["lr"] for s in events(tmp_path / "run", "step")}
    assert list(rates.values()) == expected
    assert expected[-1] < 4
