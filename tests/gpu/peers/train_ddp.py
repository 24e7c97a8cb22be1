#!/usr/bin/env python3
"""Times a training step in PyTorch, eager or with torch.compile, with DistributedDataParallel. Lockstep is compared
with this program.

    torchrun --nproc-per-node=N train_ddp.py --model resnet50 --batch 256 --precision bf16 [--compile MODE]

The data are synthetic and already on the device, so only the training step is measured: forward, loss, backward with
the gradient all-reduce, optimizer. Rank 0 prints one JSON line: samples_per_s (of all ranks), step_ms (the median),
p95_ms (the 95th percentile of the step's milliseconds), peak_gib (the peak of allocated memory), first_step_s (seconds
from the process's start to the end of step 1).
"""
import argparse, json, math, os, statistics, sys, time
T0 = time.time()
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


class Block(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.h = h
        s.ln1, s.qkv, s.proj = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        s.ln2, s.fc, s.out = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(s, x):
        b, t, d = x.shape
        q, k, v = s.qkv(s.ln1(x)).view(b, t, 3, s.h, d // s.h).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + s.proj(y)
        return x + s.out(F.gelu(s.fc(s.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2 with 124 million parameters: 12 layers, 12 heads, width 768, a vocabulary that is padded to 50304 tokens,
    and an output layer that shares its weight with the token embedding."""
    def __init__(s, v=50304, t=1024, d=768, h=12, n=12):
        super().__init__()
        s.wte, s.wpe = nn.Embedding(v, d), nn.Embedding(t, d)
        s.blocks = nn.ModuleList([Block(d, h) for _ in range(n)])
        s.lnf, s.head = nn.LayerNorm(d), nn.Linear(d, v, bias=False)
        s.head.weight = s.wte.weight
        for p in s.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(s, idx, target):
        x = s.wte(idx) + s.wpe(torch.arange(idx.shape[1], device=idx.device))
        for b in s.blocks:
            x = b(x)
        logits = s.head(s.lnf(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.view(-1))


class Classify(nn.Module):
    def __init__(s, net):
        super().__init__()
        s.net = net

    def forward(s, x, y):
        return F.cross_entropy(s.net(x), y)


class LSTMNet(nn.Module):
    def __init__(s, f=32, h=128, c=10):
        super().__init__()
        s.rnn, s.out = nn.LSTM(f, h, num_layers=2, batch_first=True), nn.Linear(h, c)

    def forward(s, x):
        return s.out(s.rnn(x)[0][:, -1])


def mlp(f=256, h=512, c=10, n=4):
    layers, w = [], f
    for _ in range(n):
        layers += [nn.Linear(w, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Dropout(0.1)]
        w = h
    return nn.Sequential(*layers, nn.Linear(w, c))


GPTS = dict(gpt2={}, gpt2_medium=dict(d=1024, h=16, n=24), tinygpt=dict(t=256, d=384, h=6, n=6))
IMAGE_MODELS = ("resnet18", "resnet50", "resnet101", "vit_b_16")


def build(a, dev):
    b = a.batch
    if a.model in GPTS:
        shape = dict(dict(t=a.seq), **GPTS[a.model])
        x = torch.randint(0, 50257, (b, shape["t"]), device=dev)
        return GPT(**shape).to(dev), x, torch.roll(x, -1, 1)
    if a.model in IMAGE_MODELS:
        import torchvision
        m = torchvision.models.get_model(a.model).to(dev).to(memory_format=torch.channels_last)
        x = torch.randn(b, 3, 224, 224, device=dev).to(memory_format=torch.channels_last)
        return Classify(m), x, torch.randint(0, 1000, (b,), device=dev)
    if a.model == "mlp":
        return Classify(mlp()).to(dev), torch.randn(b, 256, device=dev), torch.randint(0, 10, (b,), device=dev)
    if a.model == "lstm":
        return Classify(LSTMNet()).to(dev), torch.randn(b, 64, 32, device=dev), torch.randint(0, 10, (b,), device=dev)
    raise SystemExit(f"unknown model {a.model}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="resnet50")
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--seq", type=int, default=1024)
    p.add_argument("--accum", type=int, default=1)
    p.add_argument("--precision", default="bf16", choices=["fp32", "tf32", "bf16", "fp16"])
    p.add_argument("--compile", default="", help="'' for eager, else a torch.compile mode")
    p.add_argument("--bucket-mb", type=float, default=25)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--warmup", type=int, default=15)
    a = p.parse_args()
    rank, world, local = (int(os.environ.get(k, d)) for k, d in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
    torch.cuda.set_device(local)
    dev = torch.device("cuda", local)
    torch.backends.cudnn.benchmark = True
    if a.precision != "fp32":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    if world > 1:
        dist.init_process_group("nccl", device_id=dev)
    torch.manual_seed(1)
    model, x, y = build(a, dev)
    nparam = sum(q.numel() for q in model.parameters())
    if a.model in GPTS:
        opt = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1, fused=True)
    elif a.model.startswith("resnet"):
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5, fused=True)
    else:
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[local], gradient_as_bucket_view=True,
                                                    static_graph=a.accum == 1, bucket_cap_mb=a.bucket_mb)
    if a.compile:
        model = torch.compile(model, mode=a.compile)
    amp = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(a.precision)
    scaler = torch.amp.GradScaler("cuda", enabled=a.precision == "fp16")

    def step():
        for i in range(a.accum):
            sync = i == a.accum - 1 or world == 1
            ctx = torch.enable_grad() if sync else model.no_sync()
            with ctx:
                with torch.autocast("cuda", dtype=amp, enabled=amp is not None):
                    loss = model(x, y) / a.accum
                scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad(set_to_none=True)
        return loss

    loss = step()
    torch.cuda.synchronize()
    first = time.time() - T0
    for _ in range(a.warmup):
        loss = step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    ev = [torch.cuda.Event(enable_timing=True) for _ in range(a.steps + 1)]
    t = time.time()
    ev[0].record()
    for i in range(a.steps):
        loss = step()
        ev[i + 1].record()
    torch.cuda.synchronize()
    wall = time.time() - t
    ms = sorted(ev[i].elapsed_time(ev[i + 1]) for i in range(a.steps))
    if rank == 0:
        n = a.batch * a.accum * world
        print(json.dumps(dict(peer="torch" + ("+compile:" + a.compile if a.compile else ""), model=a.model, gpus=world,
              batch=a.batch, accum=a.accum, precision=a.precision, params=nparam, samples_per_s=round(n * a.steps / wall, 1),
              step_ms=round(statistics.median(ms), 3), p95_ms=round(ms[int(.95 * len(ms))], 3),
              peak_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2), first_step_s=round(first, 2),
              loss=round(float(loss) * a.accum, 4))), flush=True)
    if world > 1:
        dist.destroy_process_group()


main()
