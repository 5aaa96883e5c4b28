#!/usr/bin/env python3
"""Draws a run's trace.json as an SVG timeline: a row per rank and stream, a colour per kind of operation.

    tools/plot_trace.py runs/demo/trace.json step.svg --step 1 --ranks 0,1
    tools/plot_trace.py runs/demo/trace.json part.svg --ranks 0 --from 120 --to 180

Communication that a rank's compute waited for is marked under its compute row. Python's standard library only.
"""

import argparse
import json
import sys

import svg

# Kinds of operations share a hue. The pass is told by the shade: forward, input gradient, weight gradient.
KINDS = [
    ("attention", "#3b6fb6", ("attention",)),
    ("dense MLP", "#5a9aa8", ("dense_mlp",)),
    ("router", "#8a63b8", ("router",)),
    ("permute, unpermute", "#b79ad1", ("permute", "unpermute")),
    ("experts", "#d9822b", ("experts",)),
    ("embedding, loss", "#8d7355", ("embedding", "loss")),
    ("optimizer", "#5b6570", ("optimizer", "gradient_norm")),
    ("dispatch", "#2f8f5b", ("dispatch",)),
    ("combine", "#7bbf4f", ("combine",)),
    ("counts, sums", "#b9b03c", ("metadata", "loads", "statistics")),
    ("gradient reduction", "#c05a7c", ("reduce_dense", "reduce_experts")),
]
KIND_OF = {op: kind for kind in KINDS for op in kind[2]}
SHADES = {"input_grad": 0.25, "weight_grad": 0.5, "recompute": 0.65}
EXPOSED = "#d1242f"
STREAMS = ["compute", "prefetch", "intra", "inter", "reduce"]

WIDTH = 1000
LEFT, RIGHT = 128, 16
ROW, GAP, RANK_GAP = 22, 3, 14
LABEL_SIZE = 10.5


def shaded(colour, pass_name):
    """The colour, mixed with white by pass."""
    share = SHADES.get(pass_name, 0.0)
    channels = (int(colour[i:i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * share):02x}" for c in channels)


def read_events(path):
    """The tasks of a trace: dicts with rank, stream, name, op, pass, begin, end and exposed, in ms."""
    with open(path, encoding="utf-8") as file:
        raw = json.load(file)["traceEvents"]
    streams = {(e["pid"], e["tid"]): e["args"]["name"] for e in raw if e["ph"] == "M" and e["name"] == "thread_name"}
    return [{
        "rank": e["pid"],
        "stream": streams[e["pid"], e["tid"]],
        "name": e["name"],
        "op": e["cat"],
        "pass": e["args"]["pass"],
        "begin": e["ts"] / 1e3,
        "end": (e["ts"] + e["dur"]) / 1e3,
        "exposed": e["args"].get("exposed_us", 0.0) / 1e3,
    } for e in raw if e["ph"] == "X"]


def steps_of(events, rank):
    """When each step of a rank begins: at the embedding of its first micro-batch."""
    return sorted(e["begin"] for e in events
                  if e["rank"] == rank and e["op"] == "embedding" and e["pass"] == "forward" and "mb0" in e["name"])


def select_step(events, number):
    """The events of one step; each rank begins and ends it at a time of its own."""
    chosen = []
    for rank in {e["rank"] for e in events}:
        begins = steps_of(events, rank)
        if number >= len(begins):
            sys.exit(f"the trace has {len(begins)} steps on rank {rank}: --step takes 0 to {len(begins) - 1}")
        end = begins[number + 1] if number + 1 < len(begins) else float("inf")
        chosen += [e for e in events if e["rank"] == rank and begins[number] <= e["begin"] < end]
    return chosen


def draw_legend(picture, events, y):
    """Only the kinds that occur; returns the height used."""
    used = [kind for kind in KINDS if any(e["op"] in kind[2] for e in events)]
    entries = [(name, colour) for name, colour, _ in used]
    if any(e["exposed"] > 0 for e in events):
        entries.append(("compute waits for communication", EXPOSED))
    x, line = LEFT, 0
    for name, colour in entries:
        width = 17 + svg.text_width(name, 11.5) + 16
        if x + width > WIDTH - RIGHT:
            x, line = LEFT, line + 1
        height = 4 if colour == EXPOSED else 11
        picture.rect(x, y + 19 * line + (11 - height) / 2, 11, height, colour, rx=2)
        picture.text(x + 17, y + 19 * line + 10, name, 11.5)
        x += width
    line += 1
    picture.text(LEFT, y + 19 * line + 10, "Shades: forward dark, input gradient lighter, weight gradient lightest.",
                 11.5, svg.FAINT)
    return 19 * (line + 1)


def draw_task(picture, event, x, y, width):
    colour = shaded(KIND_OF[event["op"]][1], event["pass"])
    duration = event["end"] - event["begin"]
    # A hair of the plate between neighbours, where there is room for it.
    picture.rect(x, y, max(width - (0.6 if width > 2 else 0), 0.4), ROW, colour, f'{event["name"]}: {duration:.2f} ms')
    layer = event["name"].split(" ")[0] if event["name"].startswith("L") else ""
    dark = event["pass"] == "forward" or event["op"] in ("optimizer", "gradient_norm")
    words = {"input_grad": " dX", "weight_grad": " dW"}.get(event["pass"], "")
    for label in (f'{layer} {event["op"]}{words}'.strip(), event["op"] + words, layer):
        if label and svg.text_width(label, LABEL_SIZE) + 6 < width:
            picture.text(x + width / 2, y + ROW / 2 + 3.8, label, LABEL_SIZE, "#ffffff" if dark else svg.INK, "middle")
            return


def draw(events, begin, end, title, path):
    rows = sorted({(e["rank"], STREAMS.index(e["stream"])) for e in events})
    ranks = sorted({rank for rank, _ in rows})
    top = 84 if title else 62
    body = len(rows) * (ROW + GAP) + (len(ranks) - 1) * RANK_GAP + 5 * len(ranks)
    picture = svg.Svg(WIDTH, top + body + 70)
    scale = (WIDTH - LEFT - RIGHT) / (end - begin)
    if title:
        picture.text(16, 26, title, 15, font_weight=600)
    legend = draw_legend(picture, events, 40 if title else 18)
    top = (40 if title else 18) + legend + 8
    bottom = top + body
    picture.height = bottom + 40

    for tick in svg.ticks(0, end - begin, 10):
        x = LEFT + tick * scale
        picture.line(x, top - 2, x, bottom + 2, svg.GRID)
        picture.text(x, bottom + 17, f"{tick:g}", 11.5, svg.FAINT, "middle")
    picture.text(WIDTH - RIGHT, bottom + 32, "time in ms", 11.5, svg.FAINT, "end")

    y, previous = top, None
    for rank, stream in rows:
        if rank != previous:
            y += RANK_GAP if previous is not None else 0
            picture.text(16, y + ROW / 2 + 4.5, f"rank {rank}", 12, font_weight=600)
            previous = rank
        picture.text(LEFT - 8, y + ROW / 2 + 4.5, STREAMS[stream], 11.5, svg.FAINT, "end")
        picture.rect(LEFT, y, WIDTH - LEFT - RIGHT, ROW, "#f0f0ed")
        mine = [e for e in events if e["rank"] == rank and e["stream"] == STREAMS[stream]]
        for event in mine:
            left, right = max(event["begin"], begin), min(event["end"], end)
            draw_task(picture, event, LEFT + (left - begin) * scale, y, (right - left) * scale)
        if STREAMS[stream] == "compute":
            for event in mine:
                left = max(event["begin"] - event["exposed"], begin)
                if event["exposed"] > 0 and event["begin"] > left:
                    picture.rect(LEFT + (left - begin) * scale, y + ROW + 1, (event["begin"] - left) * scale, 4, EXPOSED)
            y += 5
        y += ROW + GAP
    picture.write(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace")
    parser.add_argument("svg")
    parser.add_argument("--step", type=int, help="only this step of the trace, from 0")
    parser.add_argument("--ranks", help="only these, as in 0,1")
    parser.add_argument("--from", dest="begin", type=float, help="ms after the step's (or trace's) begin")
    parser.add_argument("--to", dest="end", type=float, help="ms after the step's (or trace's) begin")
    parser.add_argument("--title")
    arguments = parser.parse_args()

    events = read_events(arguments.trace)
    if arguments.step is not None:
        events = select_step(events, arguments.step)
    if arguments.ranks:
        wanted = {int(rank) for rank in arguments.ranks.split(",")}
        events = [e for e in events if e["rank"] in wanted]
    if not events:
        sys.exit("nothing to draw: the trace has no such tasks")
    zero = min(e["begin"] for e in events)
    begin = zero + (arguments.begin or 0.0)
    end = max(e["end"] for e in events) if arguments.end is None else zero + arguments.end
    events = [e for e in events if e["end"] > begin and e["begin"] < end]
    if not events or end <= begin:
        sys.exit("nothing to draw between --from and --to")
    draw(events, begin, end, arguments.title, arguments.svg)


if __name__ == "__main__":
    main()
