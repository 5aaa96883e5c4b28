#!/usr/bin/env python3
"""Draws traces as an SVG timeline: a row per rank and stream, a colour per kind of operation.

    tools/plot_trace.py runs/demo/trace.json step.svg --step 1 --ranks 0,1
    tools/plot_trace.py runs/demo/trace.json part.svg --ranks 0 --from 120 --to 180
    tools/plot_trace.py none.json pairwise.json overlap.svg --ranks 0 --panels "one by one,two by two"
    tools/plot_trace.py 1f1b.json dualpipe.json pipelines.svg --streams compute

Several traces stand one above the other on one time axis. Communication that a rank's compute waited for is marked in
and under its compute row. Python's standard library only.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import svg
from inputs import NUMBER, InputError, field, finite, parse_json, read_text, run

# Kinds of operations share a hue. The pass is told by the shade: forward, input gradient, weight gradient.
KINDS = [
    ("attention", "#3b6fb6", ("attention",)),
    ("dense MLP", "#5a9aa8", ("dense_mlp",)),
    ("router", "#8a63b8", ("router",)),
    ("permute, unpermute", "#b79ad1", ("permute", "unpermute")),
    ("sum inside the node", "#a07a9c", ("node_sum",)),
    ("experts", "#d9822b", ("experts",)),
    ("shared experts", "#b5563a", ("shared_experts",)),
    ("embedding, loss", "#8d7355", ("embedding", "loss")),
    ("ends of the layer", "#a39a8c", ("boundary",)),
    ("optimizer", "#5b6570", ("optimizer", "gradient_norm")),
    ("dispatch", "#2f8f5b", ("dispatch",)),
    ("combine", "#7bbf4f", ("combine",)),
    ("routing, sums, notices", "#b9b03c", ("metadata", "loads", "statistics", "retire")),
    ("gradient reduction", "#c05a7c", ("reduce_dense", "reduce_experts", "gather_weights")),
    ("multi-token prediction", "#7d6a9c", ("mtp_projection",)),
    ("between stages", "#8c8c3f", ("send", "receive")),
]
KIND_OF = {op: kind for kind in KINDS for op in kind[2]}
# Tasks of a whole virtual stage have a hue for each stage.
STAGE_OPS = {"stage", "paired_stage"}
STAGES = [(f"virtual stage {number}", colour, ()) for number, colour in
          enumerate(("#3b6fb6", "#d9822b", "#2f8f5b", "#b5563a"))]
SHADES = {"input_grad": 0.25, "weight_grad": 0.5, "recompute": 0.65}
WORDS = {"input_grad": " dX", "weight_grad": " dW", "recompute": " again"}
EXPOSED, EXPOSED_PALE = "#d1242f", "#f7cfd0"
STREAMS = ["compute", "prefetch", "intra", "inter", "reduce", "send_next", "receive_previous", "send_previous",
           "receive_next"]

WIDTH = 1000
LEFT, RIGHT = 150, 16
ROW, GAP, RANK_GAP, PANEL_GAP, CAPTION = 22, 3, 14, 22, 20
LABEL_SIZE = 10.5


@dataclass
class Panel:
    """What is drawn of one trace: tasks from `begin` to `end`, in ms."""

    caption: str
    events: list
    begin: float
    end: float

    def rows(self):
        return sorted({(e["rank"], STREAMS.index(e["stream"])) for e in self.events})

    def rank_gap(self):
        """Ranks with a row each stand close together, as stages of a pipeline."""
        rows = self.rows()
        return 0 if len(rows) == len({rank for rank, _ in rows}) else RANK_GAP

    def height(self):
        rows = self.rows()
        ranks = len({rank for rank, _ in rows})
        return (CAPTION if self.caption else 0) + len(rows) * (ROW + GAP) + (ranks - 1) * self.rank_gap() + 5 * ranks

    def waiting(self):
        """Of the rank that waits most, ms that compute waited for communication, at the end too."""
        waits = []
        for rank in {e["rank"] for e in self.events}:
            mine = [e for e in self.events if e["rank"] == rank]
            computed = [e for e in mine if e["stream"] == "compute"]
            last = max((e["end"] for e in computed), default=self.begin)
            waits.append(sum(max(0.0, min(e["exposed"], e["begin"] - self.begin)) for e in computed)
                         + max(e["end"] for e in mine) - last)
        return max(waits)


    def idle(self):
        """Of the rank that does least, ms without compute."""
        busy = {e["rank"]: 0.0 for e in self.events}
        for event in self.events:
            busy[event["rank"]] += event["end"] - event["begin"] if event["stream"] == "compute" else 0.0
        return self.end - self.begin - min(busy.values())


def shaded(colour, pass_name):
    """The colour, mixed with white by pass."""
    share = SHADES.get(pass_name, 0.0)
    channels = (int(colour[i:i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * share):02x}" for c in channels)


def read_events(path):
    """The tasks of a trace: dicts with rank, stream, name, op, pass, begin, end and exposed, in ms."""
    raw = field(parse_json(read_text(path), path), "traceEvents", list, path)
    streams = {}
    for index, event in enumerate(raw):
        where = f"{path}: event {index}"
        if field(event, "ph", str, where) == "M" and field(event, "name", str, where) == "thread_name":
            key = field(event, "pid", int, where), field(event, "tid", int, where)
            streams[key] = field(field(event, "args", dict, where), "name", str, where)
    return [read_task(e, streams, f"{path}: event {i}") for i, e in enumerate(raw) if e["ph"] == "X"]


def read_task(event, streams, where):
    arguments = field(event, "args", dict, where)

    def number(name, default):
        return field(arguments, name, NUMBER, where) if name in arguments else default

    begin, duration = field(event, "ts", NUMBER, where), field(event, "dur", NUMBER, where)
    task = {
        "rank": field(event, "pid", int, where),
        "stream": streams.get((event["pid"], field(event, "tid", int, where))),
        "name": field(event, "name", str, where),
        "op": field(event, "cat", str, where),
        "pass": field(arguments, "pass", str, where),
        "layer": int(number("layer", -1)),
        "micro_batch": int(number("micro_batch", -1)),
        "chunk": int(number("chunk", -1)),
        "chunks": int(number("chunks", 1)),
        "begin": begin / 1e3,
        "end": (begin + duration) / 1e3,
        "exposed": number("exposed_us", 0.0) / 1e3,
    }
    if task["stream"] not in STREAMS or duration < 0:
        raise InputError(f"{where}: not a task of expedite's: stream {task['stream']}, {duration} us long")
    if task["op"] not in KIND_OF and task["op"] not in STAGE_OPS:
        raise InputError(f"{where}: not a task of expedite's: the operation {task['op']} is not known")
    return task


def steps_of(events, rank):
    """When each step of a rank begins: at the embedding of its first micro-batch."""
    return sorted(e["begin"] for e in events
                  if e["rank"] == rank and e["op"] == "embedding" and e["pass"] == "forward" and "mb0" in e["name"])


def select_step(events, number):
    """The events of one step; each rank begins and ends it at a time of its own."""
    chosen = []
    for rank in {e["rank"] for e in events}:
        begins = steps_of(events, rank)
        if not 0 <= number < len(begins):
            legal = f"--step takes 0 to {len(begins) - 1}" if begins else "--step has none to choose from"
            raise InputError(f"the trace has {len(begins)} steps on rank {rank}: {legal}")
        end = begins[number + 1] if number + 1 < len(begins) else float("inf")
        chosen += [e for e in events if e["rank"] == rank and begins[number] <= e["begin"] < end]
    return chosen


def is_stage(event):
    return event["op"] in STAGE_OPS


def kind_of(event):
    return STAGES[event["chunk"] % len(STAGES)] if is_stage(event) else KIND_OF[event["op"]]


def draw_legend(picture, events, y):
    """Only the kinds that occur; returns the height used."""
    occurring = {id(kind_of(e)) for e in events}
    used = [kind for kind in KINDS + STAGES if id(kind) in occurring]
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
    notes = "Shades: forward dark, input gradient (dX) lighter, weight gradient (dW) lightest."
    if any(is_stage(e) for e in events):
        notes += " Numbers: micro-batches."
    elif any(e["chunk"] >= 0 and e["op"] == "experts" for e in events):
        notes += " Numbers: chunks."
    picture.text(LEFT, y + 19 * line + 10, notes, 11.5, svg.FAINT)
    return 19 * (line + 1)


def labels(event, one_layer):
    """What a task may be called, from the longest to the shortest."""
    if is_stage(event):
        return (str(event["micro_batch"]),)
    words = WORDS.get(event["pass"], "")
    if event["op"] in ("send", "receive"):
        return (event["op"] + words, event["op"])
    layer = f'L{event["layer"]}' if event["layer"] >= 0 and not one_layer else ""
    if event["chunk"] < 0:
        return (f'{layer} {event["op"]}{words}'.strip(), event["op"] + words, layer)
    first, last = event["chunk"], event["chunk"] + event["chunks"] - 1
    chunk = f"{first}" if first == last else f"{first}-{last}"
    name = f"{layer} {chunk}".strip()
    return (f'{name} {event["op"]}{words}', name + words, name, chunk)


def draw_task(picture, event, x, y, width, one_layer):
    colour = shaded(kind_of(event)[1], event["pass"])
    duration = event["end"] - event["begin"]
    # A hair of the plate between neighbours, where there is room for it.
    picture.rect(x, y, max(width - (0.6 if width > 2 else 0), 0.4), ROW, colour, f'{event["name"]}: {duration:.2f} ms')
    dark = event["pass"] == "forward" or event["op"] in ("optimizer", "gradient_norm")
    for label in labels(event, one_layer):
        if label and svg.text_width(label, LABEL_SIZE) + (3 if label.isdigit() else 6) < width:
            picture.text(x + width / 2, y + ROW / 2 + 3.8, label, LABEL_SIZE, "#ffffff" if dark else svg.INK, "middle")
            return


def draw_panel(picture, panel, y, scale):
    if panel.caption:
        length = panel.end - panel.begin
        pipeline = all(is_stage(e) for e in panel.events if e["stream"] == "compute")
        idle, words = (panel.idle(), "a stage idles") if pipeline else (panel.waiting(), "compute waits")
        picture.text(LEFT, y + 12, panel.caption, 12.5, font_weight=600)
        picture.text(WIDTH - RIGHT, y + 12, f"{length:.0f} ms, of which {words} {idle:.0f} ms ({idle / length:.0%})",
                     11.5, svg.FAINT, "end")
        y += CAPTION
    one_layer = len({e["layer"] for e in panel.events if e["op"] == "experts"}) <= 1
    right_end = LEFT + (panel.end - panel.begin) * scale
    previous = None
    for rank, stream in panel.rows():
        if rank != previous:
            y += panel.rank_gap() if previous is not None else 0
            picture.text(16, y + ROW / 2 + 4.5, f"rank {rank}", 12, font_weight=600)
            previous = rank
        picture.text(LEFT - 8, y + ROW / 2 + 4.5, STREAMS[stream], 11.5, svg.FAINT, "end")
        picture.rect(LEFT, y, right_end - LEFT, ROW, "#f0f0ed")
        mine = [e for e in panel.events if e["rank"] == rank and e["stream"] == STREAMS[stream]]
        for event in mine:
            if STREAMS[stream] == "compute" and event["exposed"] > 0:
                draw_wait(picture, max(event["begin"] - event["exposed"], panel.begin) - panel.begin,
                          event["begin"] - panel.begin, y, scale)
        for event in mine:
            left, right = max(event["begin"], panel.begin), min(event["end"], panel.end)
            draw_task(picture, event, LEFT + (left - panel.begin) * scale, y, (right - left) * scale, one_layer)
        y += ROW + GAP + (5 if STREAMS[stream] == "compute" else 0)


def draw_wait(picture, begin, end, y, scale):
    if end > begin:
        x, width = LEFT + begin * scale, (end - begin) * scale
        picture.rect(x, y, width, ROW, EXPOSED_PALE)
        picture.rect(x, y + ROW + 1, width, 4, EXPOSED, f"compute waits {end - begin:.2f} ms for communication")


def draw(panels, title, path):
    picture = svg.Svg(WIDTH, 0)
    if title:
        picture.text(16, 26, title, 15, font_weight=600)
    top = 40 if title else 18
    top += draw_legend(picture, [e for panel in panels for e in panel.events], top) + (14 if len(panels) > 1 else 8)
    bottom = top + sum(panel.height() for panel in panels) + (len(panels) - 1) * PANEL_GAP
    picture.height = bottom + 40
    length = max(panel.end - panel.begin for panel in panels)
    scale = (WIDTH - LEFT - RIGHT) / length

    y = top
    for panel in panels:
        first_row = y + (CAPTION if panel.caption else 0)
        for tick in svg.ticks(0, length, 12):
            x = LEFT + tick * scale
            picture.line(x, first_row - 2, x, y + panel.height() + 2, svg.GRID)
        draw_panel(picture, panel, y, scale)
        y += panel.height() + PANEL_GAP
    for tick in svg.ticks(0, length, 12):
        picture.text(LEFT + tick * scale, bottom + 17, f"{tick:g}", 11.5, svg.FAINT, "middle")
    picture.text(WIDTH - RIGHT, bottom + 32, "time in ms", 11.5, svg.FAINT, "end")
    picture.write(path)


def select(path, arguments):
    """The events of a trace that the arguments want, and from when to when."""
    events = read_events(path)
    if arguments.streams:
        wanted = arguments.streams.split(",")
        if unknown := [name for name in wanted if name not in STREAMS]:
            raise InputError(f"--streams {unknown[0]}: expected some of {','.join(STREAMS)}")
        events = [e for e in events if e["stream"] in wanted]
    if arguments.step is not None:
        events = select_step(events, arguments.step)
    if arguments.ranks:
        events = [e for e in events if e["rank"] in arguments.ranks]
    if not events:
        raise InputError(f"nothing to draw: {path} has no such tasks")
    zero = min(e["begin"] for e in events)
    begin = zero + (arguments.begin or 0.0)
    end = max(e["end"] for e in events) if arguments.end is None else zero + arguments.end
    events = [e for e in events if e["end"] > begin and e["begin"] < end]
    if not events or end <= begin:
        raise InputError(f"nothing to draw of {path} between --from and --to")
    return events, begin, end


def rank_list(text):
    return {int(rank) for rank in text.split(",")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("traces", nargs="+", metavar="trace")
    parser.add_argument("svg")
    parser.add_argument("--step", type=int, help="only this step of each trace, from 0")
    parser.add_argument("--ranks", type=rank_list, help="only these, as in 0,1")
    parser.add_argument("--streams", help="only these, as in compute,inter")
    parser.add_argument("--from", dest="begin", type=finite, help="ms after the step's (or trace's) begin")
    parser.add_argument("--to", dest="end", type=finite, help="ms after the step's (or trace's) begin")
    parser.add_argument("--title")
    parser.add_argument("--panels", help="what to call each of several traces, separated by commas; else the files' names")
    arguments = parser.parse_args()

    captions = [Path(trace).stem if len(arguments.traces) > 1 else "" for trace in arguments.traces]
    if arguments.panels:
        captions = arguments.panels.split(",")
        if len(captions) != len(arguments.traces):
            parser.error(f"--panels names {len(captions)} of {len(arguments.traces)} traces")
    draw([Panel(caption, *select(trace, arguments))
          for caption, trace in zip(captions, arguments.traces, strict=True)], arguments.title, arguments.svg)


if __name__ == "__main__":
    run(main)
