#!/usr/bin/python3
"""A contender must be right before it is compared: torch_moe.py against every token's experts computed one by one.

    tools/lab 2x1 --each /usr/bin/python3 bench/peers/torch_moe_test.py
"""

import torch
import torch.distributed as dist
from torch.nn.functional import silu
from torch_moe import MoeLayer

TOKENS, HIDDEN, FFN, EXPERTS, TOPK = 37, 16, 8, 8, 3
TOLERANCE = 1e-4  # f32 sums of a few hundred terms of order 1, in another order


def of_all_ranks(tensor):
    tensors = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(tensors, tensor.detach().contiguous())
    return [copy.requires_grad_() for copy in tensors]


def of_all_experts(weights):
    """Rank by rank, as the experts are numbered."""
    return [copy for of_rank in zip(*map(of_all_ranks, weights)) for copy in of_rank]


def reference(x, router, bias, up, down):
    """[T, H] to [T, H], row by row."""
    weights, experts = (x @ router + bias).softmax(-1).topk(TOPK)
    rows = []
    for token, its_weights, its_experts in zip(x, weights, experts):
        row = torch.zeros(HIDDEN)
        for weight, expert in zip(its_weights, its_experts):
            gate, value = (token @ up[expert]).chunk(2)
            row = row + weight * ((silu(gate) * value) @ down[expert])
        rows.append(row)
    return torch.stack(rows)


def largest_difference(zipf, chunks):
    """Of the output and of every gradient."""
    rank = dist.get_rank()
    torch.manual_seed(rank)
    layer = MoeLayer(HIDDEN, FFN, EXPERTS, TOPK, torch.float32, zipf)
    torch.manual_seed(100 + rank)
    x = torch.randn(TOKENS, HIDDEN).requires_grad_()
    gradient = torch.randn(TOKENS, HIDDEN)
    output = layer(x, chunks)
    output.backward(gradient)

    up, down = of_all_experts(layer.up), of_all_experts(layer.down)
    tokens, routers = of_all_ranks(x), of_all_ranks(layer.router)
    expected = [reference(t, r, layer.bias, up, down) for t, r in zip(tokens, routers)]
    torch.autograd.backward(expected, [g.detach() for g in of_all_ranks(gradient)])

    local = slice(layer.first_expert, layer.first_expert + len(layer.up))
    pairs = [(output, expected[rank]), (x.grad, tokens[rank].grad), (layer.router.grad, routers[rank].grad)]
    pairs += [(a.grad, b.grad) for a, b in zip(layer.up + layer.down, up[local] + down[local])]
    zero = torch.zeros(())  # an expert without tokens may have no gradient
    return max(float(((zero if a is None else a) - (zero if b is None else b)).abs().max()) for a, b in pairs)


def main():
    dist.init_process_group("gloo")
    for zipf in (0.0, 3.0):
        for chunks in (1, 2, 3, 4, 5):
            difference = largest_difference(zipf, chunks)
            assert difference < TOLERANCE, f"zipf {zipf}, {chunks} chunks: off by {difference}"
    if dist.get_rank() == 0:
        print("torch_moe.py agrees with the reference")


if __name__ == "__main__":
    main()
