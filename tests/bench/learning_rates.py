#!/usr/bin/env python3
"""Measures how good the learning rate is that `lockstep tune` suggests. Trains with the suggested rate and with each
rate of a grid from 1e-5 to 1, half a decade apart, and prints the final validation losses and the ratio of the
suggestion's loss to the best of the grid, for three tasks and three seeds.

    tests/bench/learning_rates.py LOCKSTEP PHOTOGRAPHS [--tasks digits,crops,gpt] [--seeds 3] [--time 60]

PHOTOGRAPHS is a folder with scikit-learn's china.jpg and flower.jpg. The tasks are these. digits trains the README's
perceptron with AdamW. crops trains a network of two convolutions with SGD to classify crops of 32 x 32 pixels. Each
photograph is divided into five bands, and the class of a crop is its band, one of ten. gpt trains a GPT of two layers
on the bytes of this project's documents.
"""

import argparse
import json
import math
import pathlib
import subprocess
import tempfile

import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRID = [10 ** (-5 + i / 2) for i in range(11)]


def digits(options, folder):
    return f"""data {{ train: "{ROOT}/examples/digits/digits.csv" validation_fraction: 0.2 csv {{ scale: 0.0625 }} }}
        model {{ name: "mlp" mlp {{ hidden: [256, 128] }} }} optimizer {{ type: ADAMW weight_decay: 0.01 }}
        schedule {{ type: COSINE }} global_batch: 64 epochs: 60"""


def crops(options, folder):
    draw = np.random.default_rng(0)
    pictures, labels = [], []
    for number, name in enumerate(("china", "flower")):
        pixels = np.asarray(Image.open(options.photographs / f"{name}.jpg").convert("RGB"))
        for band in range(5):
            for _ in range(300):
                y, x = draw.integers(427 - 32), band * 128 + draw.integers(128 - 32)
                pictures.append(pixels[y : y + 32, x : x + 32])
                labels.append(5 * number + band)
    np.save(folder / "pictures.npy", np.stack(pictures))
    np.save(folder / "labels.npy", np.array(labels))
    return """data { format: NPY train: "pictures.npy" train: "labels.npy" validation_fraction: 0.2 npy { kind: PIXELS }
            mean: [0.5, 0.5, 0.5] std: [0.25, 0.25, 0.25] }
        model { name: "convnet" convnet { channels: [16, 32] hidden: 64 } }
        optimizer { type: SGD momentum: 0.9 weight_decay: 5e-4 } schedule { type: COSINE } global_batch: 100 epochs: 8"""


def gpt(options, folder):
    text = b"".join(path.read_bytes() for path in sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")]))
    (folder / "text.txt").write_bytes(text)
    words = ["text.txt", "--output", "text.bin", "--vocab", "bytes", "--validation-fraction", "0.1"]
    subprocess.run([options.lockstep, "prepare", "tokens", *words], cwd=folder, check=True, capture_output=True)
    return """data { format: TOKENS train: "text.bin" validation: "text_validation.bin" tokens { length: 64 } classes: 257 }
        model { name: "gpt2" gpt2 { layers: 2 heads: 4 width: 64 } } optimizer { type: ADAMW weight_decay: 0.1 }
        schedule { type: COSINE } global_batch: 32 max_steps: 200 epochs: 100"""


TASKS = {"digits": digits, "crops": crops, "gpt": gpt}


def val_loss(lockstep, config, folder, seed, rate, warmup=0):
    run = folder / f"run-{seed}-{rate:g}-{warmup}"
    settings = [f"optimizer.lr={rate!r}", f"seed={seed}", f"run_dir={run}", f"schedule.warmup_steps={warmup}"]
    words = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run([lockstep, "train", config, *words], capture_output=True, text=True)
    if done.returncode != 0:
        assert "lower optimizer.lr" in done.stderr, done.stderr
        return math.inf
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().split("\n")[:-1]]
    return [line for line in lines if line["event"] == "eval"][-1]["val_loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", type=lambda path: str(pathlib.Path(path).absolute()))
    parser.add_argument("photographs", type=pathlib.Path)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--time", type=int, default=60)
    options = parser.parse_args()
    for task in options.tasks.split(","):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            config = folder / "train.pbtxt"
            config.write_text(TASKS[task](options, folder))
            for seed in range(1, options.seeds + 1):
                words = ["tune", config, "--only", "rate", "--json", "--time", str(options.time), "--set", f"seed={seed}"]
                tuned = subprocess.run([options.lockstep, *words], stdout=subprocess.PIPE, text=True, check=True)
                (found,) = (line for line in map(json.loads, tuned.stdout.split("\n")[:-1]) if "suggestion" in line)
                rate, warmup = (found["suggestion"][name] for name in ("optimizer.lr", "schedule.warmup_steps"))
                grid = {at: val_loss(options.lockstep, config, folder, seed, at) for at in GRID}
                best = min(grid, key=grid.get)
                ours = val_loss(options.lockstep, config, folder, seed, rate, warmup)
                losses = " ".join(f"{loss:.4f}" for loss in grid.values())
                print(f"{task} seed {seed}: {ours:.4f} with {rate:g}; best of the grid {grid[best]:.4f} with {best:.2g}", end="; ")
                print(f"ratio {ours / grid[best]:.3f}; grid: {losses}", flush=True)


if __name__ == "__main__":
    main()
