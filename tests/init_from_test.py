"""Tests models that come from files: TorchScript files, and weights as Hugging Face and torchvision write them, with
the last layer kept or replaced.

Where the learning rate is 0, the parameters stay as they were loaded, so the run's saved weights show what was loaded.
"""

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

from harness import (
    CHECKPOINT,
    DONE,
    USAGE,
    Run,
    digits_data,
    events,
    expect_error,
    save_init,
    skip_without_gpus,
    train,
    weight_bytes,
    weights_of,
    write_config,
)

STANDSTILL = "max_steps: 1 global_batch: 8 optimizer { lr: 0 }\n"
DIGITS_DATA = digits_data("validation_fraction: 0.2") + "\n"
CIFAR_DATA = 'data { format: CIFAR10 train: "train.bin" validation_fraction: 0.25 }\n'
RESNET = CIFAR_DATA + 'model { name: "resnet" resnet { depth: 18 } }\n'
VIT = CIFAR_DATA + 'model { name: "vit" vit { patch: 8 layers: 2 heads: 2 width: 16 } }\n'
GPT2 = """data { format: TOKENS train: "train.bin" tokens { length: 16 } classes: 50 }
    model { name: "gpt2" gpt2 { layers: 2 heads: 2 width: 16 } }\n"""
INIT = 'init_from: "init.safetensors"\n'
SCRIPT = 'model { name: "torchscript" torchscript { file: "model.pt" } }\n'


def train_on(folder, text, name="run", ranks=None):
    return train(write_config(folder, text), folder / name, ranks=ranks)


def expect_equal(weights, expected):
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(weights[name], tensor), name


def write_tokens(folder):
    np.random.default_rng(4).integers(0, 50, 16 * 16 + 1, dtype=np.uint16).tofile(folder / "train.bin")


def write_images(folder):
    random = np.random.default_rng(2)
    rows = random.integers(0, 256, (32, 1 + 3 * 32 * 32), dtype=np.uint8)
    rows[:, 0] %= 10
    rows.tofile(folder / "train.bin")


@pytest.fixture
def gpt2(tmp_path):
    """Returns (the folder with the data, the weights of a small GPT-2 under the names that Lockstep saves)."""
    write_tokens(tmp_path)
    run = train_on(tmp_path, GPT2 + STANDSTILL + "seed: 9", "first")
    assert run.status == DONE, run
    return tmp_path, weights_of(tmp_path / "first")


def hugging_face(weights):
    """Returns the weights as in checkpoints of GPT2Model: without the prefix "transformer.", and with each layer's
    attention masks."""
    bare = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}
    for layer in range(2):
        bare[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 1024, 1024).tril()
        bare[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    return bare


def test_hugging_faces_gpt2(gpt2):
    folder, weights = gpt2
    save_init(folder, hugging_face(weights))
    run = train_on(folder, GPT2 + STANDSTILL + INIT)
    assert run.status == DONE, run
    expect_equal(weights_of(folder / "run"), weights)


def test_hugging_faces_gpt2_with_a_head_and_more_places(gpt2):
    folder, weights = gpt2
    places = torch.cat([weights["transformer.wpe.weight"], torch.ones(1008, 16)])
    head = {"lm_head.weight": weights["transformer.wte.weight"].clone()}
    more = {"transformer.wpe.weight": places, "transformer.h.0.attn.bias": torch.ones(1, 1, 16, 16)}
    save_init(folder, weights | head | more)
    run = train_on(folder, GPT2 + STANDSTILL + INIT)
    assert run.status == DONE, run
    expect_equal(weights_of(folder / "run"), weights)


def test_a_gpt2_with_a_head_of_its_own(gpt2):
    folder, weights = gpt2
    save_init(folder, weights | {"lm_head.weight": weights["transformer.wte.weight"] + 1})
    run = train_on(folder, GPT2 + STANDSTILL + INIT)
    expect_error(run, CHECKPOINT, "not in the model: lm_head.weight (1 of the file's 29 tensors)")


def test_a_gpt2_with_fewer_places(gpt2):
    folder, weights = gpt2
    save_init(folder, weights | {"transformer.wpe.weight": weights["transformer.wpe.weight"][:8]})
    run = train_on(folder, GPT2 + STANDSTILL + INIT)
    expect_error(run, CHECKPOINT, "transformer.wpe.weight has shape [8, 16] where the model has [16, 16]")
    assert "replace_head" not in run.err


def test_torchvisions_resnet_with_another_head(tmp_path):
    write_images(tmp_path)
    torch.manual_seed(1)
    model = torchvision.models.resnet18(num_classes=1000)
    # Files of older PyTorch versions lack num_batches_tracked.
    save_init(tmp_path, {k: v for k, v in model.state_dict().items() if not k.endswith("num_batches_tracked")})
    expect_error(
        train_on(tmp_path, RESNET + STANDSTILL + INIT),
        CHECKPOINT,
        "fc.weight has shape [1000, 512] where the model has [10, 512]; to start that layer at random set replace_head: true",
    )

    run = train_on(tmp_path, RESNET + STANDSTILL + INIT + "replace_head: true")
    assert run.status == DONE, run
    weights = weights_of(tmp_path / "run")
    for name, parameter in model.named_parameters():
        if not name.startswith("fc."):
            assert torch.equal(weights[name], parameter), name
    assert weights["fc.weight"].shape == (10, 512)
    assert 0 < weights["fc.weight"].abs().max() <= 512**-0.5
    assert weights["bn1.num_batches_tracked"] == 1

    # `evaluate` uses the trained weights, with the replaced head.
    loss = events(tmp_path / "run", "done")[0]["val_loss"]
    evaluated = Run(["evaluate", tmp_path / "run"])
    assert evaluated.status == DONE, evaluated
    assert f"loss {loss:.4f}  " in evaluated.out, evaluated


def test_torchvisions_older_names_of_a_vision_transformer(tmp_path):
    write_images(tmp_path)
    assert train_on(tmp_path, VIT + STANDSTILL + "seed: 9", "first").status == DONE
    weights = weights_of(tmp_path / "first")
    names = {k: k.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2.") for k in weights}
    save_init(tmp_path, {names[k]: v for k, v in weights.items()})
    run = train_on(tmp_path, VIT + STANDSTILL + INIT)
    assert run.status == DONE, run
    expect_equal(weights_of(tmp_path / "run"), weights)


@pytest.mark.parametrize(
    "model,head",
    [
        ("mlp { hidden: [16] batch_norm: true }", "3."),
        ('name: "convnet"', "classifier.2."),
        ('name: "lstm" lstm { steps: 8 }', "out."),
    ],
    ids=["mlp", "convnet", "lstm"],
)
@pytest.mark.all_tier(
    "the last layer of each model is replaced by the same code",
    unless=lambda head: head == "classifier.2.",
)
def test_each_models_last_layer(model, head, tmp_path):
    text = DIGITS_DATA + STANDSTILL + f"model {{ {model} }}\n"
    assert train_on(tmp_path, text + "seed: 9", "first").status == DONE
    first = weights_of(tmp_path / "first")
    # The head's tensors in the file have other shapes, so none of them can have been read.
    save_init(tmp_path, {k: torch.zeros(3) if k.startswith(head) else v for k, v in first.items()})
    run = train_on(tmp_path, text + INIT + "replace_head: true")
    assert run.status == DONE, run
    weights = weights_of(tmp_path / "run")
    parameters = [name for name in weights if "running" not in name and "num_batches" not in name]
    assert {name for name in parameters if not torch.equal(weights[name], first[name])} == {head + "weight", head + "bias"}


def test_names_that_do_not_fit_are_listed(tmp_path):
    text = DIGITS_DATA + "model { mlp { hidden: [8, 8, 8] } }\n" + STANDSTILL
    assert train_on(tmp_path, text, "first").status == DONE
    weights = weights_of(tmp_path / "first")
    save_init(tmp_path, {f"net.{k}" if k[0] in "246" else k: v for k, v in weights.items()})
    expect_error(
        train_on(tmp_path, text + INIT),
        CHECKPOINT,
        "init.safetensors: not in the file: 2.weight, 2.bias, 4.weight, 4.bias and 2 more (6 of the model's 8 tensors); "
        "not in the model: net.2.bias, net.2.weight, net.4.bias, net.4.weight and 2 more (6 of the file's 8 tensors)",
    )


def test_a_truncated_file(tmp_path):
    assert train_on(tmp_path, DIGITS_DATA + STANDSTILL, "first").status == DONE
    (tmp_path / "init.safetensors").write_bytes(weight_bytes(tmp_path / "first")[:-1])
    expect_error(train_on(tmp_path, DIGITS_DATA + STANDSTILL + INIT), CHECKPOINT, "init.safetensors: damaged")


def test_a_head_without_anything_to_start_from(tmp_path):
    run = train_on(tmp_path, "replace_head: true\n" + DIGITS_DATA)
    expect_error(run, USAGE, "config.pbtxt:2:", "replace_head: needs init_from")


def test_a_model_without_a_head(gpt2):
    folder, weights = gpt2
    save_init(folder, weights)
    run = train_on(folder, GPT2 + STANDSTILL + INIT + "replace_head: true")
    expect_error(run, USAGE, 'replace_head: the model "gpt2" has no last layer that could be replaced')


def script(folder, module):
    torch.jit.script(module).save(folder / "model.pt")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.norm, self.out = nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Linear(16, 10)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.hidden(x))))


@pytest.mark.parametrize("ranks", [None, 2])
@pytest.mark.parametrize("precision", ["FP32", "BF16"])
@pytest.mark.all_tier(
    "precision and ranks are each tried in another pair",
    unless=lambda ranks, precision: (ranks, precision) in ((None, "BF16"), (2, "FP32")),
)
def test_a_script_is_trained_and_evaluated(ranks, precision, tmp_path):
    skip_without_gpus(ranks)
    torch.manual_seed(1)
    script(tmp_path, Net().eval())  # even a model that was saved in evaluation mode must train
    text = f"epochs: 5 precision: {precision} optimizer {{ lr: 0.01 }}\n"
    run = train_on(tmp_path, DIGITS_DATA + SCRIPT + text, ranks=ranks)
    assert run.status == DONE, run
    done = events(tmp_path / "run", "done")[0]
    assert done["val_accuracy"] > 0.9, done
    weights = weights_of(tmp_path / "run")
    assert weights["norm.num_batches_tracked"] > 5
    Net().load_state_dict(weights, strict=True)
    evaluated = Run(["evaluate", tmp_path / "run"], ranks=ranks)
    assert f"loss {done['val_loss']:.4f}  " in evaluated.out, evaluated


def test_a_traced_script_starts_from_its_own_weights(tmp_path):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    torch.jit.trace(net, torch.zeros(2, 64)).save(tmp_path / "model.pt")
    run = train_on(tmp_path, DIGITS_DATA + SCRIPT + STANDSTILL)
    assert run.status == DONE, run
    expect_equal(weights_of(tmp_path / "run"), net.state_dict())


def test_a_script_that_reads_tokens(tmp_path):
    write_tokens(tmp_path)
    torch.jit.script(nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))).save(tmp_path / "model.pt")
    data = GPT2.split("model")[0]
    run = train_on(tmp_path, data + SCRIPT + "max_steps: 3 global_batch: 8")
    assert run.status == DONE, run


@pytest.mark.parametrize("content", ["text", "state_dict"])
def test_a_file_that_is_no_torchscript(content, tmp_path):
    if content == "text":
        (tmp_path / "model.pt").write_text("no script")
    else:
        torch.save(Net().state_dict(), tmp_path / "model.pt")
    run = train_on(tmp_path, DIGITS_DATA + SCRIPT)
    expect_error(run, USAGE, "model.pt: not a module that torch.jit.save wrote: PytorchStreamReader")


def test_a_frozen_script(tmp_path):
    skip_without_gpus(2)
    torch.jit.freeze(torch.jit.script(Net().eval())).save(tmp_path / "model.pt")
    run = train_on(tmp_path, DIGITS_DATA + SCRIPT, ranks=2)
    expect_error(run, USAGE, "model.pt: no parameter of it requires a gradient")


def test_a_script_that_is_not_named(tmp_path):
    run = train_on(tmp_path, DIGITS_DATA + 'model { name: "torchscript" }')
    expect_error(run, USAGE, "model.torchscript.file: name a file that torch.jit.save wrote")


class Two(Net):
    def forward(self, x):
        return self.out(torch.relu(self.norm(self.hidden(x)))), x


class Wide(Net):
    def forward(self, x):
        return torch.relu(self.norm(self.hidden(x)))


class Integer(Net):
    def forward(self, x):
        return self.out(self.hidden(x)).long()


@pytest.mark.parametrize(
    "module,part", [(Two, "a Tuple[Tensor, Tensor]"), (Wide, "Float [4, 16]"), (Integer, "Long [4, 10]")]
)
@pytest.mark.all_tier("another wrong result is found by the same check", unless=lambda module: module is Two)
def test_a_script_that_returns_something_else(module, part, tmp_path):
    skip_without_gpus(2)
    script(tmp_path, module())
    run = train_on(tmp_path, DIGITS_DATA + SCRIPT + "global_batch: 8", ranks=2)
    expect_error(run, USAGE, f"model.pt: its forward returned {part} where one floating-point tensor of [4, 10] is expected")


class Detached(Net):
    def forward(self, x):
        return self.out(self.hidden(x)).detach()


def test_a_script_that_detaches_its_output(tmp_path):
    script(tmp_path, Detached())
    run = train_on(tmp_path, DIGITS_DATA + SCRIPT)
    expect_error(run, USAGE, "model.pt: no gradient reaches its parameters: its forward detaches what it returns")


def test_a_script_with_nan(tmp_path):
    net = Net()
    with torch.no_grad():
        net.out.weight[3, 2] = torch.nan
    script(tmp_path, net)
    expect_error(train_on(tmp_path, DIGITS_DATA + SCRIPT), USAGE, "model.pt: tensor out.weight holds NaN")


class Misfit(Net):
    def forward(self, x):
        return self.out(self.hidden(self.hidden(x)))


class Refuses(Net):
    def forward(self, x):
        if x.size(0) > 0:
            raise ValueError("never")
        return self.out(x)


class Pair(Net):
    def forward(self, x, y):
        return self.out(self.hidden(x + y))


@pytest.mark.parametrize(
    "module,part",
    [
        (Misfit, "mat1 and mat2 shapes cannot be multiplied (8x16 and 64x16)"),
        (Refuses, "ValueError: never"),
        (Pair, "forward() is missing value for argument 'y'"),
    ],
)
@pytest.mark.all_tier("another failure comes out of the same call", unless=lambda module: module is Refuses)
def test_a_script_that_fails(module, part, tmp_path):
    script(tmp_path, module())
    run = train_on(tmp_path, DIGITS_DATA + SCRIPT + "global_batch: 8")
    expect_error(run, USAGE, "model.pt: its forward failed: ", part)
