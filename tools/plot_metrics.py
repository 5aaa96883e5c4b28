#!/usr/bin/env python3
"""Draws a run's metrics.jsonl as an SVG: training loss and validation in bits per byte over steps, with yardsticks.

    tools/plot_metrics.py runs/demo/metrics.jsonl loss.svg --line 'order-2 Markov=3.049' --line 'gzip -9=2.654'

The training loss is per token; it is bits per byte with byte tokens (--tokens-per-byte otherwise). Python's standard
library only.
"""

import argparse
import math

import svg
from inputs import NUMBER, InputError, field, finite, parse_json, positive, read_text, run

WIDTH, HEIGHT = 1000, 420
LEFT, RIGHT, TOP, BOTTOM = 62, 170, 64, 46
TRAIN, SMOOTH, VALIDATION, YARDSTICK = "#b9cbe4", "#3b6fb6", "#d9822b", "#6b7280"


def read_metrics(path):
    """The steps of a run. What a run that was cut off has left of its last line is not one."""
    text = read_text(path)
    whole = text if text.endswith("\n") else text[:text.rfind("\n") + 1]
    lines = []
    for number, line in enumerate(whole.splitlines(), start=1):
        if line.strip():
            where = f"{path}:{number}"
            lines.append(parse_json(line, where))
            for name in ("step", "loss"):
                field(lines[-1], name, NUMBER, where)
            if lines[-1].get("validation_bits_per_byte") is not None:
                field(lines[-1], "validation_bits_per_byte", NUMBER, where)
    if not lines:
        raise InputError(f"{path}: no steps to draw")
    return lines


def smoothed(values, reach):
    """The mean of each value and of those up to `reach` before and after it; fewer near the ends."""
    result = []
    for i in range(len(values)):
        near = min(reach, i, len(values) - 1 - i)
        window = values[i - near:i + near + 1]
        result.append(sum(window) / len(window))
    return result


def end_label(picture, occupied, x, y, text, colour):
    """A label right of the plot, moved down where another is in its way."""
    while any(abs(y - other) < 16 for other in occupied):
        y += 1
    occupied.append(y)
    picture.text(x, y + 4, text, 12, colour)


def draw(lines, yardsticks, tokens_per_byte, title, path):
    steps = [line["step"] for line in lines]
    loss = [line["loss"] / math.log(2) * tokens_per_byte for line in lines]
    validation = [(line["step"], line["validation_bits_per_byte"]) for line in lines
                  if line.get("validation_bits_per_byte") is not None]
    everything = loss + [v for _, v in validation] + [v for _, v in yardsticks]
    low, high = math.floor(min(everything)), math.ceil(max(everything))
    high = max(high, low + 1)
    picture = svg.Svg(WIDTH, HEIGHT)

    def at(step, value):
        return (LEFT + (step - steps[0]) / max(steps[-1] - steps[0], 1) * (WIDTH - LEFT - RIGHT),
                TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM))

    picture.text(16, 28, title or "Bits per byte over training steps", 15, font_weight=600)
    for tick in svg.ticks(low, high, 8):
        _, y = at(steps[0], tick)
        picture.line(LEFT, y, WIDTH - RIGHT, y, svg.GRID)
        picture.text(LEFT - 8, y + 4, f"{tick:g}", 12, svg.FAINT, "end")
    for tick in svg.ticks(steps[0], steps[-1], 8):
        x, _ = at(tick, low)
        picture.line(x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 4, svg.FAINT)
        picture.text(x, HEIGHT - BOTTOM + 18, f"{tick:g}", 12, svg.FAINT, "middle")
    picture.text(16, TOP - 12, "bits per byte", 12, svg.FAINT)
    picture.text(WIDTH - RIGHT, HEIGHT - BOTTOM + 36, "step", 12, svg.FAINT, "end")

    occupied, right = [], WIDTH - RIGHT + 10
    for name, value in yardsticks:
        _, y = at(steps[0], value)
        picture.line(LEFT, y, WIDTH - RIGHT, y, YARDSTICK, 1.2, stroke_dasharray="5 4")
        end_label(picture, occupied, right, y, f"{name} {value:.3f}", YARDSTICK)
    picture.polyline([at(s, v) for s, v in zip(steps, loss)], TRAIN, 1.0)
    mean = smoothed(loss, len(loss) // 50)
    picture.polyline([at(s, v) for s, v in zip(steps, mean)], SMOOTH, 1.8)
    if validation:
        points = [at(s, v) for s, v in validation]
        picture.polyline(points, VALIDATION, 1.8)
        for (x, y), (step, value) in zip(points, validation):
            picture.raw(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="4" fill="{VALIDATION}">'
                        f"<title>step {step}: {value:.3f}</title></circle>")
        end_label(picture, occupied, right, points[-1][1], f"validation {validation[-1][1]:.3f}", VALIDATION)
    last = sum(loss[-10:]) / len(loss[-10:])
    end_label(picture, occupied, right, at(steps[-1], last)[1], f"training {last:.3f}", SMOOTH)
    picture.write(path)


def parse_yardstick(text):
    name, _, value = text.rpartition("=")
    try:
        return name, finite(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: expected NAME=BITS_PER_BYTE") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("metrics")
    parser.add_argument("svg")
    parser.add_argument("--line", action="append", default=[], type=parse_yardstick, metavar="NAME=VALUE",
                        help="a yardstick to draw across, in bits per byte; may be repeated")
    parser.add_argument("--tokens-per-byte", type=positive, default=1.0)
    parser.add_argument("--title")
    arguments = parser.parse_args()
    lines = read_metrics(arguments.metrics)
    draw(lines, arguments.line, arguments.tokens_per_byte, arguments.title, arguments.svg)


if __name__ == "__main__":
    run(main)
