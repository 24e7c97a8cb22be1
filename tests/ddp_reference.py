"""Trains one rank with PyTorch's own DistributedDataParallel (gloo, CPU). ddp_test.py runs it.

    ddp_reference.py RANK WORLD FOLDER MODEL STEPS

Reads FOLDER/train.csv and FOLDER/init.safetensors; rank 0 writes the global loss of every step to FOLDER/losses.json and
its final state to FOLDER/ddp.safetensors.
"""

import json
import os
import pathlib
import sys

import numpy as np
import safetensors.torch
import torch
import torch.distributed as dist
from torch import nn

import sampler_reference

SAMPLES, BATCH, SEED = 1400, 100, 7


class WithNorm(nn.Module):
    """Computes the same as the model of tests/faulty_model.cc with `norm` and without faults."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(64, 10), nn.BatchNorm1d(10)

    def forward(self, x):
        return self.norm(self.linear(x))


def mlp():
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 10))


MODELS = {"mlp": mlp, "norm": WithNorm}


def read(folder):
    rows = torch.from_numpy(np.loadtxt(folder / "train.csv", delimiter=",", dtype=np.float32))
    return rows[:, :64] * 0.0625, rows[:, 64].long()


def main():
    rank, world, folder, name, steps = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    x, y = read(folder)
    model = MODELS[name]()
    model.load_state_dict(safetensors.torch.load_file(folder / "init.safetensors"))
    # The buckets are small, so that there are several; their size does not change the results.
    ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.0005)
    losses = []
    for step in sampler_reference.steps(SAMPLES, BATCH, SEED, epochs=1000):
        own = step[rank * BATCH // world : (rank + 1) * BATCH // world]
        loss = nn.functional.cross_entropy(ddp(x[own]), y[own])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / world)
        if len(losses) == steps:
            break
    if rank == 0:
        (folder / "losses.json").write_text(json.dumps(losses))
        safetensors.torch.save_file(model.state_dict(), folder / "ddp.safetensors")
    dist.barrier()
    # os._exit skips gloo's own cleanup, which sometimes aborts if the other rank has exited first.
    os._exit(0)


if __name__ == "__main__":
    main()
