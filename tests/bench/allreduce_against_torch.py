"""Benchmarks all-reduce between the ranks of one machine. Lockstep's communicator and torch.distributed (gloo on CPUs,
NCCL on GPUs) are measured in turns, and their times and bandwidths have the same definitions.

    python allreduce_against_torch.py LOCKSTEP [--device cpu|cuda] [--ranks 2 4] [--mib 1 25 100] [--rounds 3]

Prints one JSON line for each number of ranks and each size: for Lockstep and for torch.distributed the median over the
rounds of the median time of an all-reduce, and the ratio of the bandwidths (above 1: Lockstep is faster).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time


def torch_rank(rank, world, device, mib, meeting):
    """Runs one rank of torch.distributed, and prints the median time of an all-reduce in microseconds for each size."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    cuda = device == "cuda"
    if cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if cuda else "gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    for size in mib:
        x = torch.zeros(int(size * 2**18), device="cuda" if cuda else "cpu")
        for _ in range(5):
            dist.all_reduce(x)
        times = []
        if cuda:
            events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(30)]
            for begin, end in events:
                begin.record()
                dist.all_reduce(x)
                end.record()
            torch.cuda.synchronize()
            times = [begin.elapsed_time(end) * 1e3 for begin, end in events]
        else:
            for _ in range(30):
                dist.barrier()
                begin = time.perf_counter()
                dist.all_reduce(x)
                times.append((time.perf_counter() - begin) * 1e6)
        if rank == 0:
            print(statistics.median(times), flush=True)
    dist.destroy_process_group()


def time_torch(world, device, mib):
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "--torch-rank", str(rank), str(world), device, f"{folder}/meeting", *map(str, mib)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank in range(world)
        ]
        outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    return [float(line) for line in outputs[0].split()]


def time_lockstep(program, world, device, mib):
    times = []
    for size in mib:
        command = [program, "-n", str(world), "bench", "allreduce", "--json", "--device", device, "--bytes", str(int(size * 2**20))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        line = json.loads(done.stdout)
        assert line["wrong"] == 0
        times.append(line["time_us"])
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--mib", type=float, nargs="+", default=[1, 25, 100])
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    for world in a.ranks:
        peer, ours = [], []
        for _ in range(a.rounds):
            peer.append(time_torch(world, a.device, a.mib))
            ours.append(time_lockstep(a.lockstep, world, a.device, a.mib))
        for i, size in enumerate(a.mib):
            torch_us, lockstep_us = (statistics.median(times[i] for times in side) for side in (peer, ours))
            bus = 2 * (world - 1) / world * size * 2**20 / 1e3
            line = dict(mib=size, ranks=world, device=a.device, torch_us=round(torch_us, 1), lockstep_us=round(lockstep_us, 1))
            line.update(torch_busbw_gbs=round(bus / torch_us, 2), lockstep_busbw_gbs=round(bus / lockstep_us, 2))
            print(json.dumps(dict(line, ratio=round(torch_us / lockstep_us, 3))), flush=True)


if len(sys.argv) > 1 and sys.argv[1] == "--torch-rank":
    torch_rank(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], [float(s) for s in sys.argv[6:]], sys.argv[5])
else:
    main()
