"""Tests lockstep.export end to end: a file, executed by lsm_executor.py, computes what the module computes in eager
mode, and a model that cannot be exported ends with one error line.

Modules and files run in fp32 on one thread, from the same weights and the same seed. Therefore, in three steps
of SGD, each output, gradient and updated buffer must agree within 1e-6 of its largest element, also with dropout.
"""

import contextlib
import json
import math
import os
import random
import subprocess
import sys
import warnings
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "python"))

import lockstep  # noqa: E402
from lockstep.export import __main__ as command  # noqa: E402
from lockstep.export import tensor_file  # noqa: E402
from lockstep.export.hidden_state import require_none  # noqa: E402
from lockstep.export.to_torch import to_torch  # noqa: E402
from lockstep.export.weights import load_pretrained  # noqa: E402
from lockstep.export.trace import select_output  # noqa: E402
from hidden_state_models import HIDDEN, HONEST  # noqa: E402
from lsm_executor import LsmModel, read_lsm  # noqa: E402

SEED = 5


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    yield
    torch.set_num_threads(threads)


def close(ours, eager, name=""):
    assert ours is not None and eager is not None, name
    assert ours.shape == eager.shape and ours.dtype == eager.dtype, name
    scale = max(eager.double().abs().max().item(), 1e-6)
    assert (ours.double() - eager.double()).abs().max().item() <= 1e-6 * scale, name


def check_training(model, ours, batches, steps=3):
    """Trains the module `model` and its exported file `ours` on `batches`, tuples of arguments. Compares outputs,
    gradients and buffers in each step, and the outputs in evaluation mode at the end."""
    model.train(), ours.train()
    optimizers = [
        torch.optim.SGD(parameters, lr=0.05)
        for parameters in ([p for p in model.parameters() if p.requires_grad], list(ours.trainable().values()))
    ]
    for step in range(steps):
        batch = batches[step % len(batches)]
        outputs = []
        for call, optimizer in zip((model, ours), optimizers):
            optimizer.zero_grad()
            torch.manual_seed(SEED + step)
            output = select_output(call(*(x.clone() for x in batch)))
            torch.manual_seed(SEED)
            (output * torch.randn(output.shape)).mean().backward()
            outputs.append(output)
        close(*outputs[::-1], f"output of step {step}")
        for name, parameter in model.named_parameters():
            if parameter.grad is None:
                assert ours.parameters_[name].grad is None, name
            else:
                close(ours.parameters_[name].grad, parameter.grad, f"gradient of {name} in step {step}")
        for optimizer in optimizers:
            optimizer.step()
        for name, buffer in model.named_buffers():
            close(ours.buffers_[name], buffer, f"{name} after step {step}")
    model.eval(), ours.eval()
    with torch.no_grad():
        for batch in batches:
            close(ours(*batch), select_output(model(*batch)), "output in evaluation")


def exported(model, inputs, tmp_path):
    path = tmp_path / "net.lsm"
    lockstep.export(model, inputs, path)
    return LsmModel(path)


class ConvNet(nn.Module):
    """Implements a model with BatchNorm, an in-place activation on a residual sum, dropout, a non-persistent buffer and
    a frozen layer."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.conv = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(8, 5)
        self.register_buffer("scale", torch.full((8, 1, 1), 1.5), persistent=False)
        self.stem.weight.requires_grad_(False)

    def forward(self, x):
        x = self.relu(self.norm(self.stem(x)))
        y = self.conv(x) * self.scale
        y += x
        return self.fc(self.drop(self.relu(y).mean((2, 3))))


class DropPath(nn.Module):
    def forward(self, x):
        if not self.training:
            return x
        keep = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(0.8)
        return x * keep.div_(0.8)


class Attention(nn.Module):
    """Implements a model that takes tokens and a mask, has tied weights, calls scaled_dot_product_attention, and
    returns an object with .logits."""

    def __init__(self, words=20, width=16):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(12, width))
        self.qkv = nn.Linear(width, 3 * width)
        self.norm = nn.LayerNorm(width)
        self.path = DropPath()
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens, mask=None):
        count, length = tokens.shape
        x = self.words(tokens) + self.places[:length]
        q, k, v = self.qkv(x).view(count, length, 3, 2, -1).permute(2, 0, 3, 1, 4).unbind(0)
        attend = None if mask is None else mask[:, None, None, :].bool()
        y = F.scaled_dot_product_attention(q, k, v, attend, dropout_p=0.1 if self.training else 0.0)
        x = self.norm(x + self.path(y.transpose(1, 2).reshape(count, length, -1)))
        return SimpleNamespace(logits=self.head(x), hidden=x)


class UNet(nn.Module):
    """Implements a model that returns a dense output [count, classes, height, width] in a dict."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, 2, 1)
        self.bottom = nn.Sequential(nn.BatchNorm2d(8), nn.GELU(), nn.Conv2d(8, 8, 3, 1, 1))
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.out = nn.Conv2d(11, 4, 1)

    def forward(self, x):
        y = self.up(self.bottom(self.down(x)))
        y = F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return {"aux": y.mean(), "out": self.out(torch.cat([x, y], 1))}


def images(*counts, size=16):
    return [(torch.randn(count, 3, size, size),) for count in counts]


def test_convolutions_batch_norm_dropout_and_frozen_parameters(tmp_path):
    model = ConvNet()
    ours = exported(model, torch.randn(2, 3, 16, 16), tmp_path)
    description = ours.description
    assert description["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 3, 16, 16]}]
    assert description["batch"] == [1, 2**31 - 1]
    assert description["head"] == ["fc."]
    assert {p["name"]: p["trainable"] for p in description["parameters"]} == {
        name: parameter.requires_grad for name, parameter in model.named_parameters()
    }
    assert {b["name"]: b["persistent"] for b in description["buffers"]} == {
        "scale": False, "norm.running_mean": True, "norm.running_var": True, "norm.num_batches_tracked": True,
    }  # fmt: skip
    check_training(model, ours, images(6, 1, 3))


def test_the_head_is_the_last_layer_also_if_its_weight_is_computed(tmp_path):
    def head(last, x=torch.randn(2, 6)):
        return exported(nn.Sequential(nn.Linear(6, 6), nn.ReLU(), last), x, tmp_path).description["head"]

    parametrizations = nn.utils.parametrizations
    assert head(nn.Linear(6, 3)) == ["2."]
    for normalised in (parametrizations.weight_norm, parametrizations.spectral_norm):
        assert head(normalised(nn.Linear(6, 3, bias=False))) == ["2.parametrizations.weight."]
    assert head(nn.LSTM(6, 3, batch_first=True), torch.randn(2, 4, 6)) == []  # an LSTM cannot be a new head


def test_dropout_draws_the_right_share(tmp_path):
    class Drops(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1000))

        def forward(self, x):
            return F.dropout(x * self.weight, 0.3, self.training)

    ours = exported(Drops(), torch.ones(2, 1000), tmp_path)
    output = ours(torch.ones(50, 1000))
    assert abs((output == 0).float().mean().item() - 0.3) < 0.01
    assert torch.equal(output[output != 0], torch.full_like(output[output != 0], 1 / 0.7))
    assert torch.equal(ours.eval()(torch.ones(3, 1000)), torch.ones(3, 1000))


def test_several_inputs_tied_parameters_drop_path_and_logits(tmp_path):
    model = Attention()
    tokens = torch.randint(20, (2, 12))
    ours = exported(model, {"tokens": tokens, "mask": torch.ones_like(tokens)}, tmp_path)
    names = [entry["name"] for entry in ours.description["inputs"]]
    assert names == ["tokens", "mask"]
    assert ours.description["parameters"][-1] == {"name": "head.weight", "trainable": True, "same_as": "words.weight"}
    assert ours.description["head"] == []  # the last layer shares the embedding's weight
    assert "state.head.weight" not in read_lsm(tmp_path / "net.lsm")[1]
    batches = []
    for count in (5, 1, 2):
        mask = torch.ones(count, 12, dtype=torch.int64)
        mask[0, 8:] = 0
        batches.append((torch.randint(20, (count, 12)), mask))
    check_training(model, ours, batches)


def test_a_tensor_that_is_passed_twice_is_two_inputs(tmp_path):
    class Difference(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, a, b):
            return self.layer(a - 2 * b)

    model, same = Difference(), torch.ones(2, 3)
    ours = exported(model, (same, same), tmp_path)
    check_training(model, ours, [(torch.randn(4, 3), torch.randn(4, 3))])


def test_a_loss_of_its_own(tmp_path):
    """Tests two losses that a user defines. The first has class weights and returns a number for each sample, and the
    second returns the mean over masks."""

    def by_sample(output, target):
        return F.cross_entropy(output, target, weights, reduction="none") * (1 + target)

    weights = torch.tensor([1.0, 2.0, 3.0, 0.5])
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
    lockstep.export(model, torch.randn(2, 3, 4), tmp_path / "net.lsm", loss=by_sample)
    output, target = torch.randn(5, 4), torch.randint(4, (5,))
    torch.testing.assert_close(LsmModel(tmp_path / "net.lsm").loss(output, target), by_sample(output, target))

    loss = nn.CrossEntropyLoss(torch.rand(4), ignore_index=255)
    lockstep.export(UNet(), torch.randn(2, 3, 16, 16), tmp_path / "net.lsm", loss=loss)
    output, target = torch.randn(3, 4, 16, 16), torch.randint(4, (3, 16, 16))
    torch.testing.assert_close(LsmModel(tmp_path / "net.lsm").loss(output, target), loss(output, target))


MODEL = nn.Linear(3, 4)


@pytest.mark.parametrize(
    "loss, words",
    [
        (lambda output, target: output, "the loss returns neither one number for each sample nor their mean"),
        (lambda output, target: output.detach().sum(1), "the loss gives no gradient to the output"),
        (lambda output, target: output.sum(1) if target.sum() > 0 else output.mean(1), "the loss: "),
        (nn.CrossEntropyLoss(label_smoothing=2), "the loss: "),
        (lambda output, target: output.sum(1) + MODEL.weight.sum(), "the loss uses parameters of the module"),
        (nn.Linear(4, 1), "the loss has parameters: make them the module's"),
    ],
)
def test_wrong_losses(loss, words, tmp_path):
    with pytest.raises(lockstep.ExportError, match=words):
        lockstep.export(MODEL, torch.randn(2, 3), tmp_path / "net.lsm", loss=loss)
    assert not (tmp_path / "net.lsm").exists()


def test_dense_output(tmp_path):
    model = UNet()
    ours = exported(model, (torch.randn(3, 3, 16, 16),), tmp_path)
    check_training(model, ours, images(2, 5))
    assert ours(*images(1)[0]).shape == (1, 4, 16, 16)


def test_one_sample_as_example(tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 2))
    ours = exported(model, torch.randn(1, 3, 4), tmp_path)
    check_training(model, ours, [(torch.randn(7, 3, 4),), (torch.randn(1, 3, 4),)])


def test_batch_norm_of_vectors(tmp_path):
    """Checks that the exported file accepts a batch of one sample, because a rank may have only one sample of a batch
    whose statistics all ranks share. PyTorch's BatchNorm1d refuses one sample in training, and so does a single rank of
    Lockstep (tests/imported_test.py)."""
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    ours = exported(model, torch.randn(2, 6), tmp_path)
    assert ours.description["batch"] == ours.description["training"]["batch"] == [1, 2**31 - 1]
    check_training(model, ours, [(torch.randn(7, 6),), (torch.randn(2, 6),)])
    one = torch.randn(1, 6)
    close(ours(one), model(one))
    with pytest.raises(ValueError, match="more than 1 value"):
        model.train()(one)


def maybe_autocast(device, enabled):
    """Returns an autocast region if autocast is on or `enabled` is true, and a context without effect otherwise, like
    the function of this name in transformers."""
    if torch.is_autocast_enabled(device) or enabled:
        return torch.autocast(device, enabled=enabled)
    return contextlib.nullcontext()


def test_no_grad_and_autocast_regions(tmp_path):
    class Regions(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 6)

        def forward(self, x):
            with torch.no_grad():
                scale = self.fc(x).abs().mean()
            with torch.autocast("cpu", enabled=False):
                y = self.fc(x.float()) / scale
            with maybe_autocast("cpu", enabled=False):
                y = y @ self.fc.weight
            return self.fc(y)

    model = Regions()
    ours = exported(model, torch.randn(2, 6), tmp_path)
    marks = [(node.get("grad", True), node.get("autocast", True)) for node in ours.description["training"]["nodes"]]
    assert (False, True) in marks and marks.count((True, False)) >= 3 and marks[-1] == (True, True)
    check_training(model, ours, [(torch.randn(4, 6),)])
    x = torch.randn(3, 6)
    with torch.autocast("cpu", torch.bfloat16):
        close(ours(x), model(x))


def test_normalised_weights_and_recurrent_layers(tmp_path):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(10, 8)
            self.lstm = nn.LSTM(8, 8, 2, batch_first=True, dropout=0.1, bidirectional=True)
            self.attention = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True)
            self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 6))
            self.weight = nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))

        def forward(self, x):
            y = self.lstm(self.words(x))[0]
            return self.weight(self.spectral(self.attention(y, y, y)[0][:, -1]))

    model = Recurrent()
    tokens = [(torch.randint(10, (count, 6)),) for count in (2, 5)]
    check_training(model, exported(model, tokens[0][0], tmp_path), tokens)


def test_buffers_that_forward_assigns(tmp_path):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)
            self.register_buffer("steps", torch.zeros(()))
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x):
            if self.training:
                self.steps = self.steps + 1
                self.mean.lerp_(x.detach().mean(0), 0.1)
            return self.fc(x - self.mean) + self.steps

    model = Counts()
    check_training(model, exported(model, torch.randn(2, 3), tmp_path), [(torch.randn(4, 3),), (torch.randn(2, 3),)])
    assert model.steps == 3


def test_constants_of_the_module_and_equal_ones_once(tmp_path):
    class Constants(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)
            self.plain = torch.tensor([1.0, 2.0, 3.0])

        def forward(self, x):
            x = x * self.plain * torch.tensor([1.0, 2.0, 3.0])
            return self.fc(x + torch.tensor([0.5, 0.25, 0.1]).clamp(-math.inf, math.inf))

    model = Constants()
    ours = exported(model, torch.randn(2, 3), tmp_path)
    assert ours.description["constants"] == 2
    check_training(model, ours, [(torch.randn(4, 3),)], steps=1)


# Listed operations that a version of torch, and those after it, no longer have.
REMOVED = {"aten::cholesky": "2.15"}


def test_listed_operations_exist_and_neither_read_files_nor_return_values():
    lines = (ROOT / "python/lockstep/operations.txt").read_text().splitlines()
    assert lines == sorted(set(lines))
    for line in lines:
        if line in REMOVED and torch.__version__ >= torch.torch_version.TorchVersion(REMOVED[line]):
            continue
        schema = torch._C._dispatch_find_schema_or_throw(*(line.split(".") if "." in line else (line, "")))
        assert schema is not None, line
    assert not {"aten::from_file", "aten::item", "aten::set_", "aten::resize_", "aten::as_strided"}.intersection(
        line.partition(".")[0] for line in lines
    )


def test_the_module_stays_as_it_was(tmp_path):
    model = ConvNet()
    model.train()
    model.norm.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    lockstep.export(model, torch.randn(2, 3, 16, 16), tmp_path / "net.lsm")
    assert model.training and not model.norm.training and "forward" not in model.__dict__
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_other_tools_open_the_file(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    model = ConvNet().to(torch.float64)
    lockstep.export(model, torch.randn(2, 3, 16, 16, dtype=torch.float64), tmp_path / "net.lsm")
    tensors = safetensors.load_file(tmp_path / "net.lsm")
    assert all(torch.equal(tensors[f"state.{name}"], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.all_tier(
    "these models have the layers that other exports have",
    unless=lambda name: name == "mobilenet_v3_small",
)
@pytest.mark.parametrize("name", ["mobilenet_v3_small", "shufflenet_v2_x0_5", "googlenet", "lraspp_mobilenet_v3_large"])
def test_torchvision(name, tmp_path):
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    extra = {"init_weights": False} if name == "googlenet" else {}
    if name.startswith("lraspp"):
        extra = {"weights_backbone": None}
    size = 64 if name == "googlenet" else 32
    model = models.get_model(name, weights=None, num_classes=6, **extra)
    check_training(model, exported(model, torch.randn(2, 3, size, size), tmp_path), images(3, size=size), steps=1)


def test_timm(tmp_path):
    timm = pytest.importorskip("timm", reason="timm is not installed")
    model = timm.create_model("convnext_atto", num_classes=6, drop_path_rate=0.2)
    ours = exported(model, torch.randn(2, 3, 32, 32), tmp_path)
    assert ours.description["head"] == ["head.fc."]
    check_training(model, ours, images(3, size=32), steps=1)


def test_a_language_model_of_hugging_face(tmp_path, capfd, monkeypatch):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100, n_positions=32)
    config.save_pretrained(tmp_path)
    capfd.readouterr()
    words = ["hf:config.json", "--task", "causal-lm", "--length", "16", "--output", "net.lsm"]
    command_line(tmp_path, capfd, monkeypatch, *words, status=0)
    # A token file gives rows of tokens and no mask, so tokens are the only input.
    assert LsmModel(tmp_path / "net.lsm")(torch.ones(3, 16).long()).shape == (3, 16, 100)
    words[2] = "image-classification"
    line = command_line(tmp_path, capfd, monkeypatch, *words)
    assert "transformers has no gpt2 for image-classification" in line


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_hugging_face(kind, tmp_path, capfd, monkeypatch):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.AutoConfig.for_model(kind, **sizes, num_labels=3, pad_token_id=0, vocab_size=100)
    config.save_pretrained(tmp_path)
    capfd.readouterr()
    command_line(tmp_path, capfd, monkeypatch, f"hf:{tmp_path}", "--length", "16", "--output", "net.lsm", status=0)
    ours = LsmModel(tmp_path / "net.lsm")
    tokens = torch.randint(1, 100, (3, 16))
    mask = torch.ones_like(tokens)
    mask[1, 10:] = 0
    output = ours(tokens, mask)
    assert output.shape == (3, 3)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    model.load_state_dict({name: ours.parameters_.get(name, tensor) for name, tensor in model.state_dict().items()})
    torch.manual_seed(SEED)
    expected = model.train()(input_ids=tokens, attention_mask=mask).logits
    torch.manual_seed(SEED)
    close(ours(tokens, mask), expected)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        close(ours.eval()(tokens, mask), model.eval()(input_ids=tokens, attention_mask=mask).logits)


def command_line(folder, capfd, monkeypatch, *arguments, status=2):
    """Runs main() of `python -m lockstep.export` in `folder`, in this process. Checks the exit status, and returns the
    only line that main() printed."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            returned = command.main(list(arguments))
        except SystemExit as end:
            returned = end.code
    lines = "".join(capfd.readouterr()).splitlines()
    assert returned == status and len(lines) == 1, lines
    return lines[0]


def run_command(folder, *arguments, status=2):
    """Runs `python -m lockstep.export` in `folder`, in a child process. Checks the exit status, and returns the only
    line that the command printed."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "lockstep.export", *arguments]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == status, done.stderr
    lines = (done.stdout + done.stderr).splitlines()
    assert len(lines) == 1, lines
    return lines[0]


NET = """import torch
from torch import nn

def make_net():
    return nn.Sequential(OrderedDict(flat=nn.Flatten(), fc=nn.Linear(12, 4)))

def leave():
    raise SystemExit(7)

class Branches(nn.Linear):
    def forward(self, x):
        x = super().forward(x)
        return x * 2 if x.sum() > 0 else x

def branches():
    return Branches(3, 3)
"""


def test_command_with_weights_of_a_file(tmp_path):
    (tmp_path / "net.py").write_text("from collections import OrderedDict\n" + NET)
    weights = nn.Sequential(OrderedDict(flat=nn.Flatten(), fc=nn.Linear(12, 4))).state_dict()
    torch.save(weights, tmp_path / "net.pt")
    line = run_command(
        tmp_path, "net:make_net", "--shape", "3,2,2", "--pretrained", "net.pt", "--output", "net.lsm", status=0
    )
    assert line == f"net.lsm: net:make_net, 52 parameters, {(tmp_path / 'net.lsm').stat().st_size:,} bytes"
    ours = LsmModel(tmp_path / "net.lsm")
    assert all(torch.equal(ours.parameters_[name], tensor) for name, tensor in weights.items())
    assert ours.description["name"] == "net:make_net"
    assert sorted(set(os.listdir(tmp_path)) - {"__pycache__"}) == ["net.lsm", "net.pt", "net.py"]


def test_command_writes_the_same_weights_each_time(tmp_path, capfd, monkeypatch):
    (tmp_path / "seeded.py").write_text("from collections import OrderedDict\n" + NET)
    written = []
    for seed in ([], ["--seed", "0"], ["--seed", "1"]):
        words = ["seeded:make_net", "--shape", "3,2,2", *seed, "--output", "net.lsm"]
        command_line(tmp_path, capfd, monkeypatch, *words, status=0)
        written.append((tmp_path / "net.lsm").read_bytes())
    assert written[0] == written[1] != written[2]


def test_weights_of_another_head(tmp_path):
    def net(classes):
        layers = [("body", nn.Conv2d(3, 8, 3)), ("norm", nn.BatchNorm2d(8)), ("fc", nn.Linear(8, classes))]
        return nn.Sequential(OrderedDict(layers))

    def without(part):
        return {name: tensor for name, tensor in net(2).state_dict().items() if part not in name}

    model, path = net(2), str(tmp_path / "weights.pt")
    for theirs, kept in (
        (net(5).state_dict(), ["fc.weight", "fc.bias"]),  # weights for another number of classes
        (without("fc") | {"cls.weight": torch.ones(3)}, ["fc.bias", "fc.weight"]),  # another task's head
        (without("tracked"), []),  # old PyTorch versions wrote files without num_batches_tracked
    ):
        torch.save(theirs, path)
        if kept:
            with pytest.raises(lockstep.ExportError, match="has other shapes of fc.weight|lacks fc.bias"):
                load_pretrained(model, path)
        head = model.fc.weight.detach().clone()
        assert load_pretrained(model, path, replace_head=True).kept == kept
        assert torch.equal(model.body.weight, theirs["body.weight"])
        assert torch.equal(model.fc.weight, head if kept else theirs["fc.weight"])
    torch.save({"other.weight": torch.ones(3)}, path)
    with pytest.raises(lockstep.ExportError, match="less than half of the module's weights"):
        load_pretrained(model, path, replace_head=True)


class MySwish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        share = torch.sigmoid(x)
        return gradient * (share * (1 + x * (1 - share)))


def test_a_function_whose_backward_autograd_would_find_itself(tmp_path):
    model = Wrong(MySwish.apply)
    check_training(model, exported(model, torch.randn(2, 6), tmp_path), [(torch.randn(4, 6),), (torch.randn(1, 6),)])


def test_a_branch_for_one_sample_makes_two_the_smallest_batch(tmp_path):
    model = Wrong(lambda x: x * 2 if x.shape[0] == 1 else x)
    ours = exported(model, torch.randn(3, 6), tmp_path)
    assert ours.description["batch"] == [2, 2**31 - 1]
    check_training(model, ours, [(torch.randn(2, 6),), (torch.randn(5, 6),)])


def test_a_branch_for_large_batches_makes_a_largest_batch(tmp_path):
    model = Wrong(lambda x: x * 2 if x.shape[0] > 8 else x)
    ours = exported(model, torch.randn(3, 6), tmp_path)
    assert ours.description["batch"] == [2, 8]
    check_training(model, ours, [(torch.randn(2, 6),), (torch.randn(8, 6),)])


def test_tensors_from_nothing_have_the_type_and_place_of_the_export(tmp_path):
    def compute(x):
        return x + torch.rand(6) * torch.arange(x.shape[0])[:, None] + torch.full((6,), 0.1)

    torch.set_default_dtype(torch.float64)
    try:
        ours = exported(Wrong(compute), torch.randn(2, 6), tmp_path)
    finally:
        torch.set_default_dtype(torch.float32)
    assert ours(torch.randn(3, 6, dtype=torch.float64)).dtype == torch.float64
    nodes = ours.description["training"]["nodes"]
    made = [node["args"] for node in nodes if node.get("op") in ("aten::rand", "aten::full")]
    assert len(made) == 2 and all({"dtype": "float64"} in args and {"device": "input"} in args for args in made)


def test_weights_of_a_run_go_back_to_torch(tmp_path):
    model = Attention()
    model.register_buffer("seen", torch.zeros(3), persistent=False)
    tokens = torch.randint(20, (2, 12))
    lockstep.export(model, {"tokens": tokens, "mask": torch.ones_like(tokens)}, tmp_path / "net.lsm")
    (tmp_path / "run").mkdir()
    kept = {name: tensor + 1 for name, tensor in model.state_dict().items() if name != "head.weight"}
    tensor_file.write(str(tmp_path / "run/weights.safetensors"), kept, {})
    line = run_command(tmp_path, "--to-torch", "run", "net.lsm", "--output", "net.pt", status=0)
    assert line == f"net.pt: {len(kept) + 1} tensors of run"
    state = torch.load(tmp_path / "net.pt", weights_only=True)
    assert list(state) == list(model.state_dict())
    other = Attention()
    other.load_state_dict(state)
    assert all(torch.equal(other.state_dict()[name], tensor) for name, tensor in kept.items())
    to_torch(str(tmp_path / "run"), str(tmp_path / "short.pt"))
    assert torch.load(tmp_path / "short.pt", weights_only=True).keys() == kept.keys()


def test_weights_that_do_not_go_back_to_torch(tmp_path, capfd, monkeypatch):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no weights")
    lockstep.export(Wrong(torch.tanh), torch.randn(2, 6), tmp_path / "net.lsm")
    tensor_file.write(str(tmp_path / "other"), {"weight": torch.zeros(3)}, {})
    for arguments, expected in (
        (["--to-torch", "empty"], "empty/weights.safetensors does not exist: name a run that is done"),
        (["--to-torch", "text"], "text: no weights can be read"),
        (["--to-torch", "other", "net.lsm"], "other lacks fc.bias, fc.weight, which the module of net.lsm has"),
        (["--to-torch", "other", "other"], "other is no file that lockstep.export wrote"),
        (["--to-torch", "other", "text"], "text: "),
        (["--to-torch", "other", "nowhere"], "nowhere: "),
        ([], "name a model, or a run with --to-torch"),
    ):
        line = command_line(tmp_path, capfd, monkeypatch, *arguments, "--output", "net.pt")
        assert line.startswith("lockstep.export: ") and expected in line, line
        assert not (tmp_path / "net.pt").exists()


# Wrong inputs: each gives one error line. -----------------------------------------------------------------------------


def refused(model, inputs, tmp_path):
    path = tmp_path / "refused.lsm"
    with pytest.raises(lockstep.ExportError) as caught:
        lockstep.export(model, inputs, path)
    assert not path.exists() and not list(tmp_path.glob("refused.lsm*"))
    text = str(caught.value)
    assert "\n" not in text and len(text) < 500
    return text


class Wrong(nn.Module):
    def __init__(self, compute):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.compute = compute

    def forward(self, x):
        return self.compute(self.fc(x))


def prints(x):
    print("shape", x.shape)
    return x


def branches(x):
    if x.sum() > 0:
        return x * 2
    return x


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def hooked(x):
    x.register_hook(lambda gradient: gradient * 3)
    return x * 2


def inferred(x):
    with torch.inference_mode():
        scale = x.abs().mean()
    return x * scale.clone()


CALLS = []


def counts(x):
    CALLS.append(1)
    return x * len(CALLS)


WRONG = {
    "prints": (prints, "the module prints"),
    "branches": (branches, "depends on values of a tensor"),
    "item": (lambda x: x * x.mean().item(), "aten::item reads a value of a tensor"),
    "complex": (lambda x: torch.fft.fft(x).abs(), "complex numbers"),
    "mask": (lambda x: x[x > 0].sum(), "depends on values"),
    "unlisted": (lambda x: x * torch.linalg.svdvals(x).sum(), "aten::linalg_svdvals is not among the operations"),
    "no output": (lambda x: "text", "returns a str"),
    "integers": (lambda x: (x > 0).long(), "torch.int64 where floats are expected"),
    "detached": (lambda x: x.detach(), "no gradient reaches"),
    "raises": (lambda x: x.view(7, 11), "shape '[7, 11]' is invalid"),
    "fixed batch": (lambda x: x + torch.ones(2, 6), "fixed batch"),
    "autocast": (lambda x: inside_autocast(x), "enables autocast"),
    "even batch": (lambda x: x.view(-1, 2, 6).flip(1).view(-1, 6), "any number of samples at a time, but 4, 6"),
    "data": (lambda x: x + x.data, ".data (write .detach())"),
    "straight through": (lambda x: x * StraightThrough.apply(x), "backward of StraightThrough (export_test.py:"),
    "hook": (hooked, "the gradient of fc.weight of the graph differs"),
    "inference mode": (inferred, "the gradient of fc.weight of the graph differs"),
    "counter": (counts, "changes the variable CALLS"),
    "random": (lambda x: x * random.random(), "draws random numbers from Python's random"),
}  # fmt: skip


def inside_autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x.t()


@pytest.mark.parametrize("case", WRONG)
def test_wrong_modules(case, tmp_path):
    compute, expected = WRONG[case]
    text = refused(Wrong(compute), torch.randn(4 if case == "even batch" else 2, 6), tmp_path)
    assert expected in text, text
    if case in ("prints", "branches", "item", "complex", "mask", "unlisted", "raises", "fixed batch", "autocast"):
        assert "export_test.py:" in text, text


IN_COMMITS = """layer_drop numpy_layer_drop own_generator branch_on_an_item new_generator clock counter first_call
    counter_in_a_dict iterator global_variable closure inner_module""".split()


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.all_tier("another place for the same state", unless=lambda name: name in IN_COMMITS)
def test_hidden_state_is_refused(name, tmp_path):
    """Checks that the error has the line of the module's code."""
    make, expected = HIDDEN[name]
    text = refused(make(), torch.randn(4, 6), tmp_path)
    assert expected in text, text
    if name != "first_call":
        assert text.startswith("hidden_state_models.py:"), text


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.all_tier(
    "another thing that looks like state",
    unless=lambda name: name in ("dropout_and_norm", "cache_in_a_dict", "counter_that_nothing_reads", "layer_drop_with_rate_0"),
)
def test_what_is_no_hidden_state(name, tmp_path):
    lockstep.export(HONEST[name](), torch.randn(4, 6), tmp_path / "net.lsm")


def test_the_search_for_hidden_state_restores_generators():
    state, model = random.getstate(), HONEST["layer_drop_with_rate_0"]()
    calls = {"": lambda: {"output": model(torch.ones(4, 6)).detach() * random.random() * 0}}
    require_none(model, calls, lambda ours, theirs: "" if torch.equal(*(r["output"] for r in (ours, theirs))) else "output")
    assert random.getstate() == state


def test_a_loss_with_hidden_state(tmp_path):
    def loss(output, target):
        rate = 0.1 if random.random() < 0.01 else 0.0
        return F.cross_entropy(output, target, label_smoothing=rate)

    with pytest.raises(lockstep.ExportError, match=r"export_test.py:\d+: the loss: loss\(\) draws random numbers"):
        lockstep.export(nn.Linear(6, 3), torch.randn(4, 6), tmp_path / "net.lsm", loss=loss)


def test_wrong_arguments(tmp_path):
    model = Wrong(torch.tanh)
    assert "different numbers of samples" in refused(model, (torch.randn(2, 6), torch.randn(3, 6)), tmp_path)
    assert "no tensor" in refused(model, (3,), tmp_path)
    assert "inputs is a list" not in refused(model, [torch.randn(2, 5)], tmp_path)
    assert "dimension 0" in refused(model, torch.tensor(1.0), tmp_path)
    assert "requires a gradient" in refused(nn.ReLU(), torch.randn(2, 6), tmp_path)


def test_wrong_paths(tmp_path):
    model, inputs = Wrong(torch.tanh), torch.randn(2, 6)
    for path, expected in ((tmp_path, "not a plain file"), (tmp_path / "no" / "net.lsm", "does not exist")):
        with pytest.raises(lockstep.ExportError, match=expected):
            lockstep.export(model, inputs, path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(lockstep.ExportError, match="not a plain file"):
        lockstep.export(model, inputs, tmp_path / "pipe")
    kept = tmp_path / "kept.lsm"
    kept.write_text("kept")
    with pytest.raises(lockstep.ExportError):
        lockstep.export(Wrong(branches), inputs, kept)
    assert kept.read_text() == "kept"


def test_torch_export_prints_nothing_beside_the_line(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    line = run_command(tmp_path, "net:branches", "--shape", "3", "--output", "net.lsm")
    assert line.startswith("lockstep.export: net:branches: net.py:13: in training, the control flow"), line


def test_wrong_commands(tmp_path, capfd, monkeypatch):
    (tmp_path / "net.py").write_text(NET)  # the module does not import OrderedDict
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nothing"}))
    (tmp_path / "bad.pt").write_bytes(b"\x00" * 100)
    for arguments, expected in (
        (["net:make_net"], "net:make_net: net.py:5: name 'OrderedDict' is not defined"),
        (["net:leave"], "net:leave: net.py:8: 7"),
        (["net:other"], "has no attribute 'other'"),
        (["nothing"], "name a model as timm:NAME"),
        (["missing:make"], "No module named 'missing'"),
        (["hf:nowhere"], "there is no such folder"),
        (["timm:nothing"], "timm"),
        (["torchvision:resnet9"], "torchvision has no model resnet9"),
        (["torchvision:resnet18", "--size", "0"], "--size"),
        (["torchvision:resnet18", "--size", "32", "--pretrained", "bad.pt"], "bad.pt: no weights can be read"),
    ):
        line = command_line(tmp_path, capfd, monkeypatch, *arguments, "--output", "net.lsm")
        assert line.startswith("lockstep.export: ") and expected in line, line
        assert not (tmp_path / "net.lsm").exists()
    for output, words, expected in (
        ("net.onnx", ["net:make_net"], "name it net.lsm, as .lsm is what is written; this format is not written yet"),
        ("net.PT", ["net:make_net"], "with --to-torch RUN"),
        ("net.safetensors", ["--to-torch", "run"], "name it net.pt, as .pt is what is written; `lockstep export RUN"),
        ("net.onnx", ["--to-torch", "run"], "torch.onnx.export()"),
    ):
        line = command_line(tmp_path, capfd, monkeypatch, *words, "--output", output)
        assert f"--output {output}: " in line and expected in line, line
        assert not (tmp_path / output).exists()
