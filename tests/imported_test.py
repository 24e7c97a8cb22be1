"""Tests models that lockstep.export has written: they train as in PyTorch, and wrong files and samples give one error
line."""

import functools
import gzip
import json
import pathlib
import struct
import sys

import numpy as np
import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional
from torch.optim import swa_utils

from harness import (
    CHECKPOINT,
    DATA,
    DEVICE,
    DONE,
    USAGE,
    Run,
    events,
    expect_error,
    sets,
    skip_without_gpus,
    train,
    trained_losses,
    weights_of,
    write_config,
)
from small_unet import UNet

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
import lockstep  # noqa: E402

CLASSES = 5
COUNT = 22
WORDS = 40
# PyTorch's losses are computed on a CPU. Lockstep on a GPU sums in another order, so the tolerance is larger there.
CLOSE = {"rtol": 1e-5, "atol": 1e-5} if DEVICE == "CPU" else {"rtol": 5e-3, "atol": 5e-3}
# Learning rates of models that need a smaller one. Their BatchNorm layers get as few as eight numbers for each channel,
# and so magnify differences in the last digit.
SLOWLY = {"mobilenet": 0.001, "resnet18": 0.0001 if DEVICE == "CPU" else 0.00001}


class ConvNet(nn.Module):
    """Implements a model with the usual parts of image models: depthwise convolutions, BatchNorm,
    squeeze-and-excitation, residual connections."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.SiLU(inplace=True))
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm = nn.GroupNorm(2, 8)
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 1), nn.Sigmoid())
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        y = functional.gelu(self.norm(self.depthwise(x)))
        x = x + y * self.squeeze(y)
        return self.head(x.mean((2, 3)))


class Transformer(nn.Module):
    """Implements a model with patches and a class token, attention, LayerNorm, and a frozen table of position
    embeddings."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 16))
        self.positions = nn.Parameter(torch.randn(1, 17, 16) * 0.02, requires_grad=False)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.size(0), -1, -1), x], 1) + self.positions
        return self.head(self.block(x)[:, 0])


class TextClassifier(nn.Module):
    """Implements a model that takes tokens and their attention mask, as Hugging Face's models do."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16)
        self.qkv = nn.Linear(16, 48)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, input_ids, attention_mask):
        x = self.embedding(input_ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        x = x + functional.scaled_dot_product_attention(q, k, v, attention_mask.bool()[:, None, :])
        mask = attention_mask.unsqueeze(-1)
        return self.head((x * mask).sum(1) / mask.sum(1))


MODELS = {
    "convnet": ConvNet,
    "transformer": Transformer,
    "resnet18": lambda: torchvision.models.resnet18(num_classes=CLASSES),
    "mobilenet": lambda: torchvision.models.mobilenet_v3_small(num_classes=CLASSES, dropout=0.0),
}


def images(side=16):
    random = np.random.default_rng(3)
    return random.normal(size=(COUNT, 3, side, side)).astype(np.float32), random.integers(0, CLASSES, COUNT)


def masks():
    """Returns (images, the class of each pixel). One pixel in ten has no class (255)."""
    random = np.random.default_rng(4)
    y = random.integers(0, CLASSES, (COUNT, 16, 16))
    y[random.random(y.shape) < 0.1] = 255
    return images()[0], y


def texts():
    """Returns (tokens and their mask in one array [samples, 2, tokens], the class of each text)."""
    random = np.random.default_rng(5)
    mask = np.arange(12) < random.integers(3, 13, (COUNT, 1))
    tokens = random.integers(1, WORDS, (COUNT, 12)) * mask
    return np.stack([tokens, mask], 1), random.integers(0, CLASSES, COUNT)


def export(folder, name, side=16):
    torch.manual_seed(1)
    model = MODELS[name]()
    lockstep.export(model, (torch.zeros(3, 3, side, side),), folder / "net.lsm")
    return model


def config_of(folder, more="", batch=8, classes=CLASSES, data="", lr=0.05, samples=images):
    x, y = samples()
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    return write_config(
        folder,
        f"""global_batch: {batch} epochs: 7 data {{ format: NPY train: ["x.npy", "y.npy"] shuffle: false classes: {classes} {data} }}
        model {{ name: "imported" imported {{ file: "net.lsm" }} }}
        optimizer {{ type: SGD lr: {lr} momentum: 0.9 }} log {{ every_steps: 1 }} {more}""",
    )


def loss_of(output, target):
    """Returns the sum of the cross-entropies divided by the number of all targets. A pixel without a class adds nothing
    to the sum."""
    return functional.cross_entropy(output, target, ignore_index=255, reduction="sum") / target.numel()


def torch_losses(model, steps, batch=8, lr=0.05, samples=images, loss=loss_of, forward=None, clip_norm=None, average=None):
    """Trains `model` in PyTorch with SGD on the same batches as Lockstep, for `steps` steps, and returns the losses.
    The last batch of each epoch is short. `forward` calls the model, and `average` (an AveragedModel) is updated with
    the model's parameters after each step."""
    forward = forward or model
    model.train()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr, momentum=0.9)
    x, y = map(torch.from_numpy, samples())
    losses = []
    while True:
        for begin in range(0, COUNT, batch):
            mean = loss(forward(x[begin : begin + batch]), y[begin : begin + batch])
            optimizer.zero_grad()
            mean.backward()
            if clip_norm:
                nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
            optimizer.step()
            if average:
                average.update_parameters(model)
            losses.append(mean.item())
            if len(losses) == steps:
                return losses


@pytest.mark.all_tier(
    "two small models have most kinds of layers, and these are torchvision's",
    unless=lambda name: name in ("convnet", "transformer"),
)
@pytest.mark.parametrize("name", MODELS)
def test_it_trains_as_in_pytorch(name, tmp_path):
    """Compares the losses of 20 steps (the last step of each epoch has six samples), the saved weights, and the loss in
    the evaluation."""
    model = export(tmp_path, name)
    lr = SLOWLY.get(name, 0.05)
    config = config_of(tmp_path, "max_steps: 20", data='validation: ["x.npy", "y.npy"]', lr=lr)
    losses = trained_losses(config, tmp_path / "run")
    np.testing.assert_allclose(losses, torch_losses(model, 20, lr=lr), **CLOSE)
    weights = weights_of(tmp_path / "run")
    expected = model.state_dict()
    assert weights.keys() == expected.keys()
    for key, tensor in expected.items():
        torch.testing.assert_close(weights[key], tensor, rtol=0.02, atol=2e-3, msg=key)
    x, y = map(torch.from_numpy, images())
    model.load_state_dict(weights)
    with torch.no_grad():
        loss = functional.cross_entropy(model.eval()(x), y).item()
    assert events(tmp_path / "run", "eval")[-1]["val_loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("ranks, accumulation", [(2, 1), (3, 1), (1, 3)])
@pytest.mark.all_tier("other ranks and micro-batches cut a batch as two ranks do", unless=lambda ranks: ranks == 2)
def test_ranks_and_micro_batches_change_nothing(ranks, accumulation, tmp_path):
    """Compares the losses on several ranks or in micro-batches with those of whole batches in PyTorch. The model has no
    BatchNorm, because its statistics would depend on the micro-batches."""
    skip_without_gpus(ranks)
    model = export(tmp_path, "transformer")
    config = config_of(tmp_path, f"max_steps: 12 accumulation: {accumulation}")
    losses = trained_losses(config, tmp_path / "run", ranks=ranks)
    np.testing.assert_allclose(losses, torch_losses(model, 12), **CLOSE)


@pytest.mark.all_tier("optimizer_test and ddp_test clip, average and shard on every commit")
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_clipping_averages_and_sharded_moments(ranks, tmp_path):
    skip_without_gpus(ranks)
    model = export(tmp_path, "transformer")
    more = sets("optimizer.clip_norm=0.5", "optimizer.ema_decay=0.9", "optimizer.shard=true")
    losses = trained_losses(config_of(tmp_path, "max_steps: 12"), tmp_path / "run", *more, ranks=ranks)
    average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    average.n_averaged += 1  # PyTorch's average then begins with the initial weights
    np.testing.assert_allclose(losses, torch_losses(model, 12, clip_norm=0.5, average=average), **CLOSE)
    torch.testing.assert_close(weights_of(tmp_path / "run"), average.module.state_dict(), rtol=1e-4, atol=1e-5)


@pytest.mark.all_tier(
    "other models share statistics through the same operation",
    unless=lambda name, checkpoints: name == "convnet" and not checkpoints,
)
@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("name", ["convnet", "resnet18", "mobilenet"])
def test_ranks_share_the_statistics_of_a_batch(name, checkpoints, tmp_path):
    """Checks that losses and running statistics with `sync_batch_norm` are those of whole batches in one process. The
    last batch of each epoch has one or two samples, fewer than there are ranks."""
    skip_without_gpus(3)
    # BatchNorm over few values magnifies differences in the last digit, so the learning rates are small.
    batch, lr, side = (7, 1e-2, 16) if name == "convnet" else (10, 1e-5, 96)
    model = export(tmp_path, name, side)
    samples = functools.partial(images, side)
    config = config_of(tmp_path, "max_steps: 20 ddp { sync_batch_norm: true }", batch=batch, lr=lr, samples=samples)
    more = sets(f"model.activation_checkpointing={str(checkpoints).lower()}")
    losses = trained_losses(config, tmp_path / "run", *more, ranks=3)
    np.testing.assert_allclose(losses, torch_losses(model, 20, batch=batch, lr=lr, samples=samples), rtol=1e-4, atol=1e-4)
    trained = weights_of(tmp_path / "run")
    expected = {k: v for k, v in model.state_dict().items() if "running" in k}
    torch.testing.assert_close({k: trained[k] for k in expected}, expected, rtol=1e-4, atol=1e-4)


def test_one_value_has_no_variance(tmp_path):
    """Checks the error for a last batch of one sample: a BatchNorm of resnet18 then gets one value for each channel,
    which has no variance."""
    export(tmp_path, "resnet18")
    run = Run(["train", config_of(tmp_path, batch=7)])
    expect_error(run, USAGE, "batch_norm of layer3.0.bn1 (resnet.py:", "one value of a channel has no variance")


def test_statistics_of_one_rank_cannot_be_shared(tmp_path):
    skip_without_gpus(2)
    export(tmp_path, "transformer")
    run = Run(["train", config_of(tmp_path, "ddp { sync_batch_norm: true }")], ranks=2)
    expect_error(run, USAGE, "ddp.sync_batch_norm", "imported")


@pytest.mark.parametrize("ranks, accumulation", [(1, 3), (2, 1)])
def test_a_class_for_each_pixel(ranks, accumulation, tmp_path):
    """Compares the losses, the validation metrics and the predictions of a U-Net with PyTorch's."""
    skip_without_gpus(ranks)
    torch.manual_seed(1)
    model = UNet(CLASSES)
    lockstep.export(model, torch.zeros(3, 3, 16, 16), tmp_path / "net.lsm")
    data = 'task: SEGMENTATION validation: ["x.npy", "y.npy"]'
    config = config_of(tmp_path, f"max_steps: 12 accumulation: {accumulation}", data=data, samples=masks)
    run_dir = tmp_path / "run"
    losses = trained_losses(config, run_dir, ranks=ranks)
    expected = torch_losses(model, 12, samples=masks, forward=lambda x: model(x)["out"])
    np.testing.assert_allclose(losses, expected, **CLOSE)

    model.load_state_dict(weights_of(run_dir))
    x, y = map(torch.from_numpy, masks())
    with torch.no_grad():
        output = model(x)["out"]
    predicted, has_class = output.argmax(1), y != 255
    union = [((predicted == c) | (y == c))[has_class].sum().item() for c in range(CLASSES)]
    both = [((predicted == c) & (y == c)).sum().item() for c in range(CLASSES)]
    last = events(run_dir, "eval")[-1]
    assert last["val_loss"] == pytest.approx(loss_of(output, y).item(), rel=1e-5)
    close = 1e-6 if DEVICE == "CPU" else 5e-3
    assert last["val_accuracy"] == pytest.approx((predicted == y)[has_class].double().mean().item(), rel=close)
    assert last["val_iou"] == pytest.approx(np.mean([b / u for b, u in zip(both, union, strict=True) if u]), rel=close)

    written = tmp_path / "masks.npy"
    run = Run(["predict", run_dir, "--input", tmp_path / "x.npy", "--output", written], ranks=ranks)
    assert run.status == DONE, run
    assert np.load(written).dtype == np.uint8
    assert (np.load(written) == predicted.numpy()).mean() > 1 - close
    run = Run(["predict", run_dir, "--input", tmp_path / "x.npy"])
    expect_error(run, USAGE, "--output predictions.csv: masks are written as an array: name a .npy file")


@pytest.mark.parametrize(
    "ranks",
    [
        1,
        pytest.param(3, marks=pytest.mark.all_tier("three ranks cut two inputs as one does")),
    ],
)
def test_a_model_of_two_inputs(ranks, tmp_path):
    """Tests a model whose two inputs are tokens and their mask."""
    skip_without_gpus(ranks)
    torch.manual_seed(1)
    model = TextClassifier()
    tokens = torch.ones(3, 12, dtype=torch.int64)
    inputs = {"attention_mask": tokens, "input_ids": tokens}
    lockstep.export(model, inputs, tmp_path / "net.lsm")
    config = config_of(tmp_path, "max_steps: 20", data="npy { kind: TEXTS }", samples=texts, lr=0.5)
    losses = trained_losses(config, tmp_path / "run", ranks=ranks)
    expected = torch_losses(model, 20, samples=texts, lr=0.5, forward=lambda x: model(x[:, 0], x[:, 1]))
    np.testing.assert_allclose(losses, expected, **CLOSE)
    output = tmp_path / "labels.csv"
    run = Run(["predict", tmp_path / "run", "--input", tmp_path / "x.npy", "--output", output])
    assert run.status == DONE and len(output.read_text().splitlines()) == COUNT + 1, run

    np.save(tmp_path / "x.npy", texts()[0][:, 0])
    run = train(config, tmp_path / "other")
    expect_error(run, USAGE, "takes 2 inputs (input_ids, attention_mask), and the samples have 1: NPY's TEXTS of [samp")
    np.save(tmp_path / "x.npy", texts()[0] + 0.25)
    run = train(config, tmp_path / "other")
    expect_error(run, DATA, "x.npy: sample ", ".25 is no token")


@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param(1, marks=pytest.mark.all_tier("one rank computes the loss that each of two computes")),
        2,
    ],
)
def test_a_loss_of_its_own(ranks, tmp_path):
    """Tests a loss with a weight for each class, in training and in validation. The weights are a constant in the
    loss's graph."""
    skip_without_gpus(ranks)
    torch.manual_seed(1)
    model, weights = Transformer(), torch.tensor([1.0, 2.0, 0.5, 3.0, 1.5])

    def loss(output, target):
        return functional.cross_entropy(output, target, reduction="none") * weights[target]

    lockstep.export(model, torch.zeros(3, 3, 16, 16), tmp_path / "net.lsm", loss=loss)
    config = config_of(tmp_path, "max_steps: 9", data='validation: ["x.npy", "y.npy"]')
    losses = trained_losses(config, tmp_path / "run", ranks=ranks)
    expected = torch_losses(model, 9, loss=lambda output, target: loss(output, target).mean())
    np.testing.assert_allclose(losses, expected, **CLOSE)
    model.load_state_dict(weights_of(tmp_path / "run"))
    x, y = map(torch.from_numpy, images())
    with torch.no_grad():
        validation = loss(model.eval()(x), y).mean().item()
    assert events(tmp_path / "run", "eval")[-1]["val_loss"] == pytest.approx(validation, rel=1e-5)
    run = Run(["estimate", config, "--gpu", "T4"])
    assert run.status == DONE, run
    np.save(tmp_path / "y.npy", np.zeros((COUNT, CLASSES), np.float32))
    run = train(config, tmp_path / "other", *sets("data.task=REGRESSION"))
    expect_error(run, USAGE, "its loss takes targets of int64 [batch], and the samples have float32 [batch, 5]")


@pytest.mark.all_tier("other models are computed again by the same code", unless=lambda name: name == "convnet")
@pytest.mark.parametrize("name", ["convnet", "transformer", "resnet18"])
def test_activation_checkpointing_changes_nothing(name, tmp_path):
    """Compares losses, weights and running statistics with those without activation checkpointing, on two ranks."""
    skip_without_gpus(2)
    export(tmp_path, name)
    config = config_of(tmp_path, "max_steps: 6 deterministic: true", lr=0.001)
    found = []
    for checkpoints in ("false", "true"):
        run_dir = tmp_path / checkpoints
        more = sets(f"model.activation_checkpointing={checkpoints}")
        found.append((trained_losses(config, run_dir, *more, ranks=2), weights_of(run_dir)))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(found[0][1][key], found[1][1][key]) for key in found[0][1])


def test_activation_checkpointing_saves_memory(tmp_path):
    export(tmp_path, "resnet18")
    peaks = []
    for checkpoints in ("false", "true"):
        words = ["--gpu", "H100", "--json", *sets("global_batch=4096", f"model.activation_checkpointing={checkpoints}")]
        run = Run(["estimate", config_of(tmp_path), *words])
        assert run.status == DONE, run
        peaks.append(json.loads(run.out)["peak_bytes"])
    assert peaks[1] < 0.8 * peaks[0], peaks


def test_gradients_are_reduced_while_backward_runs(tmp_path):
    """Checks in each rank's trace of a step that all buckets, or all but one, are handed to the reduction before
    backward ends. The step uses no CUDA graph, because on a GPU the trace of a replayed graph has no spans for the
    buckets."""
    skip_without_gpus(2)
    export(tmp_path, "transformer")
    more = "max_steps: 9 graph: false ddp { bucket_bytes: 2048 first_bucket_bytes: 1024 } profile { first_step: 8 steps: 1 }"
    assert train(config_of(tmp_path, more), tmp_path / "run", ranks=2).status == DONE
    paths = sorted((tmp_path / "run/profiles/8/traces").iterdir())
    assert len(paths) == 2
    for path in paths:
        spans = [e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e.get("cat") == "user_annotation"]
        (backward,) = (span for span in spans if span["name"] == "backward")
        handed_over = [span["ts"] for span in spans if span["name"].startswith("bucket ")]
        end = backward["ts"] + backward["dur"]
        assert len(handed_over) > 4 and sum(backward["ts"] < begin < end for begin in handed_over) >= len(handed_over) - 1


def test_it_goes_on_bit_for_bit(tmp_path):
    export(tmp_path, "convnet")
    config = config_of(tmp_path, "deterministic: true")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(config, whole, *sets("max_steps=14")).status == DONE
    assert train(config, parts, *sets("max_steps=5")).status == DONE
    assert train(config, parts, *sets("max_steps=14")).status == DONE
    first, second = weights_of(whole), weights_of(parts)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_it_trains_in_16_bits(tmp_path):
    model = export(tmp_path, "transformer")
    losses = trained_losses(config_of(tmp_path, "max_steps: 20 precision: BF16"), tmp_path / "run")
    np.testing.assert_allclose(losses, torch_losses(model, 20), rtol=0.03, atol=0.02)


def test_what_it_takes_of_a_gpu(tmp_path):
    export(tmp_path, "convnet")
    run = Run(["estimate", config_of(tmp_path), "--gpu", "T4", "--json"])
    assert run.status == DONE and json.loads(run.out)["largest_micro_batch"] > 100, run


def test_a_gpu_keeps_a_stem_once(tmp_path):
    """Checks that the activations of the stem's 32 channels are kept once: for backward, BatchNorm and ReLU together
    keep only the input of BatchNorm. The convolution of three channels writes this input in channels-last format, so no
    copy is needed."""
    stem = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True))
    model = nn.Sequential(*stem, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES))
    lockstep.export(model, (torch.zeros(3, 3, 64, 64),), tmp_path / "net.lsm")
    text = f"""global_batch: 256 precision: BF16
        data {{ format: SYNTHETIC input_shape: [3, 64, 64] classes: {CLASSES} synthetic {{ kind: PIXELS samples: 256 }} }}
        model {{ name: "imported" imported {{ file: "net.lsm" }} }} optimizer {{ type: SGD lr: 0.1 }}"""
    run = Run(["estimate", write_config(tmp_path, text), "--gpu", "A100", "--json"])
    assert run.status == DONE, run
    pixels = 256 * 64 * 64
    assert 2 * 32 * pixels < json.loads(run.out)["owners"]["activations"] < 2 * (32 + 16) * pixels, run


def edited(folder, edit, edit_tensors=lambda header: None):
    """Changes the description in net.lsm with `edit`, and the entries of its tensors with `edit_tensors`, and writes
    the file again."""
    data = (folder / "net.lsm").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    description = json.loads(header["__metadata__"]["lockstep.model"])
    edit(description)
    edit_tensors(header)
    header["__metadata__"]["lockstep.model"] = json.dumps(description)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "net.lsm").write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def test_wrong_files(tmp_path):
    export(tmp_path, "convnet")
    config = config_of(tmp_path)
    good = (tmp_path / "net.lsm").read_bytes()

    def refused(*parts):
        run = train(config, tmp_path / "run")
        assert run.status in (USAGE, CHECKPOINT), run
        expect_error(run, run.status, "net.lsm", *parts)
        (tmp_path / "net.lsm").write_bytes(good)

    edited(tmp_path, lambda d: d.update(version=2))
    refused("it has version 2, and this program reads 1")
    edited(tmp_path, lambda d: d["training"]["nodes"][0].update(op="aten::from_file", overload=""))
    refused("operation aten::from_file is not one that an exported model may call")
    edited(tmp_path, lambda d: d.pop("parameters"))
    refused("its description is damaged")
    edited(tmp_path, lambda d: d["parameters"][0].update(name=d["parameters"][1]["name"]))
    refused("its description is damaged")
    edited(tmp_path, lambda d: d["training"]["nodes"].pop(0))
    refused("is used before it arises")
    edited(tmp_path, lambda d: d["inputs"].append({"name": "mask", "dtype": "bool", "shape": ["batch", 4]}))
    refused("takes 2 inputs (", "mask)")
    (tmp_path / "net.lsm").write_bytes(good[: len(good) // 2])
    refused()
    (tmp_path / "net.lsm").write_text("no model")
    refused()
    torch.save({}, tmp_path / "net.lsm")
    refused()
    run = train(config, tmp_path / "run", *sets("model.imported.file="))
    expect_error(run, USAGE, "model.imported.file: name a file")


def with_arguments(op, change):
    """Returns an edit of a description that changes the arguments of the first node of this operation."""

    def edit(description):
        change(next(node for node in description["training"]["nodes"] if node.get("op") == op)["args"])

    return edit


def with_argument(op, number, value):
    return with_arguments(op, lambda arguments: arguments.__setitem__(number, value))


def with_node(op, overload, arguments):
    """Returns an edit of a description that adds a call before the others."""

    def edit(description):
        graph = description["training"]
        node = {"op": op, "overload": overload, "args": arguments, "out": [graph["values"]], "module": "added", "line": ""}
        graph["nodes"].insert(0, node)
        graph["values"] += 1

    return edit


def renamed(name):
    return lambda header: header.__setitem__("another", header.pop(name))


def reshaped(name, shape):
    return lambda header: header[name].update(shape=shape)


MADE = [None, None, {"device": "input"}, None]  # the dtype, layout, device and pinning of zeros
WRONG_OPERATIONS = {
    "no state": (None, renamed("state.stem.0.weight"), "parameter stem.0.weight, and the file has no tensor state.stem.0.weight"),
    "no buffer": (None, renamed("state.stem.1.running_var"), "buffer stem.1.running_var, and the file has no tensor"),
    "no constant": (lambda d: d.update(constants=2**40), None, "constant 0, and the file has no tensor constant.0"),
    "constants without number": (lambda d: d.update(constants=1e300), None, "it has no number of constants"),
    "one name for two": (
        lambda d: d["buffers"].append({"name": d["parameters"][0]["name"], "persistent": True}),
        None,
        "two tensors have the name stem.0.weight",
    ),
    "state of another shape": (None, reshaped("state.stem.0.weight", [8, 27, 1, 1]), "input has 3 channels, and weight is for 27"),
    "batch of nothing": (lambda d: d["training"].update(batch=[0, 9]), None, "its batch of 0 to 9 samples is no range"),
    "deep name": (lambda d: d["buffers"][0].update(name="a" + ".a" * 99), None, "more than 64 dots"),
    "stride": (with_argument("aten::conv2d", 3, [2**63 - 1, 1]), None, "aten::conv2d of stem.0", "stride is 9223372036854775807"),
    "no stride": (with_argument("aten::conv2d", 3, [0, 1]), None, "aten::conv2d of stem.0", "stride is 0, and must be positive"),
    "groups": (with_argument("aten::group_norm", 1, 3), None, "aten::group_norm of norm", "8 channels for 3 groups"),
    "fits nowhere": (with_node("aten::zeros", "", [[2**30, 2**30], *MADE]), None, "aten::zeros of added", "failed:"),
    "more than there is": (with_node("aten::zeros", "", [[2**26, 2**20], *MADE]), None, "its result of [67108864, 1048576] would have more than"),
    "overflow": (with_node("aten::zeros", "", [[2**62, 2**62], *MADE]), None, "size is 4611686018427387904"),
}  # fmt: skip


@pytest.fixture(scope="module")
def convnet_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("convnet")
    export(folder, "convnet")
    return (folder / "net.lsm").read_bytes()


@pytest.mark.parametrize("case", WRONG_OPERATIONS.values(), ids=WRONG_OPERATIONS)
def test_wrong_operations(tmp_path, convnet_file, case):
    """A file whose sizes do not go together is refused with one line, before anything is computed."""
    (tmp_path / "net.lsm").write_bytes(convnet_file)
    change, change_tensors, *parts = case
    edited(tmp_path, change or (lambda d: None), change_tensors or (lambda header: None))
    run = train(config_of(tmp_path), tmp_path / "run")
    expect_error(run, USAGE, "net.lsm", *parts)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "place, opening, closing",
    [
        ("version", "[", "]"),
        ("training/nodes/0/args/1", "[", "]"),
        ("training/batch", '{"v":', "}"),
        ("evaluation/another", '{"v":', "}"),
    ],
)
def test_deep_descriptions(tmp_path, convnet_file, place, opening, closing):
    """Lists or objects that lie in each other a hundred thousand deep are refused, and do not exhaust the stack."""
    deep = 100_000
    (length,) = struct.unpack("<Q", convnet_file[:8])
    header = json.loads(convnet_file[8 : 8 + length])
    description = inner = json.loads(header["__metadata__"]["lockstep.model"])
    *path, last = (int(part) if part.isdigit() else part for part in place.split("/"))
    for part in path:
        inner = inner[part]
    inner[last] = "DEEP"
    text = json.dumps(description).replace('"DEEP"', f"{opening * deep}0{closing * deep}", 1)
    header["__metadata__"]["lockstep.model"] = text
    new = json.dumps(header).encode()
    (tmp_path / "net.lsm").write_bytes(struct.pack("<Q", len(new)) + new + convnet_file[8 + length :])
    expect_error(train(config_of(tmp_path), tmp_path / "run"), USAGE, "net.lsm: its description is damaged")


def test_wrong_samples(tmp_path):
    export(tmp_path, "convnet")
    config = config_of(tmp_path)
    np.save(tmp_path / "x.npy", np.zeros((COUNT, 3, 20, 20), np.float32))
    run = train(config, tmp_path / "run")
    expect_error(run, USAGE, "takes inputs of [batch, 3, 16, 16], and the samples give [batch, 3, 20, 20]")
    config = config_of(tmp_path, classes=9)
    expect_error(train(config, tmp_path / "run"), USAGE, "the model's output is Float [8, 5], where one")
    assert not events(tmp_path / "run", "step")


def test_an_operation_that_fails(tmp_path):
    export(tmp_path, "transformer")

    def another_dimension(description):
        nodes = description["training"]["nodes"]
        next(node for node in nodes if node.get("op") == "aten::flatten")["args"][1] = 9

    edited(tmp_path, another_dimension)
    run = train(config_of(tmp_path), tmp_path / "run")
    expect_error(run, USAGE, "net.lsm: training: aten::flatten.using_ints (", ") failed: Dimension out of range")
