#!/usr/bin/env python3
"""Computes a lower bound of the time that a training step of an imported model takes on a GPU, in bf16 with autocast:

    step_floor.py [MODEL ...] [--tflops 790] [--copy-tbps 4.2] [--measure]

MODEL is a model of tests/bench/third_party_models.py, by default each of NAMED.
The step is traced with fake tensors, and its FLOPs and bytes are counted; only --measure uses a GPU. Prints a row of a
Markdown table for each model, in milliseconds:

    products   Matrix products and convolutions: each takes the greater of its FLOPs / --tflops and its bytes /
               --copy-tbps. Its bytes are those of its inputs and its result: 2 bytes for each value, and 4 bytes for a
               value of a weight's gradient. Adding a bias takes no time.
    attention  The time of attention, computed as for products. Its kernels neither write nor read the scores and masks.
    memory     The bytes of all other operations / --copy-tbps. Operations with no product between them are one kernel,
               which reads each tensor from outside the kernel once, and writes each tensor that other kernels need
               once.
               - Views, moves and concatenations take no time: the kernel that computes a value writes it to its final
                 place. Random numbers, weights, and values that depend on weights alone take no time either.
               - A later kernel that needs a value computes it again, unless that means reading clearly more bytes than
                 the value has. In that case the value is written to memory. No kernel reads a value that it can compute
                 from the other values that it reads.
               - BatchNorm and its gradient sum up values, and then read these values a second time, unless they fit in
                 the L2 cache.
               - ReLU's gradient needs one bit for each value, and max-pooling's one byte for each window.
               - A depthwise convolution is one kernel, and its two gradients are another: each takes the greater of
                 its bytes / --copy-tbps and its FLOPs / --vector-tflops.
    update     AdamW reads the weight, the gradient and two moments (16 bytes), writes all of these but the gradient (12
               bytes), and writes weights that are matrices once more in 16 bits (2 bytes): 30 bytes for each weight.
               SGD has one moment, so 22 bytes.

Values have the dtypes that autocast chooses: normalisations over rows, and the sums after them, are float32.
"""

import argparse
import operator
import pathlib
import sys

import timm.layers
import torch
from torch._functorch.compile_utils import fx_graph_cse
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import third_party_models as peers

PRODUCTS = set("mm addmm bmm baddbmm convolution convolution_backward attention attention_backward".split())
BATCH_NORMS = {"native_batch_norm", "native_batch_norm_backward"}
MOVES = set(
    "alias as_strided cat clone constant_pad_nd detach expand permute reshape roll select select_backward slice"
    " slice_backward split split_with_sizes squeeze stack t transpose unbind unsqueeze view _unsafe_view".split()
)
CONSTANTS = set("bernoulli bernoulli_ empty_like full_like new_empty new_full new_zeros ones_like zeros_like".split())


def prepare_tracing():
    """Replaces functions of PyTorch and timm, so that a step that is traced on the CPU has the operations that a GPU
    would run."""
    three = "Tensor q, Tensor k, Tensor v"
    torch.library.define("floor::attention", f"({three}) -> Tensor")
    torch.library.define("floor::attention_backward", f"(Tensor grad, {three}, Tensor out) -> (Tensor, Tensor, Tensor)")
    torch.library.register_fake("floor::attention", lambda q, k, v: torch.empty_like(q))
    torch.library.register_fake("floor::attention_backward", lambda grad, q, k, v, out: (q.clone(), k.clone(), v.clone()))
    torch.library.register_autograd(
        "floor::attention",
        lambda ctx, grad: torch.ops.floor.attention_backward(grad, *ctx.saved_tensors),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs, output),
    )
    rows_norm = functional.layer_norm
    functional.layer_norm = lambda x, *args, **kwargs: rows_norm(x.float(), *args, **kwargs)
    functional.scaled_dot_product_attention = lambda q, k, v, *args, **kwargs: torch.ops.floor.attention(q, k, v)
    timm.layers.set_fused_attn(True, experimental=True)  # so that Swin also calls scaled_dot_product_attention


def trace(name):
    """Returns the graph of forward, loss and backward, the number of the graph's inputs that are weights or buffers,
    and the bytes that the optimizer's update reads and writes."""
    model, inputs, target = peers.make(name, peers.parts_of(name)[2])
    model.train()
    inputs = {key: x.bfloat16() if x.is_floating_point() else x for key, x in inputs.items()}
    weights = dict(model.named_parameters())
    state = weights | dict(model.named_buffers())

    def step(state, inputs, target):
        arguments = ((inputs["x"],), {}) if "x" in inputs else ((), inputs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = torch.func.functional_call(model, state, *arguments)
        loss = functional.cross_entropy(getattr(output, "logits", output).float(), target)
        # floor::attention takes no mask, so weights that only a mask depends on, such as Swin's position biases, get no
        # gradient; allow_unused permits that.
        gradients = torch.autograd.grad(loss, [state[key] for key in weights], allow_unused=True)
        return [gradient for gradient in gradients if gradient is not None]

    graph = fx_graph_cse(make_fx(step, tracing_mode="fake")(state, inputs, target).graph)  # merges equal casts
    bytes_each = 20 if "x" in inputs else 28  # SGD for images, AdamW for tokens
    return graph, len(state), sum(w.numel() * (bytes_each + 2 * (w.dim() > 1)) for w in weights.values())


def name_of(node):
    return node.target._schema.name.split("::")[1] if hasattr(node.target, "_schema") else ""


def shape_of(node):
    return node.meta["val"].shape


def bytes_of(node):
    values = node.meta.get("val")
    sizes = {torch.bool: 1 / 8, torch.bfloat16: 2, torch.float32: 4}  # other types, such as indices: 1 byte
    tensors = [x for x in (values if isinstance(values, (tuple, list)) else [values]) if isinstance(x, torch.Tensor)]
    return sum(x.numel() * sizes.get(x.dtype, 1) for x in tensors)


def is_depthwise(node):
    weight, groups = {"convolution": (1, 8), "convolution_backward": (2, 9)}.get(name_of(node), (0, 0))
    return weight > 0 and node.args[groups] > 1 and shape_of(node.args[weight])[1] == 1


def products_of(node):
    """Returns (FLOPs, the tensors that the product reads and writes) for each matrix product of `node`."""
    name, inputs = name_of(node), node.all_input_nodes
    if name == "attention":
        return [(4 * shape_of(inputs[0]).numel() * shape_of(inputs[1])[-2], [*inputs, node])]
    if name == "attention_backward":  # the scores are computed again
        return [(10 * shape_of(inputs[1]).numel() * shape_of(inputs[2])[-2], [*inputs, node])]
    if name == "convolution":
        x, weight = inputs[:2]
        pixels = shape_of(x if node.args[6] else node)  # args[6]: whether the convolution is transposed
        return [(2 * pixels.numel() // pixels[1] * shape_of(weight).numel(), [x, weight, node])]
    if name == "convolution_backward":
        grad, x, weight = inputs
        pixels = shape_of(x if node.args[7] else grad)
        flops = 2 * pixels.numel() // pixels[1] * shape_of(weight).numel()
        results = {user.args[1]: user for user in node.users}
        reads = [(0, [grad, weight]), (1, [grad, x])]
        # args[10] says which of the gradients are computed.
        return [(flops, [*read, results[i]]) for i, read in reads if node.args[10][i]]
    left, right = inputs[-2:]
    return [(2 * shape_of(node).numel() * shape_of(left)[-1], [left, right, node])]


class Step:
    """Counts the bytes that the products and the kernels of a step read and write. These members map a node of the
    graph to a property of the node; `kept` is a set of nodes:

    kind    is "constant" (does not depend on samples), "given" (samples, an embedding's rows), "product", "move" or
            "cheap"
    parts   maps each tensor whose values the node has to the bytes of these values: the node itself or, for a move,
            the tensors that it moves or joins
    kernel  is, for a cheap node, the list of the cheap nodes in the same kernel, including the node itself
    source  maps, for a cheap node, each tensor that must be read to compute the node again to the bytes to read
    kept    is the set of the cheap nodes whose values are written to memory, if another kernel reads them
    """

    def __init__(self, graph, weights):
        """Classifies the nodes of `graph` and joins them into kernels. The first `weights` inputs of the graph are
        weights and buffers."""
        for node in list(graph.nodes):
            if name_of(node) == "threshold_backward":  # the gradient of ReLU
                with graph.inserting_after(node.args[1]):
                    bits = graph.call_function(torch.ops.aten.gt.Scalar, (node.args[1], 0))
                bits.meta["val"] = torch.empty(shape_of(node.args[1]), dtype=torch.bool, device="meta")
                node.update_arg(1, bits)
        nodes = [node for node in graph.nodes if node.op != "output"]
        self.bytes = {node: bytes_of(node) for node in nodes}
        self.kind, self.parts, self.kernel, self.source = {}, {}, {}, {}
        for i, node in enumerate(nodes):
            self.kind[node] = "constant" if i < weights else self.kind_of(node)
        for gradient in graph.output_node().all_input_nodes:
            self.write_in_float32(gradient)
        for node in nodes:
            self.parts[node] = self.parts_of(node)
        self.products = [x for x in nodes if self.kind[x] == "product" and x.target is not operator.getitem]
        cheap = [x for x in nodes if self.kind[x] == "cheap"]
        self.kernels = self.find_kernels(nodes)
        self.wanted = {x for node in self.products for x, _ in self.inputs_of(node)}
        self.wanted |= {x for gradient in graph.output_node().all_input_nodes for x in self.parts[gradient]}
        self.kept = self.wanted & set(cheap)
        crossing = {x for node in cheap for x, _ in self.inputs_from_outside(node)}
        for node in cheap:
            self.source[node] = self.reads(self.inputs_of(node))
            # A value is written only if computing it again reads over 10 % more bytes than the value has. The 10 %
            # allow for reading statistics and other small tensors.
            if node in crossing and sum(self.source[node].values()) > 1.1 * self.bytes[node]:
                self.kept.add(node)

    def kind_of(self, node):
        name = name_of(node)
        if node.op == "placeholder" or name == "embedding":
            return "given"
        if name in CONSTANTS or all(self.kind[x] == "constant" for x in node.all_input_nodes):
            return "constant"
        if node.target is operator.getitem:
            return self.kind[node.args[0]]
        return "product" if name in PRODUCTS else "move" if name in MOVES else "cheap"

    def write_in_float32(self, gradient):
        """Makes the product that computes the gradient of a weight write this gradient in float32, so that no kernel
        must convert the gradient."""
        views = []
        while self.kind[gradient] == "move" or name_of(gradient) == "_to_copy":
            views.append(gradient)
            gradient = gradient.args[0]
        if self.kind[gradient] == "product":
            self.bytes[gradient] = 4 * shape_of(gradient).numel()
            self.kind.update(dict.fromkeys(views, "move"))

    def parts_of(self, node):
        if self.kind[node] == "constant":
            return {}
        if self.kind[node] != "move":
            return {node: self.bytes[node]}
        return {x: min(size, self.bytes[node]) for y in node.all_input_nodes for x, size in self.parts[y].items()}

    def inputs_of(self, node):
        return [part for x in node.all_input_nodes for part in self.parts[x].items()]

    def inputs_from_outside(self, node):
        return [(x, size) for x, size in self.inputs_of(node) if self.kernel.get(x) is not self.kernel[node]]

    def find_kernels(self, nodes):
        """Joins connected cheap nodes into one kernel if their depth is the same. The depth of a node is the greatest
        number of products on a path to it. Returns the kernels in the order of their depth."""
        before = {}
        for node in nodes:
            levels = [before[x] + (self.kind[x] == "product") for x, _ in self.inputs_of(node)]
            before[node] = max(levels, default=0) - (self.kind[node] == "product" and node.target is operator.getitem)
            if self.kind[node] == "cheap":
                neighbours = [x for x, _ in self.inputs_of(node) if self.kind[x] == "cheap" and before[x] == before[node]]
                joined = {id(self.kernel[x]): self.kernel[x] for x in neighbours}
                together = [*sum(joined.values(), []), node]
                self.kernel.update((x, together) for x in together)
        kernels = {id(kernel): kernel for kernel in self.kernel.values()}.values()
        return sorted(kernels, key=lambda kernel: before[kernel[0]])

    def reads(self, inputs):
        """Returns the tensors that must be read to compute `inputs`, each with the number of its bytes that are
        read."""
        found = {}
        for x, size in inputs:
            in_memory = self.kind[x] != "cheap" or x in self.kept
            for y, y_size in {x: size}.items() if in_memory else self.source[x].items():
                found[y] = max(found.get(y, 0), y_size)
        return found

    def fewest_reads(self, inputs):
        """Returns reads(inputs) without the tensors that can be computed from the other tensors in it."""
        found = self.reads(inputs)
        for node in [x for x in found if self.kind[x] == "cheap"]:
            known = dict.fromkeys(found.keys() - {node}, True)

            def computable(x):
                if x not in known:
                    known[x] = self.kind[x] == "cheap" and all(computable(y) for y, _ in self.inputs_of(x))
                return known[x]

            if computable(node):
                del found[node]
        return found

    def memory_bytes(self, l2_bytes):
        wanted, total = set(self.wanted), 0
        for kernel in reversed(self.kernels):
            written = wanted & self.kept & set(kernel)
            used = set(written)
            for node in sorted(kernel, reverse=True):  # in reverse order of the graph
                if node in used:
                    used.update(x for x, _ in self.inputs_of(node))
            reads = self.fewest_reads([part for x in kernel if x in used for part in self.inputs_from_outside(x)])
            norms = self.fewest_reads([part for x in kernel if name_of(x) in BATCH_NORMS for part in self.inputs_of(x)])
            sums = sum(norms.values())
            total += sum(reads.values()) + (sums if sums > l2_bytes or not reads else 0)
            total += sum(self.bytes[x] for x in written)
            wanted |= reads.keys() | norms.keys()
        return total

    def size(self, node):
        """Returns how many bytes a product reads or writes for the tensor of `node`."""
        if self.kind[node] == "constant":
            return 2 * shape_of(node).numel()
        return min(self.bytes[node], sum(self.parts[node].values()))

    def floors(self, rates):
        """Returns the milliseconds of products, of attention, and of all other operations (`memory`)."""
        bandwidth = rates.copy_tbps * 1e9  # bytes per millisecond
        found = {"products": 0, "attention": 0, "memory": self.memory_bytes(rates.l2_mb * 1e6) / bandwidth}
        for node in self.products:
            products = products_of(node)
            if is_depthwise(node):
                flops, tensors = sum(x for x, _ in products), {x for _, tensors in products for x in tensors}
                size = sum(self.size(x) for x in tensors)
                found["memory"] += max(flops / (rates.vector_tflops * 1e9), size / bandwidth)
                continue
            for flops, tensors in products:
                kind = "attention" if name_of(node).startswith("attention") else "products"
                found[kind] += max(flops / (rates.tflops * 1e9), sum(self.size(x) for x in tensors) / bandwidth)
        return found


def milliseconds(run):
    """Returns the milliseconds of the shortest of 20 runs of run() on the GPU."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(21)]
    run()
    for event in events:
        event.record()
        run()
    torch.cuda.synchronize()
    return min(begin.elapsed_time(end) for begin, end in zip(events, events[1:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(peers.NAMED), metavar="MODEL")
    parser.add_argument("--tflops", type=float, default=790, help="that matrix products reach")
    parser.add_argument("--vector-tflops", type=float, default=67, help="of float32 without tensor cores")
    parser.add_argument("--copy-tbps", type=float, default=4.2, help="terabytes that a copy reads and writes in a second")
    parser.add_argument("--l2-mb", type=float, default=50)
    parser.add_argument("--measure", action="store_true", help="find --tflops and --copy-tbps on this machine's GPU")
    options = parser.parse_args()
    if options.measure:
        a, b = torch.randn(2, 8192, 8192, dtype=torch.bfloat16, device="cuda")
        options.tflops = 2 * 8192**3 / milliseconds(lambda: a @ b) / 1e9
        x, y = torch.empty(2, 2**30, dtype=torch.uint8, device="cuda")
        options.copy_tbps = 2 * 2**30 / milliseconds(lambda: y.copy_(x)) / 1e9
    print(f"{options.tflops:.0f} TFLOP/s, copy {options.copy_tbps:.2f} TB/s\n")
    print("| model | products | attention | memory | update | floor |\n|---|---|---|---|---|---|")
    prepare_tracing()
    for name in options.models:
        graph, weights, update_bytes = trace(name)
        row = Step(graph, weights).floors(options) | {"update": update_bytes / options.copy_tbps / 1e9}
        cells = [f"{part:.2f}" for part in [*row.values(), sum(row.values())]]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
