"""Trains on the digits data with PyTorch's DistributedDataParallel and gloo. digits_against_ddp.py compares Lockstep
with this program.

    torchrun --nproc-per-node=2 tests/bench/digits_ddp.py TRAIN.csv TEST.csv

The model (64-256-128-10), optimizer (AdamW, lr 0.002, weight decay 0.01), batch (32 samples on each rank) and number of
epochs (60) are those of examples/digits, in fp32 with one thread on each rank. Rank 0 prints one JSON line:
first_step_s (the seconds from the process's start to the end of step 1), samples_per_s (of training alone, after the
first epoch), accuracy (on the test rows), and total_s (the seconds of the whole process).
"""

import json
import os
import sys
import time

START = time.time()

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS, BATCH_A_RANK = 60, 32


def load(path):
    rows = np.loadtxt(path, delimiter=",", dtype=np.float32)
    return torch.from_numpy(rows[:, :64] / 16), torch.from_numpy(rows[:, 64]).long()


def main(train_csv, test_csv):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train = TensorDataset(*load(train_csv))
    sampler = DistributedSampler(train, drop_last=True)
    loader = DataLoader(train, BATCH_A_RANK, sampler=sampler, drop_last=True)
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    model = nn.parallel.DistributedDataParallel(layers, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002, weight_decay=0.01, foreach=True)
    first_step_s = None
    samples = 0
    for epoch in range(EPOCHS):
        if epoch == 1:
            second_epoch = time.time()
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            first_step_s = first_step_s or time.time() - START
            samples += len(y) * dist.get_world_size() if epoch else 0
    seconds = time.time() - second_epoch
    x, y = load(test_csv)
    with torch.no_grad():
        accuracy = (layers(x).argmax(1) == y).float().mean().item()
    if dist.get_rank() == 0:
        figures = dict(first_step_s=first_step_s, samples_per_s=samples / seconds, accuracy=accuracy, total_s=time.time() - START)
        print(json.dumps({k: round(v, 4) for k, v in figures.items()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    assert int(os.environ.get("WORLD_SIZE", 0)) > 0, "start it with torchrun"
    main(*sys.argv[1:])
