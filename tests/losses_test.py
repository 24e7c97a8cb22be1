"""Tests the losses that a config can select, and all metrics, on several numbers of ranks and micro-batches, with
batches that cannot be divided evenly. Losses are compared with PyTorch's, and metrics with scikit-learn's definitions
in NumPy; the unit tests of observe/metrics.h compare the metrics with scikit-learn's own numbers."""

import functools
import itertools

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
    Run,
    events,
    expect_refused,
    save_init,
    skip_without_gpus,
    trained_losses,
    weights_of,
    write_config,
)

SAMPLES, HELD_OUT, FEATURES, BATCH, STEPS, SEED = 150, 101, 5, 32, 30, 2
TASKS = {"CLASSIFICATION": 4, "MULTI_LABEL": 3, "REGRESSION": 2}  # maps a task to its number of outputs
WEIGHTS = [0.5, 1.5, 1.25, 2.0]


def data_of(task):
    """Returns (features, targets). The training samples come first, then the validation samples. Some classes and
    labels are rare."""
    random = np.random.default_rng(3)
    x = random.normal(size=(SAMPLES + HELD_OUT, FEATURES)).astype(np.float32)
    hidden = np.tanh(x @ random.normal(size=(FEATURES, 3))) + 0.5 * random.normal(size=(len(x), 3))
    if task == "REGRESSION":
        y = np.abs(hidden[:, :2]) + [0, 3]
    elif task == "MULTI_LABEL":
        y = hidden > [0, 0.5, 1]
    else:
        y = np.digitize(hidden[:, :1], [-1, 0.4, 0.9])
    return [torch.from_numpy(np.array([[float(f"{v:.7g}") for v in row] for row in a], np.float32)) for a in (x, y)]


def focal(loss_of_truth, losses, gamma):
    return ((1 - torch.exp(-loss_of_truth)) ** gamma * losses).sum()


def focal_classes(output, target):
    logs = F.cross_entropy(output, target, reduction="none")
    weights = torch.tensor(WEIGHTS)[target]
    return focal(logs, weights * logs, 1.5) / weights.sum()


def focal_labels(output, target):
    logs = F.binary_cross_entropy_with_logits(output, target, reduction="none")
    return focal(logs, logs, 2) / target.numel()


def quantile(output, target):
    """Computes sklearn.metrics.mean_pinball_loss with alpha=0.9."""
    return torch.where(target > output, 0.9 * (target - output), 0.1 * (output - target)).mean()


def balanced(output, target):
    train = data_of("CLASSIFICATION")[1][:SAMPLES, 0].long()
    weights = len(train) / (4 * torch.bincount(train))  # as compute_class_weight("balanced") of scikit-learn
    return F.cross_entropy(output, target, weight=weights)


def balanced_labels(output, target):
    positive = data_of("MULTI_LABEL")[1][:SAMPLES].sum(0)
    return F.binary_cross_entropy_with_logits(output, target, pos_weight=(SAMPLES - positive) / positive)


WEIGHTED = f"loss {{ class_weight: {WEIGHTS} }}"
LOSSES = {  # maps a name to (task, text of the config, PyTorch's loss)
    "none": ("CLASSIFICATION", "", F.cross_entropy),
    "weights": ("CLASSIFICATION", WEIGHTED, lambda o, t: F.cross_entropy(o, t, weight=torch.tensor(WEIGHTS))),
    "clipped": ("CLASSIFICATION", WEIGHTED, lambda o, t: F.cross_entropy(o, t, weight=torch.tensor(WEIGHTS))),
    "balanced": ("CLASSIFICATION", "loss { balanced: true }", balanced),
    "focal": ("CLASSIFICATION", f"loss {{ type: FOCAL gamma: 1.5 class_weight: {WEIGHTS} }}", focal_classes),
    "labels": ("MULTI_LABEL", "", F.binary_cross_entropy_with_logits),
    "positive": (
        "MULTI_LABEL",
        "loss { positive_weight: [4, 0.25, 9] }",
        lambda o, t: F.binary_cross_entropy_with_logits(o, t, pos_weight=torch.tensor([4, 0.25, 9])),
    ),
    "balanced labels": ("MULTI_LABEL", "loss { balanced: true }", balanced_labels),
    "focal labels": ("MULTI_LABEL", "loss { type: FOCAL }", focal_labels),
    "numbers": ("REGRESSION", "", F.mse_loss),
    "mae": ("REGRESSION", "loss { type: MAE }", F.l1_loss),
    "huber": ("REGRESSION", "loss { type: HUBER delta: 0.7 }", lambda o, t: F.huber_loss(o, t, delta=0.7)),
    "quantile": ("REGRESSION", "loss { type: QUANTILE quantile: 0.9 }", quantile),
}


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """Returns a function of a loss's name that trains in PyTorch and returns (the folder of the data, the config's
    text, PyTorch's losses in training, the function `validate`)."""

    def make(name):
        task, config, loss_of = LOSSES[name]
        folder, outputs = tmp_path_factory.mktemp("losses"), TASKS[task]
        x, y = data_of(task)
        for file, part in (("train.csv", slice(SAMPLES)), ("test.csv", slice(SAMPLES, None))):
            np.savetxt(folder / file, np.concatenate([x[part], y[part]], axis=1), fmt="%.7g", delimiter=",")
        torch.manual_seed(4)
        model = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, outputs))
        save_init(folder, model.state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        target = y[:, 0].long() if task == "CLASSIFICATION" else y
        losses = []
        for step in itertools.islice(sampler_reference.steps(SAMPLES, BATCH, SEED, epochs=STEPS), STEPS):
            loss = loss_of(model(x[step]), target[step])
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            if name == "clipped":
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
        columns = "" if task == "CLASSIFICATION" else f"label_columns: {y.shape[1]}"
        text = f"""seed: {SEED} global_batch: {BATCH} epochs: 1000 max_steps: {STEPS} init_from: "init.safetensors"
            log {{ every_steps: 1 }} model {{ mlp {{ hidden: 16 }} }} {config}
            optimizer {{ type: SGD lr: 0.1 weight_decay: 0 {"clip_norm: 0.05" if name == "clipped" else ""} }}
            data {{ train: "train.csv" validation: "test.csv" task: {task}
                    csv {{ label_column: {FEATURES} {columns} }} }}"""

        def validate(weights):
            """Returns (PyTorch's outputs for the held-out samples with these weights, the samples' targets, the loss).
            """
            model.load_state_dict(weights)
            with torch.no_grad():
                output = model(x[SAMPLES:])
                return output, target[SAMPLES:], loss_of(output, target[SAMPLES:]).item()

        return folder, text, losses, validate

    return functools.cache(make)


def f1_of(confusion):
    return 2 * np.diag(confusion) / np.maximum(confusion.sum(0) + confusion.sum(1), 1)


def metrics_of(task, output, target):
    """Returns the metrics, computed by their definitions: metrics of classes from a confusion matrix, and all others
    from the outputs."""
    output, target = output.double(), target.double()
    if task == "REGRESSION":
        squares = ((output - target) ** 2).sum(0) / ((target - target.mean(0)) ** 2).sum(0)
        rmsle = ((torch.log1p(output) - torch.log1p(target)) ** 2).mean(0).sqrt().mean()
        rmse = ((output - target) ** 2).mean(0).sqrt().mean()
        return {"rmse": rmse, "mae": (output - target).abs().mean(), "r2": 1 - squares.mean(), "rmsle": rmsle}
    if task == "MULTI_LABEL":
        right = (output > 0) == target.bool()
        return {
            "log_loss": F.binary_cross_entropy_with_logits(output, target),
            "accuracy": right.all(1).double().mean(),
            "label_accuracy": right.double().mean(),
        }
    target = target.long()
    predicted, n, classes = output.argmax(1), len(target), output.shape[1]
    confusion = np.zeros((classes, classes))
    np.add.at(confusion, (target.numpy(), predicted.numpy()), 1)
    actual, guessed = confusion.sum(1), confusion.sum(0)
    squares = (np.arange(classes)[:, None] - np.arange(classes)) ** 2
    ranks = (output.argsort(1, descending=True) == target[:, None]).double().argmax(1)
    occurs = (actual + guessed) > 0
    return {
        "accuracy": np.trace(confusion) / n,
        "log_loss": F.cross_entropy(output, target),
        "balanced_accuracy": (np.diag(confusion) / np.maximum(actual, 1))[actual > 0].mean(),
        "macro_f1": f1_of(confusion)[occurs].mean(),
        "weighted_f1": (f1_of(confusion) * actual).sum() / n,
        "matthews": (np.trace(confusion) * n - actual @ guessed)
        / np.sqrt((n * n - actual @ actual) * (n * n - guessed @ guessed)),
        "quadratic_kappa": 1 - (squares * confusion).sum() / (squares * np.outer(actual, guessed) / n).sum(),
        "map3": (1 / (1 + ranks[ranks < 3])).sum() / n,
    }


# Maps a loss to the (ranks, micro-batches) of its cases in every commit's tests. The cases cover each loss, each way to
# divide a batch, and each task's metrics on one rank and on three ranks.
IN_COMMITS = {
    "weights": [(None, 1), (3, 2)],
    "balanced": [(3, 1)],
    "focal": [(2, 1)],
    "positive": [(3, 1)],
    "balanced labels": [(None, 1)],
    "focal labels": [(None, 2)],
    "huber": [(None, 1)],
    "quantile": [(3, 2)],
    "mae": [(None, 3)],
    "clipped": [(3, 1)],
}


@pytest.mark.parametrize("ranks,accumulation", [(None, 1), (None, 2), (None, 3), (2, 1), (3, 1), (3, 2)])
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.all_tier(
    "these are other pairs of ranks and pieces, and tasks_test has the tasks' own losses",
    unless=lambda name, ranks, accumulation: (ranks, accumulation) in IN_COMMITS.get(name, [])
)
def test_losses_and_metrics(name, ranks, accumulation, case, tmp_path):
    skip_without_gpus(ranks)
    folder, text, losses, validate = case(name)
    task = LOSSES[name][0]
    config = write_config(folder, text + f" accumulation: {accumulation}")
    np.testing.assert_allclose(trained_losses(config, tmp_path / "run", ranks=ranks), losses, rtol=1e-5)
    done = events(tmp_path / "run", "done")[0]
    output, target, loss = validate(weights_of(tmp_path / "run"))
    tolerance = 1e-6 if DEVICE == "CPU" else 1e-4
    assert done["val_loss"] == pytest.approx(loss, rel=tolerance)
    for metric, value in metrics_of(task, output, target).items():
        assert done[f"val_{metric}"] == pytest.approx(float(value), rel=tolerance, abs=tolerance / 10), metric
    evaluated = Run(["evaluate", tmp_path / "run"], ranks=ranks)
    figures = "".join(f"{key[4:]} {value:.4f}  " for key, value in done.items() if key.startswith("val_"))
    assert evaluated.status == DONE and evaluated.out.startswith(figures), evaluated


def test_a_run_is_kept_and_ended_by_any_metric(case, tmp_path):
    """Checks that any metric can choose the best checkpoint and be watched by early stopping. A greater quadratic_kappa
    is better. A smaller log_loss is better; log_loss falls here, so early stopping does not end the run."""
    text = case("none")[1] + ' early_stopping { metric: "log_loss" patience: 3 } checkpoint { keep_best: "quadratic_kappa" }'
    config = write_config(case("none")[0], text.replace(f"max_steps: {STEPS}", "max_steps: 60"))
    trained_losses(config, tmp_path / "run")
    evaluations = events(tmp_path / "run", "eval")
    assert [event["step"] for event in evaluations] == [*range(5, 61, 5)]
    best = max(evaluations, key=lambda event: (event["val_quadratic_kappa"], event["step"]))["step"]
    run = Run(["evaluate", tmp_path / "run"])
    assert f"step-{best:012}, the best quadratic_kappa" in run.out, run


TABLE = "1.5,0.5,0\n2.5,1,1\n2,1,1\n"


@pytest.mark.parametrize(
    "text,words",
    [
        ("loss { class_weight: [1, 2, 3] }", "loss.class_weight: 3 weights where the data have 2: give one for each"),
        ("loss { type: MAE }", "loss.type: MAE is not for data.task: CLASSIFICATION: take FOCAL"),
        ("loss { gamma: 3 }", "loss.gamma: has no meaning for type: OF_TASK"),
        ("loss { positive_weight: 2 }", "loss.positive_weight: has no meaning for data.task: CLASSIFICATION, which has class_weight"),
        ("loss { class_weight: [1, 2] balanced: true }", "loss.balanced: weights are given too: choose one of the two"),
        ("loss { class_weight: [1, -2] }", "loss.class_weight: -2 is less than 0"),
        ("loss { class_weight: [0, 0] }", "loss.class_weight: all weights are 0: nothing would be trained"),
        (
            "loss { class_weight: [0, 0, 1] } data { classes: 3 }",
            "loss.class_weight: all training samples are of classes whose weight is 0: nothing would be trained",
        ),
        ("loss { type: FOCAL } model { label_smoothing: 0.1 }", "model.label_smoothing: does not go with loss { type: FOCAL }"),
        ("loss { balanced: true } data { classes: 3 }", "loss.balanced: no training sample has class 2: give loss.class_weight"),
        ("loss { type: FOCAL } data { task: REGRESSION }", "loss.type: FOCAL is not for data.task: REGRESSION: take MAE, HUBER or QUANTILE"),
        ("loss { type: QUANTILE quantile: 1 } data { task: REGRESSION }", "loss.quantile: 1 is not below 1"),
        ("loss { class_weight: 1 } data { task: REGRESSION }", "loss.class_weight: has no meaning for data.task: REGRESSION"),
        ("loss { balanced: true } data { task: REGRESSION }", "loss.balanced: has no meaning for data.task: REGRESSION"),
        ('loss { type: FOCAL } data { format: TOKENS train: "t.bin" }', "loss: tokens have the loss of the next token: leave it out"),
    ],
)
def test_wrong_losses(text, words, tmp_path):
    (tmp_path / "train.csv").write_text(TABLE)
    (tmp_path / "t.bin").write_bytes(bytes(64))
    data = "" if "TOKENS" in text else 'train: "train.csv" '
    text = text.replace("data {", f"data {{ {data}") if "data {" in text else f"{text} data {{ {data}}}"
    expect_refused(tmp_path, text, USAGE, words)
