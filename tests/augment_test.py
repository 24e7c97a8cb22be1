"""Compares training on augmented images with the same training in PyTorch, which uses torchvision's functions and a
second implementation of the draws (augment_reference.py). Each step's loss must agree within 1e-5 relative in fp32, for
several numbers of ranks, micro-batches and loader threads. Evaluation must use the images unchanged."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import augment_reference
import sampler_reference
from harness import (
    USAGE,
    Run,
    events,
    expect_error,
    expect_refused,
    save_init,
    sets,
    skip_without_gpus,
    trained_losses,
    write_config,
)

SAMPLES, BATCH, EPOCHS, SEED = 50, 16, 6, 3  # the last batch of an epoch has two samples
SHAPE = (3, 12, 10)
MEAN, STD = 0.4, 0.3

JITTER = {"brightness": 0.4, "contrast": 0.5, "saturation": 0.6, "hue": 0.2}
# Maps the name of a case to (the options of `data.augment`, `label_smoothing`, and maybe `loss.class_weight`).
CASES = {
    "brightness": ({"brightness": 1}, 0),
    "contrast": ({"contrast": 1}, 0),
    "saturation": ({"saturation": 1}, 0),
    "hue": ({"hue": 0.5}, 0),
    "jitter": (JITTER, 0),
    "mixup": ({"mixup": 0.2}, 0),
    "cutmix": ({"cutmix": 1}, 0),
    "all": ({**JITTER, "mixup": 2, "cutmix": 0.5}, 0.1),
    "weights": ({"mixup": 0.5, "cutmix": 1}, 0.1, [0.5, 3, 1.25, 8]),
}


def make_model(channels):
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(channels * SHAPE[1] * SHAPE[2], 24), nn.ReLU(), nn.Linear(24, 4))


def save_images(folder, channels=SHAPE[0]):
    random = np.random.default_rng(2)
    pixels = random.integers(0, 256, (SAMPLES, channels, *SHAPE[1:])).astype("u1")
    labels = np.arange(SAMPLES) % 4
    pixels[:, 0] = pixels[:, 0] // 4 + 48 * labels[:, None, None]
    np.save(folder / "x.npy", pixels)
    np.save(folder / "y.npy", labels)
    save_init(folder, make_model(channels).state_dict())
    return torch.from_numpy(pixels), torch.from_numpy(labels)


def expected_losses(pixels, labels, options, label_smoothing, pieces, class_weight):
    """Trains in PyTorch with `pieces` micro-batches in each step. Returns (the loss of each step, the final loss on all
    samples without augmentation). A step's sum of losses is divided by the sum of the weights of its labels."""
    weight = torch.tensor(class_weight or [1.0] * 4)
    model = make_model(pixels.shape[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses = []
    steps_per_epoch = -(-SAMPLES // BATCH)
    for number, step in enumerate(sampler_reference.steps(SAMPLES, BATCH, SEED, EPOCHS)):
        loss = 0
        for piece in range(pieces):
            indices = step[len(step) * piece // pieces : len(step) * (piece + 1) // pieces]
            if not indices:
                continue
            x, own = augment_reference.augmented(pixels[indices], options, SEED, number // steps_per_epoch, indices)
            output = model(((x - MEAN) / STD).flatten(1))
            part = augment_reference.loss_sum(output, labels[indices], own, label_smoothing, weight)
            loss = loss + part / weight[labels[step]].sum()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        plain = F.cross_entropy(model(((pixels / 255 - MEAN) / STD).flatten(1)), labels, weight=weight)
    return losses, plain.item()


def config_of(folder, options, label_smoothing=0, class_weight=None):
    augment = " ".join(f"{name}: {value}" for name, value in options.items())
    return write_config(
        folder,
        f"""seed: {SEED} global_batch: {BATCH} epochs: {EPOCHS} log {{ every_steps: 1 }} init_from: "init.safetensors"
        data {{ format: NPY train: "x.npy" train: "y.npy" validation: "x.npy" validation: "y.npy" npy {{ kind: PIXELS }}
          mean: {MEAN} std: {STD} augment {{ {augment} }} }}
        model {{ mlp {{ hidden: 24 }} label_smoothing: {label_smoothing} }} loss {{ class_weight: {class_weight or []} }}
        optimizer {{ type: SGD lr: 0.02 momentum: 0.9 }}""",
    )


def expect_pytorchs(folder, options, label_smoothing=0, class_weight=None, channels=SHAPE[0], ranks=None, accumulation=1):
    pixels, labels = save_images(folder, channels)
    config = config_of(folder, options, label_smoothing, class_weight)
    losses = trained_losses(config, folder / "run", *sets(f"accumulation={accumulation}"), ranks=ranks)
    expected, plain = expected_losses(pixels, labels, options, label_smoothing, (ranks or 1) * accumulation, class_weight)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(events(folder / "run", "eval")[-1]["val_loss"], plain, rtol=1e-4)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.all_tier(
    "jitter has all of these parts at once",
    unless=lambda case: case in ("jitter", "mixup", "cutmix", "weights"),
)
def test_losses_are_pytorchs(case, tmp_path):
    expect_pytorchs(tmp_path, *CASES[case])


def test_what_divides_the_weighted_loss():
    """Checks the definition that the documentation gives of mixed losses with class weights, where PyTorch has two. The
    sum of the losses is PyTorch's for probabilities as targets. PyTorch divides that sum by the number of samples, but
    by the sum of the weights if targets are classes. Here the latter divides it, so that samples that are mixed with
    samples of their own class have the same loss as without mixing."""
    output, target, weight = torch.zeros(4, 3), torch.tensor([2, 2, 2, 2]), torch.tensor([1.0, 1.0, 3.0])
    total = augment_reference.loss_sum(output, target, 0.3, 0, weight)
    assert F.cross_entropy(output, F.one_hot(target).float(), weight=weight).item() == pytest.approx(total.item() / 4)
    assert F.cross_entropy(output, target, weight=weight).item() == pytest.approx(total.item() / weight[target].sum().item())


@pytest.mark.parametrize("ranks,accumulation", [(1, 3), (2, 1), (2, 2)])
@pytest.mark.all_tier(
    "four pieces on two ranks have all that fewer pieces have",
    unless=lambda ranks, accumulation: (ranks, accumulation) == (2, 2),
)
def test_losses_are_pytorchs_in_pieces(ranks, accumulation, tmp_path):
    """Checks the losses if each micro-batch draws its own mixture. The last batch has two samples: on two ranks with
    two micro-batches each, two of the four micro-batches have one sample each, and the other two are empty."""
    skip_without_gpus(ranks)
    expect_pytorchs(tmp_path, *CASES["all"], [0.5, 3, 1.25, 8], ranks=ranks, accumulation=accumulation)


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.all_tier("one channel is mixed as four are", unless=lambda channels: channels == 4)
def test_mixes_images_of_any_channels(channels, tmp_path):
    expect_pytorchs(tmp_path, {"mixup": 0.5, "cutmix": 1}, channels=channels)


def test_the_number_of_threads_changes_nothing(tmp_path):
    save_images(tmp_path)
    config = config_of(tmp_path, *CASES["all"])
    seen = [trained_losses(config, tmp_path / f"run{n}", *sets(f"loader.threads={n}")) for n in (0, 1, 3)]
    assert seen[0] == seen[1] == seen[2]


def test_a_held_out_part_changes_no_draws(tmp_path):
    """Checks that a sample's random values depend on its index in the files, and not on its index in the training set
    that is left after a validation set has been held out."""
    save_images(tmp_path)
    config = config_of(tmp_path, {"brightness": 0.5})
    more = ["data.validation=[]", "data.validation_fraction=0.5", "data.shuffle=false", "global_batch=25", "epochs=1"]
    (loss,) = trained_losses(config, tmp_path / "run", *sets(*more))
    pixels, labels = (torch.from_numpy(np.load(tmp_path / name)) for name in ("x.npy", "y.npy"))
    order = sampler_reference.Permutation(SAMPLES, SEED, 2**64 - 1)
    chosen = sorted(order[i] for i in range(25))
    x, own = augment_reference.augmented(pixels[chosen], {"brightness": 0.5}, SEED, 0, chosen)
    output = make_model(SHAPE[0])(((x - MEAN) / STD).flatten(1))
    np.testing.assert_allclose(loss, F.cross_entropy(output, labels[chosen]).item(), rtol=1e-5)


def test_names_wrong_configs(tmp_path):
    def error_of(data, *parts):
        expect_refused(tmp_path, f"data {{ {data} }}", USAGE, *parts)

    np.save(tmp_path / "x.npy", np.zeros((3, 1, 8, 8), "u1"))
    np.save(tmp_path / "y.npy", np.zeros(3, "i8"))
    (tmp_path / "x.csv").write_text("1,0\n2,1\n")
    npy = 'format: NPY train: "x.npy" train: "y.npy"'
    error_of('train: "x.csv" augment { mixup: 1 }', "config.pbtxt:", "data.augment: is for pixels")
    error_of(f"{npy} augment {{ mixup: 1 }}", "config.pbtxt:", "data.augment: is for pixels")
    tokens = "format: SYNTHETIC input_shape: 32 classes: 10 synthetic { kind: TOKENS }"
    error_of(f"{tokens} augment {{ cutmix: 1 }}", "config.pbtxt:", "data.augment: is for pixels")
    pixels = f"{npy} npy {{ kind: PIXELS }}"
    error_of(f"{pixels} augment {{ hue: 0.1 }}", "data.augment.hue: is for images of three channels, not of 1")
    error_of(f"{pixels} augment {{ hue: 0.6 }}", "config.pbtxt:", "data.augment.hue: 0.6 is more than 0.5")
    config = write_config(tmp_path, 'data { train: "x.csv" }')
    expect_error(Run(["train", config, "--set", "data.augment.mixup=1"]), USAGE, "data.augment", "is for pixels")
