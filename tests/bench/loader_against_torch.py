"""Compares Lockstep's loader with PyTorch's DataLoader on the same image folder, in turns. Both loaders make random
resized crops of 224 x 224 pixels, mirrored at random and normalised, on the CPU or on a GPU.

    python loader_against_torch.py LOCKSTEP --images DIR [--crops-of PHOTO ...] [--device cpu|cuda]
        [--workers 2 ...] [--threads 1 2 ...] [--batch 64] [--rounds 3]

With --crops-of, the folder DIR is first filled with 600 crops of these photographs. The sizes of the crops are similar
to those of ImageNet's images. Prints one JSON line: the median over the rounds of images/s for each number of PyTorch's
workers and of Lockstep's threads, the ratio of Lockstep's highest median to PyTorch's, and, for each number of
Lockstep's threads, the speedup over the smallest number as a fraction of a linear speedup. A measurement reads two
epochs, after one epoch of warm-up.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time

EPOCHS = 2


def sets(*settings):
    return [word for setting in settings for word in ("--set", setting)]


def time_torch(folder, workers, batch, device):
    """Times PyTorch's DataLoader and prints images/s. Runs in a process of its own, because the workers must be forked
    before CUDA is initialised or threads are started."""
    import torch
    import torchvision
    from torchvision import transforms

    cuda = device == "cuda"
    augment = transforms.Compose(
        [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
    )
    loader = torch.utils.data.DataLoader(
        torchvision.datasets.ImageFolder(folder, augment),
        batch,
        shuffle=True,
        num_workers=workers,
        pin_memory=cuda,
        persistent_workers=workers > 0,
        prefetch_factor=4 if workers else None,
        drop_last=True,
    )
    mean = torch.tensor([123.7, 116.3, 103.5], device=device).view(1, 3, 1, 1)
    std = torch.tensor([58.4, 57.1, 57.4], device=device).view(1, 3, 1, 1)
    for epoch in range(1 + EPOCHS):
        if epoch == 1:
            begin, images = time.perf_counter(), 0
        for x, y in loader:
            x = (x.to(device, non_blocking=True).float() - mean) / std
            if cuda:
                x = x.bfloat16()
            images = images + len(y) if epoch else 0
    if cuda:
        torch.cuda.synchronize()
    print(images / (time.perf_counter() - begin))


def make_crops(photographs, folder, count=600):
    """Writes `count` crops of 420 to 580 x 315 to 420 pixels as JPEG files into one folder for each photograph."""
    from PIL import Image

    draw = random.Random(1)
    images = [Image.open(path).convert("RGB") for path in photographs]
    for i in range(count):
        image = images[i % len(images)]
        width, height = draw.randint(420, 580), draw.randint(315, 420)
        x, y = draw.randint(0, image.width - width), draw.randint(0, image.height - height)
        path = pathlib.Path(folder) / f"class{i % len(images)}" / f"{i:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.crop((x, y, x + width, y + height)).save(path, quality=88)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--images", required=True)
    parser.add_argument("--crops-of", nargs="*", default=[])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.crops_of:
        make_crops(arguments.crops_of, arguments.images)

    def peer(workers):
        command = [sys.executable, __file__, "--time-torch", arguments.images, workers, arguments.batch, arguments.device]
        return float(subprocess.run([str(word) for word in command], check=True, capture_output=True).stdout)

    def lockstep(threads):
        settings = [f"global_batch={arguments.batch}", f"loader.threads={threads}", f"device={arguments.device.upper()}"]
        command = [arguments.lockstep, "bench", "loader", "--images", arguments.images, "--json", *sets(*settings)]
        return json.loads(subprocess.run([str(word) for word in command], check=True, capture_output=True).stdout)

    rates = {n: [] for n in arguments.workers}
    lines = {n: [] for n in arguments.threads}
    for _ in range(arguments.rounds):
        for workers, measured in rates.items():
            measured.append(peer(workers))
        for threads, measured in lines.items():
            measured.append(lockstep(threads))
    peers = {n: statistics.median(measured) for n, measured in rates.items()}
    ours = {n: statistics.median(line["samples_per_s"] for line in measured) for n, measured in lines.items()}
    least = min(ours)
    print(
        json.dumps(
            {
                "device": arguments.device,
                "batch": arguments.batch,
                "torch_images_per_s": {n: round(rate, 1) for n, rate in peers.items()},
                "lockstep_images_per_s": {n: round(rate, 1) for n, rate in ours.items()},
                "ratio": round(max(ours.values()) / max(peers.values()), 2),
                "of_linear": {n: round(rate / ours[least] * least / n, 3) for n, rate in ours.items()},
                "limit": lines[max(ours)][-1]["limit"],
            }
        )
    )


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--time-torch":
        time_torch(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        main()
