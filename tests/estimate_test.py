"""Tests `lockstep estimate`: compares its predictions with measurements on a GPU, and checks its errors for wrong
input."""

import json
import pathlib
import sys

import pytest
import torch

from harness import DIGITS, DONE, USAGE, Run, events, expect_error, path_of, sets, step_losses, write_config

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
import lockstep  # noqa: E402

OWN_MODEL = path_of("OWN_MODEL")
PEERS = pathlib.Path(__file__).parent / "gpu" / "peers"
MIB = 2**20

# Maps (model, batch) to (the peak of the memory of all tensors, the GPU memory that the allocator had reserved for
# them), both in MiB. tests/gpu/gpu_estimate_test.py measured them with LibTorch 2.11 during steps in BF16 on one H100.
MEASURED = {
    ("gpt2", 16): (8158, 8510),
    ("gpt2", 64): (26959, 27258),
    ("resnet50", 64): (3230, 3434),
    ("resnet50", 256): (11503, 11786),
    ("vit_b_16", 128): (8999, 9178),
    ("lstm", 256): (250, 306),
}

NUMBERS = "data { format: SYNTHETIC input_shape: 16 classes: 4 }"
DIGITS_MLP = f'data {{ train: "{DIGITS}" csv {{ scale: 0.0625 }} }} model {{ name: "mlp" mlp {{ hidden: [64] }} }}'
IMAGES = "data { format: SYNTHETIC input_shape: [3, 64, 64] classes: 10 synthetic { kind: PIXELS samples: 256 } }"


def estimate(config, *words, **options):
    return Run(["estimate", config, *words], **options)


def foretold(config, *words):
    run = estimate(config, "--json", *words)
    assert run.status == DONE, run
    return json.loads(run.out)


def of_peer(name, batch, *words):
    return foretold(PEERS / f"{name}.pbtxt", "--set", "precision=BF16", "--set", f"global_batch={batch}", *words)


@pytest.mark.parametrize("name, batch", MEASURED)
def test_as_measured(name, batch):
    peak, reserved = MEASURED[name, batch]
    line = of_peer(name, batch)
    assert line["peak_bytes"] / MIB == pytest.approx(peak, rel=0.05)
    assert 0 <= reserved - line["reserved_bytes"] / MIB < 200
    assert sum(line["owners"].values()) == line["peak_bytes"]


@pytest.mark.parametrize("name", ["gpt2", "resnet50", "vit_b_16", "lstm"])
@pytest.mark.parametrize("gib", [10, 40])
@pytest.mark.all_tier("another size of memory is searched in the same way", unless=lambda gib: gib == 10)
def test_the_largest_that_fits(name, gib):
    memory = ["--memory", f"{gib}GiB"]
    largest = of_peer(name, 16, *memory)["largest_micro_batch"]
    assert of_peer(name, largest, *memory)["fits"]
    larger = of_peer(name, int(largest * 1.1) + 1, *memory)
    assert not larger["fits"] and larger["least_accumulation"] == 2, larger


def test_what_each_setting_saves(tmp_path):
    plain = of_peer("gpt2", 16)
    assert plain["with_activation_checkpointing_bytes"] < 0.6 * plain["peak_bytes"]
    halved = of_peer("gpt2", 16, "--set", "accumulation=2")
    assert halved["micro_batch"] == 8
    assert halved["owners"]["activations"] == pytest.approx(plain["owners"]["activations"] / 2, rel=0.02)
    eight = of_peer("gpt2", 128, "--ranks", "8")
    assert eight["micro_batch"] == 16
    # Sharding over 8 ranks saves seven eighths of the optimizer's two moments, which together have 8 bytes for each
    # parameter.
    assert eight["peak_bytes"] - eight["with_shard_bytes"] == pytest.approx(7 * eight["parameters"], rel=0.05)


def test_a_table_of_gpus(tmp_path):
    config = write_config(tmp_path, IMAGES + 'model { name: "resnet" resnet { depth: 18 } } precision: BF16')
    run = estimate(config, "--table")
    assert run.status == DONE, run
    head, *rows = (line.split("  ") for line in run.out.splitlines())
    assert [cell.strip() for cell in head if cell][:3] == ["image", "T4", "V100"], head
    sizes = [[int(cell) for cell in row if cell] for row in rows]
    assert [row[0] for row in sizes] == sorted(row[0] for row in sizes) and len(sizes) == 10, sizes
    for smaller, larger in zip(sizes, sizes[1:]):
        assert all(a > b > 0 for a, b in zip(smaller[1:], larger[1:])), (smaller, larger)


def test_sizes_that_a_model_does_not_take(tmp_path):
    """Checks that the table has "-" for image sizes that the model cannot take: the patch size 14 divides 224, and none
    of the table's nine other image sizes."""
    model = 'model { name: "vit" vit { patch: 14 width: 64 heads: 2 layers: 2 } } precision: BF16'
    run = estimate(write_config(tmp_path, IMAGES.replace("64, 64", "224, 224") + model), "--table")
    assert run.status == DONE, run
    rows = {line.split()[0]: line.split()[1:] for line in run.out.splitlines()[1:]}
    assert all(int(cell) > 0 for cell in rows.pop("224"))
    assert len(rows) == 9 and {cell for row in rows.values() for cell in row} == {"-"}, run


def test_samples_of_files(tmp_path):
    run = estimate(write_config(tmp_path, DIGITS_MLP), "--rate", "1000", "--gpu", "rtx3090")
    assert run.status == DONE, run
    assert "RTX 3090 (not measured there) may take" in run.out
    assert "so 1000 samples/s need" in run.out
    # A config that embeds categorical columns can be estimated.
    categories = DIGITS_MLP.replace("csv {", 'csv { category: ["1", "2"]').replace("mlp { ", "mlp { embed_categories: 2 ")
    assert estimate(write_config(tmp_path, categories)).status == DONE
    described = DIGITS_MLP.replace("csv {", "input_shape: 64 classes: 10 csv {")
    described = estimate(write_config(tmp_path, described), "--rate", "1000")
    assert "so 1000 samples/s need" in described.out, described


def test_auto_on_a_cpu(tmp_path):
    """Checks that `micro_batch: AUTO` chooses the whole batch on a CPU and trains like `micro_batch: ACCUMULATION`."""
    config = write_config(tmp_path, DIGITS_MLP)
    losses = []
    for choice in ("ACCUMULATION", "AUTO"):
        run_dir = tmp_path / choice
        words = sets("device=CPU", f"micro_batch={choice}", "max_steps=30", f"run_dir={run_dir}")
        assert Run(["train", config, *words]).status == DONE
        losses.append(step_losses(run_dir))
    assert losses[0] == losses[1]
    (line,) = events(tmp_path / "AUTO", "micro_batch")
    assert (line["accumulation"], line["micro_batch"]) == (1, 64)


class Scripted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(3, 32, 3, padding=1),
            torch.nn.BatchNorm2d(32),
            torch.nn.SiLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(32, 32, 3, padding=1, groups=32),
            torch.nn.GroupNorm(8, 32),
            torch.nn.Hardswish(),
            torch.nn.AdaptiveAvgPool2d(4),
        )
        self.norm = torch.nn.LayerNorm(512)
        self.head = torch.nn.Linear(512, 10)

    def forward(self, x):
        return self.head(torch.nn.functional.dropout(self.norm(self.features(x).flatten(1)), 0.1, self.training))


@pytest.mark.parametrize("name, layers, share", [("torchscript", 3, 0.7), ("imported", 1, 1)])
def test_a_file_of_pytorchs(name, layers, share, tmp_path):
    if name == "imported":
        lockstep.export(Scripted(), (torch.zeros(2, 3, 64, 64),), tmp_path / "model")
    else:
        torch.jit.script(Scripted()).save(tmp_path / "model")
    model = f'model {{ name: "{name}" {name} {{ file: "{tmp_path}/model" }} }}'
    config = write_config(tmp_path, f"{IMAGES} {model} global_batch: 64")
    whole, rounded = (foretold(config, "--set", f"precision={precision}") for precision in ("FP32", "BF16"))
    # For each of the 64 samples, each of the first three layers keeps 32 x 64 x 64 values of 4 bytes. The imported
    # graph keeps the values of the first alone, because it fuses the norm, the activation and the pooling. In BF16 the
    # values take fewer bytes.
    assert whole["owners"]["activations"] > layers * 64 * 32 * 64 * 64 * 4
    assert rounded["owners"]["activations"] < share * whole["owners"]["activations"]


class Picks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.head(x) * torch.masked_select(x, x > 0).sum()


def test_an_operation_that_cannot_be_foretold(tmp_path):
    """Checks that `masked_select` is refused, because the size of its result depends on the values."""
    torch.jit.script(Picks()).save(tmp_path / "model.pt")
    text = NUMBERS + f'model {{ name: "torchscript" torchscript {{ file: "{tmp_path}/model.pt" }} }}'
    expect_error(estimate(write_config(tmp_path, text)), USAGE, "masked_select")


@pytest.mark.parametrize(
    "text, words, parts",
    [
        (NUMBERS, ["--gpu", "RTX 309"], ["--gpu RTX 309: not known", 'did you mean "RTX 3090"', "--memory 16GiB"]),
        (NUMBERS, ["--memory", "16"], ["--memory 16: give a size such as 16GiB"]),
        (NUMBERS, ["--memory", "-4GiB"], ["--memory -4GiB: give a size"]),
        (NUMBERS, ["--memory", "16TB"], ["--memory 16TB: give a size"]),
        (NUMBERS, ["--memory", "nanGiB"], ["--memory nanGiB: give a size"]),
        (NUMBERS, ["--ranks", "0"], ["--ranks"]),
        (NUMBERS, ["--ranks", "100000"], ["--ranks 100000: each rank needs a sample"]),
        (NUMBERS + " global_batch: 64 accumulation: 4", ["--ranks", "17"], ["--ranks 17", "is enough for 16"]),
        (NUMBERS, ["--rate", "-1"], ["--rate"]),
        (NUMBERS, ["--table"], ["--table: is for images and tokens"]),
        (NUMBERS + 'model { name: "resnet" }', [], ["resnet"]),
        (NUMBERS + 'model { name: "mpl" }', [], ['model.name: unknown model "mpl"']),
        (NUMBERS + " precision: TF32", ["--gpu", "T4"], ["precision TF32", "has none: take FP16"]),
        ('data { train: "nowhere.csv" }', [], ["nowhere.csv"]),
        (IMAGES + " global_batch: 1000000000", ["--set", "model.name=resnet"], ["larger than any memory"]),
    ],
)
def test_wrong_input(text, words, parts, tmp_path):
    model = "" if "model" in text else 'model { name: "mlp" }'
    expect_error(estimate(write_config(tmp_path, f"{text} {model}"), *words), USAGE, *parts)


def test_a_model_that_may_read_values(tmp_path):
    text = 'data { format: SYNTHETIC input_shape: 16 classes: 4 } model { name: "tiny_net" }'
    run = Run(["estimate", write_config(tmp_path, text)], program=OWN_MODEL)
    expect_error(run, USAGE, "cannot be foretold", "Reads::kNothing")
