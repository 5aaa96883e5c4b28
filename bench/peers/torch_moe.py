#!/usr/bin/python3
"""A contender: one expert-parallel MoE layer, forward and backward, in PyTorch with gloo.

With one chunk it is the plain layer: permute, all-to-all, experts, all-to-all, unpermute. With more it is the pairwise
Chunk MoE: the tokens are cut into chunks, two of them are under way at a time, and the all-to-alls of one run while the
experts of the other compute, forward and backward. Runs once per rank, with what torch.distributed reads in the
environment:

    tools/lab 2x1@2gbit --each /usr/bin/python3 bench/peers/torch_moe.py --chunks 1,2,4

Rank 0 prints a line of JSON per number of chunks. Shapes: T tokens of this rank, H hidden, F expert FFN, E experts,
k experts per token, R ranks.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.autograd import Function
from torch.nn.functional import silu

# ---- All-to-alls that run behind other work


class Exchange:
    """An all-to-all of rows, [sum(sent), H] to [sum(received), H], and the opposite one of their gradients. Each is
    started by one node of the autograd graph and awaited by another; backward visits them in the opposite order, so
    what overlaps forward overlaps backward."""

    def __init__(self, sent, received):
        self.sent, self.received = sent, received
        self.rows = self.work = self.keep = None

    def launch(self, rows, sent, received):
        self.keep = rows.contiguous()  # until it has been sent
        self.rows = rows.new_empty(sum(received), rows.shape[1])
        self.work = dist.all_to_all_single(wire(self.rows), wire(self.keep), received, sent, async_op=True)

    def wait(self):
        self.work.wait()
        rows = self.rows
        self.rows = self.work = self.keep = None
        return rows

    def start(self, rows):
        return Start.apply(rows, self)

    def finish(self, started):
        return Finish.apply(started, self)


def wire(rows):
    """gloo does not know bfloat16; what it moves are bytes, of whatever type."""
    return rows.view(torch.float16) if rows.dtype == torch.bfloat16 else rows


class Start(Function):
    @staticmethod
    def forward(ctx, rows, exchange):
        ctx.exchange = exchange
        exchange.launch(rows, exchange.sent, exchange.received)
        return exchange.rows

    @staticmethod
    def backward(ctx, _):
        return ctx.exchange.wait(), None


class Finish(Function):
    @staticmethod
    def forward(ctx, started, exchange):
        ctx.exchange = exchange
        exchange.wait()
        return started.view_as(started)

    @staticmethod
    def backward(ctx, gradient):
        exchange = ctx.exchange
        exchange.launch(gradient, exchange.received, exchange.sent)
        return gradient, None  # the gradient that matters is what Start.backward receives


# ---- Reordering rows: the backward of PyTorch's own indexing adds rows one by one, which is several times slower


class Reorder(Function):
    """rows[order], `order` a permutation with this inverse."""

    @staticmethod
    def forward(ctx, rows, order, inverse):
        ctx.inverse = inverse
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.index_select(0, ctx.inverse), None, None


class Copy(Function):
    """Row order[i] // k of [T, H]: each token's row as often as it has experts, by expert."""

    @staticmethod
    def forward(ctx, rows, order, inverse, k):
        ctx.inverse, ctx.k = inverse, k
        return rows.index_select(0, order.div(k, rounding_mode="floor"))

    @staticmethod
    def backward(ctx, gradient):
        copies = gradient.index_select(0, ctx.inverse).view(-1, ctx.k, gradient.shape[1])
        ones = copies.new_ones(len(copies), 1, ctx.k)
        return torch.bmm(ones, copies).squeeze(1), None, None, None  # twice as fast as copies.sum(1)


def inverse_of(order):
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order))
    return inverse


# ---- The layer


class Chunk:
    """What happens to one chunk's tokens, in stages that the layer interleaves."""

    def __init__(self, layer, tokens, weights, experts, counts):
        """tokens [t, H]; weights, experts [t, k]; counts [R, E]: rows that each rank has for each expert."""
        self.layer, self.weights = layer, weights
        self.order = experts.reshape(-1).argsort(stable=True)
        self.inverse = inverse_of(self.order)
        self.rows = Copy.apply(tokens, self.order, self.inverse, experts.shape[1])
        mine = counts[:, layer.first_expert : layer.first_expert + len(layer.up)]
        sent = counts[dist.get_rank()].view(counts.shape[0], -1).sum(1).tolist()
        received = mine.sum(1).tolist()
        self.rows_of_expert = mine.sum(0).tolist()
        # Rows come by rank, then expert; experts want them by expert.
        arrived = torch.arange(mine.shape[1]).repeat(mine.shape[0]).repeat_interleave(mine.reshape(-1))
        self.by_expert = arrived.argsort(stable=True)
        self.by_rank = inverse_of(self.by_expert)
        self.dispatch = Exchange(sent, received)
        self.combine = Exchange(received, sent)

    def start_dispatch(self):
        self.rows = self.dispatch.start(self.rows)

    def compute_and_start_combine(self):
        rows = Reorder.apply(self.dispatch.finish(self.rows), self.by_expert, self.by_rank)
        parts = []
        for part, up, down in zip(rows.split(self.rows_of_expert), self.layer.up, self.layer.down):
            gate, value = (part @ up).chunk(2, dim=-1)
            parts.append((silu(gate) * value) @ down)
        self.rows = self.combine.start(Reorder.apply(torch.cat(parts), self.by_rank, self.by_expert))

    def unpermute(self):
        rows = Reorder.apply(self.combine.finish(self.rows), self.inverse, self.order)
        rows = rows.view(*self.weights.shape, -1)
        return torch.bmm(self.weights.unsqueeze(1).to(rows.dtype), rows).squeeze(1)


class MoeLayer:
    def __init__(self, hidden, ffn, experts, topk, dtype, zipf):
        ranks = dist.get_world_size()
        if experts % ranks:
            raise SystemExit(f"{experts} experts are not a multiple of {ranks} ranks")
        local = experts // ranks
        self.topk, self.first_expert = topk, dist.get_rank() * local

        def weights(rows, columns, kind):
            return (torch.randn(rows, columns) / rows**0.5).to(kind).requires_grad_()

        self.up = [weights(hidden, 2 * ffn, dtype) for _ in range(local)]  # gate and value side by side
        self.down = [weights(ffn, hidden, dtype) for _ in range(local)]
        torch.manual_seed(1)  # the router is the same on every rank
        self.router = weights(hidden, experts, torch.float32)
        self.bias = -zipf * torch.log(torch.arange(1.0, experts + 1.0))

    def parameters(self):
        return [self.router, *self.up, *self.down]

    def __call__(self, x, chunks):
        """[T, H] to [T, H]."""
        scores = (x.float() @ self.router + self.bias).softmax(-1)
        weights, experts = scores.topk(self.topk)
        experts_of = experts.chunk(chunks)
        width = self.bias.shape[0]
        counts = torch.stack([part.reshape(-1).bincount(minlength=width) for part in experts_of])
        of_ranks = [torch.empty_like(counts) for _ in range(dist.get_world_size())]
        dist.all_gather(of_ranks, counts)  # once for all chunks
        of_ranks = torch.stack(of_ranks)  # [R, N, E]
        parts = list(zip(x.chunk(chunks), weights.chunk(chunks), experts_of, of_ranks.unbind(1)))
        outputs = []
        for first in range(0, len(parts), 2):
            pair = []
            for part in parts[first : first + 2]:
                pair.append(Chunk(self, *part))
                pair[-1].start_dispatch()
            for chunk in pair:
                chunk.compute_and_start_combine()
            outputs += [chunk.unpermute() for chunk in pair]
        return torch.cat(outputs)


# ---- Measuring


def measure(layer, x, gradient, chunks):
    """Milliseconds of one forward and backward, of the slowest rank."""
    x.grad = None
    for parameter in layer.parameters():
        parameter.grad = None
    dist.barrier()
    begin = time.perf_counter()
    layer(x, chunks).backward(gradient)
    dist.barrier()
    return (time.perf_counter() - begin) * 1e3


def parse_arguments():
    parser = argparse.ArgumentParser(description="One expert-parallel MoE layer in PyTorch with gloo.")
    sizes = {"tokens": 2048, "hidden": 1024, "ffn": 512, "experts": 16, "topk": 4, "iterations": 9, "warmup": 3}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
    parser.add_argument("--chunks", default="1,2,4", help="numbers of chunks, measured by turns")
    parser.add_argument("--zipf", type=float, default=0.0, help="skew of the routing; 0: none")
    return parser.parse_args()


def main():
    options = parse_arguments()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo")
    torch.manual_seed(1000 + dist.get_rank())
    dtype = torch.float32 if options.dtype == "f32" else torch.bfloat16
    layer = MoeLayer(options.hidden, options.ffn, options.experts, options.topk, dtype, options.zipf)
    torch.manual_seed(2000 + dist.get_rank())
    x = torch.randn(options.tokens, options.hidden).to(dtype).requires_grad_()
    gradient = torch.randn(options.tokens, options.hidden).to(dtype)
    times = {int(text): [] for text in options.chunks.split(",")}
    for iteration in range(options.warmup + options.iterations):
        for chunks, measured in times.items():
            elapsed = measure(layer, x, gradient, chunks)
            if iteration >= options.warmup:
                measured.append(elapsed)
    if dist.get_rank() == 0:
        for chunks, measured in times.items():
            line = {"chunks": chunks, "median_ms": statistics.median(measured), "min_ms": min(measured)}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
