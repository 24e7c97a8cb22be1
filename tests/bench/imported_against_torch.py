#!/usr/bin/env python3
"""Times one training step of third-party models, in Lockstep (after an export) and in PyTorch, on the same GPU:

    imported_against_torch.py LOCKSTEP [MODEL ...] [--modes eager default reduce-overhead] [--torchscript]

MODEL is a model of third_party_models.py, by default all that have a name there. Needs timm, torchvision and transformers,
but downloads no weights.

Prints a JSON line for each measurement: `lockstep bench step --json` with an empty cache of convolution plans (`tag` is
cold) and then with a full cache (`tag` is warm), and PyTorch's step. PyTorch's step consists of the forward under
autocast, the loss, the backward and a fused optimizer, in channels-last format and with torch.backends.cudnn.benchmark.
Its time is the median of the mean times of three groups of 30 steps. Then prints one line for each model with PyTorch's
milliseconds divided by Lockstep's (above 1: Lockstep is faster). With --torchscript, Lockstep trains the file that
torch.jit.script makes of the model, instead of the exported file; --torchscript has no effect on models that are from
neither timm nor torchvision.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from third_party_models import MODELS, image_size, is_segmentation, make, parts_of

PYTHON = pathlib.Path(__file__).parents[2] / "python"
IMAGES = """data {{ format: SYNTHETIC input_shape: [3, {size}, {size}] classes: 1000 mean: 0.5 std: 0.25
        synthetic {{ kind: PIXELS samples: 4096 }} }}"""
MASKS = """data {{ format: SYNTHETIC input_shape: [3, {size}, {size}] classes: 4 task: SEGMENTATION mean: 0.5 std: 0.25
        synthetic {{ kind: PIXELS samples: 256 }} }}"""
SGD = "optimizer { type: SGD lr: 0.01 momentum: 0.9 weight_decay: 0.00005 }"


def write(name, folder, scripted):
    """Writes the model's file, and for a model of tokens also the samples, into `folder`. Returns the config."""
    import numpy
    import torch

    model, inputs, target = make(name, 2, scripted)
    if scripted:
        torch.jit.script(model.train()).save(folder / "net.pt")
        what = f'name: "torchscript" torchscript {{ file: "{folder}/net.pt" }}'
    else:
        sys.path.insert(0, str(PYTHON))
        import lockstep

        lockstep.export(model, tuple(inputs.values()), folder / "net.lsm")
        what = f'name: "imported" imported {{ file: "{folder}/net.lsm" }}'
    data, optimizer = (MASKS if is_segmentation(name) else IMAGES).format(size=image_size(name)), SGD
    if "input_ids" in inputs:
        _, inputs, target = make(name, 1024)
        numpy.save(folder / "tokens.npy", torch.stack([inputs["input_ids"], inputs["attention_mask"]], 1).numpy())
        numpy.save(folder / "labels.npy", target.numpy())
        data = f'data {{ format: NPY npy {{ kind: TEXTS }} train: ["{folder}/tokens.npy", "{folder}/labels.npy"] }}'
        optimizer = "optimizer { type: ADAMW lr: 0.0001 }"
    config = folder / "train.pbtxt"
    config.write_text(f"global_batch: {parts_of(name)[2]} precision: BF16\n{data}\nmodel {{ {what} }}\n{optimizer}\n")
    return config


def in_lockstep(lockstep, name, folder, tag):
    command = [lockstep, "bench", "step", folder / "train.pbtxt", "--json", "--set", f"run_dir={folder}/run"]
    environment = os.environ | {"XDG_CACHE_HOME": f"{folder}/cache"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        return {"model": name, "tag": tag, "failure": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout.strip().split("\n")[-1]) | {"model": name, "tag": tag}


def in_torch(name, mode):
    """Times PyTorch's step and returns the values of its JSON line."""
    import torch
    from torch.nn import functional

    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    batch = parts_of(name)[2]
    model, inputs, target = make(name, batch)
    last = {"memory_format": torch.channels_last} if "x" in inputs else {}
    model = model.to("cuda", **last).train()
    inputs = {key: value.to("cuda").to(**last) if last else value.to("cuda") for key, value in inputs.items()}
    target = target.to("cuda")
    if last:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-5, fused=True)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def loss_of(inputs, target):
        output = model(**inputs) if not last else model(inputs["x"])
        return functional.cross_entropy(getattr(output, "logits", output), target)

    compiled = loss_of if mode == "eager" else torch.compile(loss_of, mode=mode)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(inputs, target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    begin = time.monotonic()
    step()
    torch.cuda.synchronize()
    first_s = time.monotonic() - begin
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(3):  # synchronises only after each group, so the host may run ahead
        begin = time.monotonic()
        for _ in range(30):
            loss = step()
        torch.cuda.synchronize()
        times.append((time.monotonic() - begin) / 30 * 1e3)
    return {
        "peer": "torch" if mode == "eager" else f"torch.compile {mode}",
        "model": name,
        "batch": batch,
        "step_ms": round(statistics.median(times), 3),
        "first_step_s": round(first_s, 1),
        "reserved_gib": round(torch.cuda.memory_reserved() / 2**30, 2),
        "loss": round(float(loss), 4),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL", help=", ".join(MODELS) + ", LIBRARY:MODEL@BATCH")
    parser.add_argument("--modes", nargs="+", default=["eager"], choices=["eager", "default", "reduce-overhead"])
    parser.add_argument("--torchscript", action="store_true")
    parser.add_argument("--in-torch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_torch:
        print(json.dumps(in_torch(options.models[0], options.in_torch)))
        return
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            scripted = options.torchscript and parts_of(name)[0] in ("timm", "torchvision")
            write(name, pathlib.Path(folder), scripted)
            for tag in "cold", "warm":
                ours = in_lockstep(options.lockstep, name, pathlib.Path(folder), tag)
                print(json.dumps(ours), flush=True)
        ratios = {}
        for mode in options.modes:
            # Each measurement runs in a new process, so that no GPU memory is left from the previous one.
            command = [sys.executable, "-W", "ignore", __file__, options.lockstep, name, "--in-torch", mode]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                line = {"peer": mode, "model": name, "failure": done.stderr.strip().splitlines()[-1]}
            else:
                line = json.loads(done.stdout.split("\n")[-2])
            print(json.dumps(line), flush=True)
            if "step_ms" in line and "step_ms" in ours:
                ratios[mode] = round(line["step_ms"] / ours["step_ms"], 3)
        print(json.dumps({"model": name, "ratios": ratios}), flush=True)


if __name__ == "__main__":
    main()
