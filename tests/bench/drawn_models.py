#!/usr/bin/env python3
"""Draws models of timm at random, to measure with imported_against_torch.py what nobody has chosen:

    drawn_models.py [--seed 20261129] [--count 5] [--batch]

Draws from timm's classifiers of images with 5 to 100 million parameters, sorted by name, and prints the names. With
--batch it needs a GPU, and prints LIBRARY:MODEL@BATCH with the largest power of two for which PyTorch's training step
(torch.compile's default mode, bf16) reserves less than 40 GB.
"""

import argparse
import random

import timm
import torch


def classifiers():
    """Returns the names of the models to draw from."""
    names = []
    for name in sorted(timm.list_models()):
        try:
            with torch.device("meta"):
                model = timm.create_model(name, pretrained=False)
        except Exception as error:  # a model may need a package of its own
            print(f"# left out: {name}: {type(error).__name__}")
            continue
        parameters = sum(parameter.numel() for parameter in model.parameters())
        if 5e6 <= parameters <= 100e6 and getattr(model, "num_classes", 0) > 0:
            names.append(name)
    return names


def reserved(name, batch):
    """Returns the bytes that a compiled training step of the model reserves; infinity if they are too many for the
    GPU."""
    model = timm.create_model(name, pretrained=False).cuda().to(memory_format=torch.channels_last).train()
    size = timm.get_pretrained_cfg(name, allow_unregistered=True).input_size[-1]
    images = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
    targets = torch.randint(0, model.num_classes, (batch,), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    loss_of = torch.compile(lambda x, y: torch.nn.functional.cross_entropy(model(x), y))
    torch.cuda.reset_peak_memory_stats()
    try:
        for _ in range(2):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = loss_of(images, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return torch.cuda.max_memory_reserved()
    except torch.OutOfMemoryError:
        return float("inf")
    finally:
        torch.compiler.reset()
        del model, optimizer, images
        torch.cuda.empty_cache()


def largest_batch(name):
    batch = 16
    while batch < 1024 and reserved(name, 2 * batch) < 40e9:
        batch *= 2
    return batch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--batch", action="store_true")
    options = parser.parse_args()
    for name in random.Random(options.seed).sample(classifiers(), options.count):
        print(f"timm:{name}@{largest_batch(name)}" if options.batch else name, flush=True)


if __name__ == "__main__":
    main()
