"""Runs the three examples of docs/models.md exactly as they are written there: models of timm and Hugging Face, and a
U-Net."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pandas
import pytest
import timm
import tokenizers
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file

from harness import DONE, LOCKSTEP, events

ROOT = pathlib.Path(__file__).parents[1]
TEXT = (ROOT / "docs/models.md").read_text()


def photos(folder):
    """Writes photographs whose colour tells the class, and the weights of a ResNet-18 for 1,000 other classes."""
    random = np.random.default_rng(1)
    for number in range(80):
        pixels = random.integers(0, 100, (72, 72, 3))
        pixels[..., :2] += [[0, 0], [0, 150], [150, 0], [150, 150]][number % 4]
        path = folder / "photos" / f"class{number % 4}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    torch.manual_seed(1)
    save_file(timm.create_model("resnet18").state_dict(), folder / "resnet18.safetensors")


def texts(folder):
    """Writes texts whose words tell the class, and the config and tokenizer of a small DistilBERT."""
    random = np.random.default_rng(2)
    words = [f"w{number}" for number in range(40)]
    labels = random.integers(0, 2, 400)
    table = {
        "text": [" ".join(random.choice(words[10 * label : 10 * label + 30], random.integers(5, 40))) for label in labels],
        "label": labels,
    }
    pandas.DataFrame(table).to_csv(folder / "texts.csv", index=False)
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *words])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(folder / "distilbert")
    config = transformers.DistilBertConfig(vocab_size=42, dim=32, hidden_dim=64, n_layers=2, n_heads=2)
    config.save_pretrained(folder / "distilbert")


def masks(folder):
    """Writes images of noise with one square for each of two classes, each class in its own colour. The mask value 255
    marks the pixels of the first two columns, which have no class."""
    random = np.random.default_rng(3)
    images = random.integers(0, 80, (64, 64, 64, 3), dtype=np.uint8)
    classes = np.zeros((64, 64, 64), np.uint8)
    for number in range(64):
        for kind in (1, 2):
            row, column = random.integers(0, 40, 2)
            images[number, row : row + 20, column : column + 20, kind] += 150
            classes[number, row : row + 20, column : column + 20] = kind
    classes[:, :, :2] = 255
    np.save(folder / "images.npy", images)
    np.save(folder / "masks.npy", classes)


EXAMPLES = {
    "A model of timm, fine-tuned": (photos, "photos", "val_accuracy", 0.5),
    "A classifier of Hugging Face": (texts, "texts", "val_accuracy", 0.7),
    "A U-Net with masks": (masks, "masks", "val_iou", 0.6),
}


@pytest.mark.parametrize("title", EXAMPLES, ids=lambda title: title.split()[-1])
def test_a_documented_model(title, tmp_path):
    make_data, run, metric, least = EXAMPLES[title]
    section = TEXT.split(f"### {title}\n")[1].split("\n### ")[0]
    make_data(tmp_path)
    for name, text in re.findall(r"```\w*\n# (\S+)\n(.*?)```", section, re.DOTALL):
        (tmp_path / name).write_text(text)
    (tmp_path / "python").symlink_to(ROOT / "python")
    (tmp_path / "lockstep").symlink_to(pathlib.Path(LOCKSTEP).absolute())
    # The documented commands call python3, which must be the Python that has PyTorch.
    environment = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in re.findall(r"^    \$ (.*)", section, re.MULTILINE):
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == DONE, f"{command}\n{done.stdout}\n{done.stderr}"
    assert events(tmp_path / "runs" / run, "eval")[-1][metric] > least
    if run == "photos":
        rows = (tmp_path / "labels.csv").read_text().splitlines()
        assert len(rows) == 81 and all(row.split(",")[1].startswith("class") for row in rows[1:])
    if run == "masks":
        right = np.load(tmp_path / "predicted.npy") == np.load(tmp_path / "masks.npy")
        assert right.mean() > 0.8, right.mean()
