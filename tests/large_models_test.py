"""Compares models of full size in bfloat16 with PyTorch's autocast on the same GPU: losses, gradients, the running
statistics of BatchNorm, and the accuracy. models_test.py compares small models on any machine."""

import numpy as np
import pytest
import safetensors.torch
import torch
import torchvision
from torch import nn
from torch.nn import functional as F

import models_test
import sampler_reference
from harness import DEVICE, DIGITS, events, save_init, sets, trained_losses, weights_of, write_config

pytestmark = pytest.mark.skipif(DEVICE == "CPU", reason="kernels for 16 bits run on a GPU, and these models are large")

SEED = models_test.SEED


class Gpt2(models_test.Gpt2):
    """Implements GPT-2 124M, initialised as in Radford et al. (2019)."""

    VOCABULARY, WIDTH, HEADS, LAYERS, TOKENS = 50257, 768, 12, 12, 1024

    def __init__(self):
        super().__init__()
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
            elif "ln_" not in name:
                nn.init.zeros_(parameter)


def text(folder):
    """Writes sequences of 1,024 tokens, in which nine tenths of the tokens are determined by the token before. Returns
    (inputs, targets, the text of the config's data)."""
    random = np.random.default_rng(7)
    follower = random.permutation(Gpt2.VOCABULARY)
    # 200 steps of 16 sequences take 3,200 sequences, so no sequence is repeated. The model would memorise repeated
    # sequences, and rounding would then change the loss more.
    tokens = np.empty(3200 * 1024 + 1, np.int64)
    tokens[0] = 0
    surprises = random.random(len(tokens)) < 0.1
    # The tokens that are not determined by the token before follow Zipf's distribution, as words do.
    words = np.minimum(random.zipf(1.3, len(tokens)), Gpt2.VOCABULARY) - 1
    for i in range(1, len(tokens)):
        tokens[i] = words[i] if surprises[i] else follower[tokens[i - 1]]
    tokens.astype(np.uint16).tofile(folder / "train.bin")
    tokens = torch.from_numpy(tokens)
    data = f'format: TOKENS train: "train.bin" tokens {{ length: 1024 }} classes: {Gpt2.VOCABULARY}'
    return tokens[:-1].view(-1, 1024).cuda(), tokens[1:].view(-1, 1024).cuda(), data


def photographs(folder, count=128, size=224):
    """Writes smooth images with random labels of ten classes. Returns (pixels [count, 3, size, size], normalised as the
    config does; labels; the text of the config's data)."""
    random = torch.Generator().manual_seed(7)
    coarse = torch.rand(count, 3, 14, 14, generator=random)
    pixels = (F.interpolate(coarse, size, mode="bicubic").clamp(0, 1) * 255).to(torch.uint8)
    labels = torch.randint(10, (count,), generator=random)
    np.save(folder / "x.npy", pixels.numpy())
    np.save(folder / "y.npy", labels.numpy())
    data = 'format: NPY train: "x.npy" train: "y.npy" npy { kind: PIXELS } classes: 10 mean: 0.5 std: 0.25'
    return pixels.cuda() / (255 * 0.25) - 2, labels.cuda(), data


def lockstep(folder, name, config, *settings):
    """Trains with Lockstep in bfloat16. Returns (the losses, the saved weights)."""
    words = sets("precision=BF16", *settings)
    losses = trained_losses(write_config(folder, config), folder / name, *words, timeout=900)
    return np.array(losses), weights_of(folder / name)


def gradients(model, x, y, dtype):
    """Returns the gradients of the mean loss of one batch, computed with autocast to `dtype`, or in float32 if it is
    None."""
    model.zero_grad()
    with torch.autocast("cuda", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        loss = F.cross_entropy(model(x).flatten(0, -2).float(), y.flatten())
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def relative_error(tensors, expected):
    """Returns |tensors - expected| / |expected|, where the norms are over all tensors together."""
    difference = sum(((tensors[name].cuda() - expected[name]).double() ** 2).sum() for name in expected)
    return float((difference / sum((tensor.double() ** 2).sum() for tensor in expected.values())) ** 0.5)


CASES = {
    "gpt2": (Gpt2, text, 'name: "gpt2"', 16),
    "resnet50": (lambda: models_test.resnet(50), photographs, 'name: "resnet" resnet { depth: 50 }', 64),
}


def prepared(name, folder):
    """Returns (PyTorch's model, inputs and targets on the GPU, the batch size, a config without an optimizer)."""
    torch.manual_seed(5)
    make, data, model_text, batch = CASES[name]
    model = make().train()
    save_init(folder, model.state_dict())
    model.cuda()
    if name == "resnet50":
        model.to(memory_format=torch.channels_last)
    x, y, data_text = data(folder)
    config = f"""seed: {SEED} global_batch: {batch} epochs: 1000 log {{ every_steps: 1 }} init_from: "init.safetensors"
        data {{ {data_text} }} model {{ {model_text} }}"""
    return model, x, y, batch, config


@pytest.fixture(autouse=True)
def exact_float32():
    """Turns TF32 off for PyTorch's float32 during a test."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def test_losses_of_200_steps_of_gpt2(tmp_path):
    """Checks that the mean losses of every ten steps differ from PyTorch's by at most 0.5 %."""
    model, x, y, batch, config = prepared("gpt2", tmp_path)
    # With ten times this learning rate, even the losses of a training in float32 jump from step to step.
    lr = 0.0001
    expected = models_test.pytorchs_losses(model, x, y, batch, models_test.ADAMW, 200, torch.bfloat16, lr)
    ours, _ = lockstep(tmp_path, "run", config + " max_steps: 200 " + models_test.ADAMW, f"optimizer.lr={lr}")
    print("first, last:", expected[[0, -1]], ours[[0, -1]])
    assert expected[-10:].mean() < 0.8 * expected[0]  # the model has learned
    windows = [losses.reshape(-1, 10).mean(axis=1) for losses in (ours, expected)]
    print("greatest difference:", np.max(np.abs(windows[0] / windows[1] - 1)))
    np.testing.assert_allclose(*windows, rtol=0.005)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_as_close_to_float32s(name, tmp_path):
    """Checks that Lockstep's gradients are at most 1.05 times as far from float32's as those of PyTorch's autocast. One
    step of SGD with learning rate 1 changes the weights by the gradients."""
    model, x, y, batch, config = prepared(name, tmp_path)
    _, weights = lockstep(tmp_path, "run", config + " max_steps: 1 optimizer { type: SGD lr: 1 }")
    ours = {key: parameter.detach() - weights[key].cuda() for key, parameter in model.named_parameters()}
    step = sampler_reference.steps(len(x), batch, SEED, epochs=1)
    chosen = next(iter(step))
    exact = gradients(model, x[chosen], y[chosen], None)
    error = relative_error(ours, exact)
    pytorchs = relative_error(gradients(model, x[chosen], y[chosen], torch.bfloat16), exact)
    print(f"{name}: relative error {error:.5f}, PyTorch's {pytorchs:.5f}")
    assert error <= 1.05 * pytorchs


def test_running_statistics_of_resnet50(tmp_path):
    """Checks the running statistics after 20 steps that leave the weights unchanged. Their relative distance from
    autocast's statistics is at most 1e-3. Their relative distance from float32's statistics is at most 1.05 times as
    large as that of autocast's statistics."""
    model, x, y, batch, config = prepared("resnet50", tmp_path)
    _, ours = lockstep(tmp_path, "run", config + " max_steps: 20 optimizer { type: SGD lr: 1e-30 }")

    def statistics(dtype):
        model.load_state_dict(safetensors.torch.load_file(tmp_path / "init.safetensors"))
        steps = iter(sampler_reference.steps(len(x), batch, SEED, epochs=1000))
        with torch.no_grad(), torch.autocast("cuda", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            for _ in range(20):
                model(x[next(steps)])
        return {key: buffer.clone() for key, buffer in model.named_buffers() if "running" in key}

    exact, rounded = statistics(None), statistics(torch.bfloat16)
    for kind in ("running_mean", "running_var"):
        of_kind = [{key: value for key, value in found.items() if key.endswith(kind)} for found in (exact, rounded)]
        from_float32 = relative_error(ours, of_kind[0])
        pytorchs = relative_error(rounded, of_kind[0])
        from_pytorch = relative_error(ours, of_kind[1])
        print(f"{kind}: off float32's by {from_float32:.6f}, PyTorch's by {pytorchs:.6f}; off PyTorch's {from_pytorch:.6f}")
        assert from_pytorch <= 1e-3
        assert from_float32 <= 1.05 * pytorchs


def enlarged_digits(folder):
    """Writes the digits as images like CIFAR-10's, uint8 [3, 32, 32], to train.bin and validation.bin. Returns
    (normalised pixels, labels) of each file."""
    table = np.loadtxt(DIGITS, delimiter=",", dtype=np.int64)
    pixels = np.round(table[:, :64].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    pixels = np.broadcast_to(pixels.repeat(4, axis=1).repeat(4, axis=2)[:, None], (len(table), 3, 32, 32))
    files = []
    for name, part in (("train", slice(None, 1400)), ("validation", slice(1400, None))):
        x, y = np.ascontiguousarray(pixels[part]), table[part, 64]
        (folder / f"{name}.bin").write_bytes(b"".join(bytes([label]) + image.tobytes() for label, image in zip(y, x)))
        files.append((torch.from_numpy(x).cuda() / (255 * 0.25) - 2, torch.from_numpy(y).cuda()))
    return files


def test_the_accuracy_of_resnet18(tmp_path):
    """Checks on real images that the mean accuracy over three seeds differs from PyTorch's by at most the range of the
    accuracies over the seeds: Lockstep's range or PyTorch's range, whichever is larger, or 0.01 if both are smaller."""
    (x, y), (other_x, other_y) = enlarged_digits(tmp_path)
    epochs, batch = 10, 56
    ours, pytorchs = [], []
    for seed in range(3):
        torch.manual_seed(seed)
        model = torchvision.models.resnet18(num_classes=10)
        save_init(tmp_path, model.state_dict())
        config = f"""seed: {seed} global_batch: {batch} epochs: {epochs} init_from: "init.safetensors"
            data {{ format: CIFAR10 train: "train.bin" validation: "validation.bin" mean: 0.5 std: 0.25 }}
            model {{ name: "resnet" resnet {{ depth: 18 }} }} optimizer {{ type: SGD lr: 0.02 momentum: 0.9 }}"""
        lockstep(tmp_path, f"run{seed}", config)
        ours.append(events(tmp_path / f"run{seed}", "eval")[-1]["val_accuracy"])

        model.cuda().to(memory_format=torch.channels_last).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        for step in sampler_reference.steps(len(x), batch, seed, epochs=epochs):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x[step]), y[step])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
            pytorchs.append((model.eval()(other_x).argmax(1) == other_y).float().mean().item())
    print("accuracies:", ours, "PyTorch's:", pytorchs)
    assert min(pytorchs) > 0.9
    noise = max(np.ptp(pytorchs), np.ptp(ours), 0.01)
    assert abs(np.mean(ours) - np.mean(pytorchs)) <= noise
