#!/usr/bin/env python3
"""Times one training step of third-party models, in Lockstep (after an export) and in PyTorch, on the same GPU:

    imported_against_torch.py LOCKSTEP [MODEL ...] [--modes eager default reduce-overhead] [--torchscript]

MODEL is a name in MODELS below, by default all names: models of timm and torchvision, Hugging Face classifiers of
tokens with an attention mask, and a U-Net. Needs timm, torchvision and transformers, but downloads no weights.

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

PYTHON = pathlib.Path(__file__).parents[2] / "python"
# name -> (library and model, samples in a batch)
MODELS = {
    "efficientnet_b0": ("timm:efficientnet_b0", 256),
    "convnext_tiny": ("timm:convnext_tiny", 128),
    "vit_small": ("timm:vit_small_patch16_224", 256),
    "swin_tiny": ("timm:swin_tiny_patch4_window7_224", 128),
    "regnety_016": ("timm:regnety_016", 128),
    "resnet50": ("torchvision:resnet50", 256),
    "mobilenet_v3_large": ("torchvision:mobilenet_v3_large", 256),
    "bert": ("hf:Bert", 64),
    "distilbert": ("hf:DistilBert", 64),
    "unet": ("own:UNet", 32),
    "llama": ("hf:Llama", 64),
}
# Config values for the Hugging Face models whose default size is far from 100 million parameters.
SIZES = {
    "llama": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "intermediate_size": 2048,
        "max_position_embeddings": 512,
        "pad_token_id": 0,
    }
}
TOKENS = 128
IMAGES = """data { format: SYNTHETIC input_shape: [3, 224, 224] classes: 1000 mean: 0.5 std: 0.25
        synthetic { kind: PIXELS samples: 4096 } }"""
MASKS = """data { format: SYNTHETIC input_shape: [3, 256, 256] classes: 4 task: SEGMENTATION mean: 0.5 std: 0.25
        synthetic { kind: PIXELS samples: 256 } }"""
SGD = "optimizer { type: SGD lr: 0.01 momentum: 0.9 weight_decay: 0.00005 }"


def unet(width=64, classes=4):
    import torch
    from torch import nn

    def twice(inputs, outputs):
        layers = []
        for channels in inputs, outputs:
            layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            widths = [width, 2 * width, 4 * width, 8 * width]
            self.down = nn.ModuleList(twice(i, o) for i, o in zip([3, *widths], widths))
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
            self.join = nn.ModuleList(twice(2 * w, w) for w in widths[-2::-1])
            self.out = nn.Conv2d(width, classes, 1)

        def forward(self, x):
            kept = []
            for i, block in enumerate(self.down):
                x = block(x if i == 0 else nn.functional.max_pool2d(x, 2))
                kept.append(x)
            for up, join, skip in zip(self.up, self.join, kept[-2::-1]):
                x = join(torch.cat([up(x), skip], 1))
            return self.out(x)

    return UNet()


def make(name, batch, scripted=False):
    """Returns the module of MODELS[name], its inputs by name for `batch` samples, and targets."""
    import torch

    torch.manual_seed(0)
    kind, what = MODELS[name][0].split(":")
    if kind == "hf":
        import transformers

        config = getattr(transformers, what + "Config")(num_labels=3, **SIZES.get(name, {}))
        model = getattr(transformers, what + "ForSequenceClassification")(config)
        mask = torch.ones(batch, TOKENS, dtype=torch.long)
        mask[1::2, TOKENS * 3 // 4 :] = 0
        tokens = torch.randint(0, config.vocab_size, (batch, TOKENS))
        return model, {"input_ids": tokens, "attention_mask": mask}, torch.randint(0, 3, (batch,))
    if kind == "own":
        return unet(), {"x": torch.randn(batch, 3, 256, 256)}, torch.randint(0, 4, (batch, 256, 256))
    if kind == "timm":
        import timm
        import timm.layers

        timm.layers.set_scriptable(scripted)
        model = timm.create_model(what, pretrained=False, num_classes=1000)
    else:
        import torchvision

        model = torchvision.models.get_model(what, num_classes=1000)
    return model, {"x": torch.randn(batch, 3, 224, 224)}, torch.randint(0, 1000, (batch,))


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
    data, optimizer = (MASKS, SGD) if name == "unet" else (IMAGES, SGD)
    if "input_ids" in inputs:
        _, inputs, target = make(name, 1024)
        numpy.save(folder / "tokens.npy", torch.stack([inputs["input_ids"], inputs["attention_mask"]], 1).numpy())
        numpy.save(folder / "labels.npy", target.numpy())
        data = f'data {{ format: NPY npy {{ kind: TEXTS }} train: ["{folder}/tokens.npy", "{folder}/labels.npy"] }}'
        optimizer = "optimizer { type: ADAMW lr: 0.0001 }"
    config = folder / "train.pbtxt"
    config.write_text(f"global_batch: {MODELS[name][1]} precision: BF16\n{data}\nmodel {{ {what} }}\n{optimizer}\n")
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
    batch = MODELS[name][1]
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
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--modes", nargs="+", default=["eager"], choices=["eager", "default", "reduce-overhead"])
    parser.add_argument("--torchscript", action="store_true")
    parser.add_argument("--in-torch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_torch:
        print(json.dumps(in_torch(options.models[0], options.in_torch)))
        return
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            scripted = options.torchscript and MODELS[name][0].startswith(("timm:", "torchvision:"))
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
