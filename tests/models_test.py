"""Compares each built-in model, except the convnet (parity_test.py), with the PyTorch model whose parameter names it
has: torchvision's ResNet and VisionTransformer, Hugging Face's GPT-2 (written out below, because the library is large),
nn.LSTM, nn.Sequential, tabm_reference; and a TorchScript model with its eager original.

From the same weights and the same sample order, every step's loss must agree within 1e-5 relative in fp32, and the
saved weights must load into the PyTorch model.
"""

import numpy as np
import pytest
import safetensors.torch
import torch
import torchvision
from torch import nn
from torch.nn import functional as F

import sampler_reference
import tabm_reference
from harness import (
    DEVICE,
    DONE,
    USAGE,
    expect_refused,
    noisy_digits,
    save_init,
    sets,
    train,
    trained_losses,
    weights_of,
    write_config,
)

SEED, STEPS = 3, 100
SGD = "optimizer { type: SGD lr: 0.001 momentum: 0.9 }"
ADAMW = "optimizer { type: ADAMW lr: 0.001 weight_decay: 0.1 clip_norm: 1 }"


class Conv1D(nn.Module):
    """Computes a linear layer as Hugging Face's GPT-2 does, with a weight of [inputs, outputs]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(inputs, outputs))
        self.bias = nn.Parameter(0.1 * torch.randn(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Gpt2(nn.Module):
    VOCABULARY, WIDTH, HEADS, LAYERS, TOKENS = 50, 32, 4, 2, 16

    def __init__(self):
        super().__init__()
        w = self.WIDTH
        self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(self.VOCABULARY, w), wpe=nn.Embedding(self.TOKENS, w)))
        self.transformer["h"] = nn.ModuleList(
            nn.ModuleDict(
                dict(
                    ln_1=nn.LayerNorm(w),
                    attn=nn.ModuleDict(dict(c_attn=Conv1D(w, 3 * w), c_proj=Conv1D(w, w))),
                    ln_2=nn.LayerNorm(w),
                    mlp=nn.ModuleDict(dict(c_fc=Conv1D(w, 4 * w), c_proj=Conv1D(4 * w, w))),
                )
            )
            for _ in range(self.LAYERS)
        )
        self.transformer["ln_f"] = nn.LayerNorm(w)

    def forward(self, tokens):
        t = self.transformer
        b, n = tokens.shape
        x = t["wte"](tokens) + t["wpe"](torch.arange(n, device=tokens.device))
        for h in t["h"]:
            qkv = h["attn"]["c_attn"](h["ln_1"](x)).split(self.WIDTH, dim=2)
            q, k, v = (part.view(b, n, self.HEADS, -1).transpose(1, 2) for part in qkv)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, -1)
            x = x + h["attn"]["c_proj"](y)
            x = x + h["mlp"]["c_proj"](F.gelu(h["mlp"]["c_fc"](h["ln_2"](x)), approximate="tanh"))
        return t["ln_f"](x) @ t["wte"].weight.T


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(8, 24, num_layers=2, batch_first=True), nn.Linear(24, 10)

    def forward(self, x):
        return self.out(self.rnn(x.view(-1, 8, 8))[0][:, -1])


class Scripted(nn.Module):
    """Uses constructs that a script may contain: a loop over layers, a branch, one tensor under two names, a buffer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.LayerNorm([8, 8, 8])
        self.layers = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))
        self.layers[2].weight = self.layers[0].weight
        self.head = nn.Linear(128, 10)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x):
        x = self.norm(self.conv(x.view(-1, 1, 8, 8)))
        for i, layer in enumerate(self.layers):
            x = x + self.scale * F.gelu(layer(x)) if i < 2 else F.tanh(layer(x))
        return self.head(F.avg_pool2d(x, 2).flatten(1))


def mlp():
    return nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 10))


def digits(folder):
    """Returns (inputs, targets, the text of the config's `data`)."""
    return *noisy_digits(folder, 640), 'format: CSV train: "train.csv"'


def categories(folder):
    """Writes a table with two categorical columns and two numbers. Returns (the inputs as training sees them: the
    numbers, and one feature for each category; the labels; the text of the config's `data`)."""
    random = np.random.default_rng(6)
    color, size = random.integers(0, 6, 320), random.integers(0, 3, 320)
    numbers = random.normal(size=(320, 2)).astype(np.float32)
    labels = (color + size + (numbers.sum(1) > 0)) % 4
    rows = [f"{a},c{c},{b},s{s},{y}" for (a, b), c, s, y in zip(numbers.tolist(), color, size, labels)]
    (folder / "train.csv").write_text("\n".join(rows) + "\n")
    one_hot = [np.eye(6, dtype=np.float32)[color], np.eye(3, dtype=np.float32)[size]]
    x = np.concatenate([numbers[:, :1], one_hot[0], numbers[:, 1:], one_hot[1]], 1)
    return torch.from_numpy(x), torch.from_numpy(labels), 'format: CSV train: "train.csv" csv { category: ["1", "3"] }'


class Embedded(nn.Module):
    """Computes `model` on the samples of categories(). One column has six categories, more than `embed_categories`,
    which is 4. An embedding replaces the six features of this column by four numbers, which come last."""

    def __init__(self, model):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(6, 4)])
        for name, child in model.named_children():
            self.add_module(name, child)
        self.apart = (model,)  # a tuple, so that `model` is not registered as a submodule

    def forward(self, x):
        embedded = self.embeddings[0](x[:, 1:7].argmax(1))
        return self.apart[0](torch.cat([x[:, :1], x[:, 7:], embedded], 1))


class Binned(Embedded):
    """Computes `model` on the samples of categories(). The two numbers become five features each, one for each bin of a
    normal distribution, and come first."""

    def forward(self, x):
        edges = torch.special.ndtri(torch.linspace(0, 1, 6, dtype=torch.float64)).clamp(-3.5, 3.5).to(x)
        low, high = edges[:-1], edges[1:]
        bins = [((x[:, [place]] - low) / (high - low)).clamp(0, 1) for place in (0, 7)]
        embedded = self.embeddings[0](x[:, 1:7].argmax(1))
        return self.apart[0](torch.cat([*bins, x[:, 8:], embedded], 1))


def images(folder):
    random = np.random.default_rng(2)
    labels = random.integers(0, 10, (64, 1), dtype=np.uint8)
    # The images can be learned: each class has a bright band in rows of its own.
    pixels = random.integers(0, 128, (64, 3, 32, 32), dtype=np.uint8)
    for i, label in enumerate(labels[:, 0]):
        pixels[i, :, 3 * label : 3 * label + 4] += 100
    (folder / "train.bin").write_bytes(b"".join(l.tobytes() + p.tobytes() for l, p in zip(labels, pixels)))
    # The pixels are normalised with the program's own rounding, because ResNets magnify differences in the last bits.
    x = torch.from_numpy(pixels).float() * torch.tensor(1 / (255 * 0.25)) + torch.tensor(-2.0)
    return x, torch.from_numpy(labels[:, 0]).long(), 'format: CIFAR10 train: "train.bin" mean: 0.5 std: 0.25'


def tokens(folder):
    random = np.random.default_rng(4)
    text = np.cumsum(random.integers(0, 4, 64 * 16 + 1)) % Gpt2.VOCABULARY
    text.astype(np.uint16).tofile(folder / "train.bin")
    text = torch.from_numpy(text)
    x, y = text[:-1].view(-1, 16), text[1:].view(-1, 16)
    return x, y, 'format: TOKENS train: "train.bin" tokens { length: 16 } classes: 50'


def resnet(depth):
    """Returns a ResNet whose residual branches start small, because otherwise BatchNorm over few values magnifies
    differences in the last bits."""
    model = getattr(torchvision.models, f"resnet{depth}")(num_classes=10)
    for block in model.modules():
        if isinstance(block, (torchvision.models.resnet.BasicBlock, torchvision.models.resnet.Bottleneck)):
            nn.init.constant_((block.bn2 if depth < 50 else block.bn3).weight, 0.1)
    return model


def vit():
    model = torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=10
    )
    # The head's weight would start at zero, and the other layers would then get no gradient.
    nn.init.normal_(model.heads.head.weight, std=0.1)
    return model


TABM = 'name: "tabm" tabm { members: 4 hidden: [32, 24] dropout: 0 }'
VIT = 'name: "vit" vit { patch: 8 layers: 2 heads: 4 width: 32 hidden: 64 }'

# Maps a name to (PyTorch's model, its data, the text of the config's `model`, the batch size, the text of the
# optimizer).
CASES = {
    "mlp": (mlp, digits, "mlp { hidden: [32, 24] batch_norm: true }", 64, ADAMW),
    "tabm": (lambda: tabm_reference.TabM(64, [32, 24], 10, 4), digits, TABM, 64, ADAMW),
    "embedded_mlp": (
        lambda: Embedded(nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 4))),
        categories,
        "mlp { hidden: 16 embed_categories: 4 }",
        64,
        ADAMW,
    ),
    "embedded_tabm": (
        lambda: Embedded(tabm_reference.TabM(9, [16], 4, 3)),
        categories,
        'name: "tabm" tabm { members: 3 hidden: 16 dropout: 0 embed_categories: 4 }',
        64,
        ADAMW,
    ),
    "binned_tabm": (
        lambda: Binned(tabm_reference.TabM(17, [16], 4, 3)),
        categories,
        'name: "tabm" tabm { members: 3 hidden: 16 dropout: 0 embed_categories: 4 number_bins: 5 }',
        64,
        ADAMW,
    ),
    "lstm": (Lstm, digits, 'name: "lstm" lstm { hidden: 24 layers: 2 steps: 8 }', 64, ADAMW),
    "gpt2": (Gpt2, tokens, 'name: "gpt2" gpt2 { layers: 2 heads: 4 width: 32 }', 16, ADAMW),
    "vit": (vit, images, VIT, 16, SGD),
    "torchscript": (Scripted, digits, 'name: "torchscript" torchscript { file: "model.pt" }', 64, SGD),
    "resnet18": (lambda: resnet(18), images, 'name: "resnet" resnet { depth: 18 }', 16, SGD),
    "resnet50": (lambda: resnet(50), images, 'name: "resnet" resnet { depth: 50 }', 8, SGD),
}


def pytorchs_losses(model, x, y, batch, optimizer_text, steps, dtype=None, lr=0.001):
    """Trains PyTorch's model on the device of x and y, with autocast to `dtype` if it is given. Returns the losses of
    `steps` steps."""
    if optimizer_text == SGD:
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.1)
    # The loss scale starts so small that no step is skipped. At a larger scale, PyTorch's gradients of a residual
    # stream in 16 bits would overflow in other steps than Lockstep's.
    scaler = torch.amp.GradScaler(x.device.type, init_scale=256, enabled=dtype == torch.float16)
    losses = []
    for step in sampler_reference.steps(len(x), batch, SEED, epochs=1000):
        with torch.autocast(x.device.type, dtype=dtype, enabled=dtype is not None):
            output = model(x[step]).flatten(0, -2)
            target = y[step].flatten()  # the same targets for all members of an ensemble
            loss = F.cross_entropy(output, target.repeat_interleave(len(output) // len(target)))
        losses.append(loss.item())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if optimizer_text == ADAMW:
            nn.utils.clip_grad_norm_(model.parameters(), 1)
        scaler.step(optimizer)
        scaler.update()
        if len(losses) == steps:
            return np.array(losses)


SMALLER = pytest.mark.all_tier("the smaller ResNet stands for both")
NAMES = [pytest.param(name, marks=SMALLER) if name == "resnet50" else name for name in CASES]


@pytest.fixture(scope="module", params=NAMES)
def case(request, tmp_path_factory):
    """Returns (name, folder, config's text, PyTorch's losses, the model that PyTorch has trained)."""
    make, data, model_text, batch, optimizer_text = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(5)
    torch.set_num_threads(2)
    x, y, data_text = data(folder)
    model = make().train()
    save_init(folder, model.state_dict())
    if request.param == "torchscript":
        # The script's own weights differ from those of init.safetensors, which must replace them.
        torch.jit.script(make()).save(folder / "model.pt")
    # A step of a ResNet takes a third of a second on two cores.
    steps = 30 if request.param.startswith("resnet") else STEPS
    losses = pytorchs_losses(model, x, y, batch, optimizer_text, steps)
    text = f"""seed: {SEED} global_batch: {batch} epochs: 1000 max_steps: {steps} init_from: "init.safetensors"
        log {{ every_steps: 1 }} data {{ {data_text} }} model {{ {model_text} }} {optimizer_text}"""
    return request.param, folder, text, losses, model


def test_losses_are_pytorchs(case, tmp_path):
    name, folder, text, expected, model = case
    if DEVICE == "CUDA" and name.startswith("resnet"):
        pytest.skip("norms over so few values make much of the last bits: PyTorch's own GPU run is as far off its CPU's")
    losses = trained_losses(write_config(folder, text), tmp_path / "run", timeout=600)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    # `strict` means that no name may be missing or unexpected.
    model.load_state_dict(weights_of(tmp_path / "run"), strict=True)


@pytest.mark.skipif(DEVICE == "CPU", reason="16-bit curves are compared on a GPU, whose arithmetic they are")
@pytest.mark.parametrize("precision", ["BF16", "FP16"])
@pytest.mark.all_tier("other models round in the same operations", unless=lambda case: case in ("gpt2", "resnet18"))
def test_16_bit_curves_are_pytorchs(case, precision, tmp_path):
    """Checks that the mean loss of every 20 steps is within 1 % of that of PyTorch's autocast on the same GPU."""
    name, folder, text, _, _ = case
    steps = 200
    torch.manual_seed(5)
    make, data, _, batch, optimizer_text = CASES[name]
    x, y, _ = data(tmp_path)
    x, y = x.cuda(), y.cuda()

    def curve(memory_format):
        model = make().train()
        model.load_state_dict(safetensors.torch.load_file(folder / "init.safetensors"))
        model.cuda()
        if name.startswith("resnet"):
            model.to(memory_format=memory_format)
        dtype = torch.bfloat16 if precision == "BF16" else torch.float16
        return pytorchs_losses(model, x, y, batch, optimizer_text, steps, dtype).reshape(-1, 20).mean(axis=1)

    expected = curve(torch.channels_last)
    tolerance = 0.01
    if name.startswith("resnet"):
        # BatchNorm over few values magnifies differences in the last bits. The difference between the curves of
        # PyTorch's two memory formats shows how much.
        tolerance = max(tolerance, 2 * np.max(np.abs(curve(torch.contiguous_format) / expected - 1)))
    changes = sets(f"precision={precision}", f"max_steps={steps}", "loss_scale.initial=256")
    losses = trained_losses(write_config(folder, text), tmp_path / "run", *changes, timeout=600)
    ours = np.array(losses).reshape(-1, 20).mean(axis=1)
    np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=2e-3)


@pytest.mark.all_tier(
    "accumulation does not depend on the model, and GPT-2 accumulates on every commit",
    unless=lambda case: case == "gpt2",
)
def test_accumulation_changes_no_loss(case, tmp_path):
    _, folder, text, _, model = case
    if any(isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)) for module in model.modules()):
        pytest.skip("BatchNorm's statistics are those of a micro-batch")
    losses = []
    for accumulation in (1, 2, 4, 8):
        config = write_config(folder, text + f" accumulation: {accumulation}")
        losses.append(trained_losses(config, tmp_path / f"run{accumulation}", timeout=600))
        np.testing.assert_allclose(losses[-1], losses[0], rtol=1e-6)


def test_a_vision_transformer_starts_as_torchvisions(tmp_path):
    *_, data_text = images(tmp_path)
    text = f"""max_steps: 1 data {{ {data_text} }} optimizer {{ lr: 0 }}
        model {{ name: "vit" vit {{ patch: 4 layers: 2 heads: 4 width: 64 }} }}"""
    run = train(write_config(tmp_path, text), tmp_path / "run")
    assert run.status == DONE, run
    ours = weights_of(tmp_path / "run")
    model = torchvision.models.VisionTransformer(
        image_size=32, patch_size=4, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=256, num_classes=10
    )
    assert list(ours) == list(model.state_dict())
    for name, theirs in model.state_dict().items():
        assert ours[name].shape == theirs.shape
        if theirs.std() == 0:
            assert torch.equal(ours[name], theirs), name
        else:
            spread = theirs.numel() ** -0.5  # standard error of the mean, relative to the standard deviation
            assert abs(ours[name].std() / theirs.std() - 1) < 5 * spread, name
            assert abs(ours[name].mean()) < 5 * spread * theirs.std(), name


@pytest.mark.parametrize(
    "shape,options,part",
    [
        ("[3, 32, 16]", "", "model vit: images of 32x16 are not square"),
        ("[3, 32, 32]", "patch: 12", "set model.vit.patch, now 12, to a divisor of 32"),
        ("[3, 32, 32]", "heads: 5", "model.vit.width 768 is no multiple of model.vit.heads 5"),
        ("64", "", "model vit: inputs of shape [64] are no images"),
    ],
)
def test_images_that_a_vision_transformer_cannot_take(shape, options, part, tmp_path):
    text = f'data {{ format: SYNTHETIC input_shape: {shape} classes: 2 }} model {{ name: "vit" vit {{ {options} }} }}'
    expect_refused(tmp_path, text, USAGE, part)
