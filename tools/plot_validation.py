#!/usr/bin/env python3
"""Draws what `expedite validate --json` wrote as an SVG: predicted over published for every run, a line per source.

    expedite validate data/measured_runs.csv --json validation.json
    tools/plot_validation.py validation.json validation.svg

Runs that constants were fitted to are pale, held-out runs are strong. Python's standard library only.
"""

import argparse
import math
import statistics

import svg
from inputs import NUMBER, InputError, field, parse_json, read_text, run

WIDTH, LEFT, RIGHT, TOP, BOTTOM, ROW = 1000, 200, 130, 84, 44, 26
FITTED, HELD_OUT, BAND = "#b9cbe4", "#d9822b", "#eceee9"
RATIOS = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
TIME = "iter_time_s"
RATES = ("tokens_per_s_per_device", "samples_per_s_per_device")
MEMORY = ("peak_alloc_GiB", "peak_mem_GB")


def ratio_of(run):
    """How many times as fast, or as large, as published the prediction is."""
    ratio = run["predicted"] / run["published"]
    return 1 / ratio if run["metric"] == TIME else ratio


def read_runs(path):
    runs = parse_json(read_text(path), path)
    if not isinstance(runs, list):
        raise InputError(f"{path}: not what expedite validate --json writes: expected a list of runs")
    for index, each in enumerate(runs):
        where = f"{path}: run {index}"
        for name in ("id", "metric", "software", "half"):
            field(each, name, str, where)
        field(each, "comparable", bool, where)
        for name in ("published", "predicted"):
            if each["comparable"] and not field(each, name, NUMBER, where) > 0:
                raise InputError(f"{where}: {name} is {each[name]}; expected a number above 0")
    return runs


def rows_of(runs):
    """Names and runs of every line: the times and rates of each software, then memory."""
    times = [run for run in runs if run["comparable"] and run["metric"] in (TIME, *RATES)]
    memory = [run for run in runs if run["comparable"] and run["metric"] in MEMORY]
    names = sorted({run["software"] for run in times})
    rows = [(name, [run for run in times if run["software"] == name]) for name in names]
    return rows + ([("memory, all sources", memory)] if memory else [])


def median_error(runs):
    errors = [abs(run["predicted"] / run["published"] - 1) for run in runs if run["half"] == "held out"]
    return f"{100 * statistics.median(errors):.1f} % of {len(errors)}" if errors else "none held out"


def draw(runs, path):
    rows = rows_of(runs)
    height = TOP + ROW * len(rows) + BOTTOM
    picture = svg.Svg(WIDTH, height)
    low, high = math.log(RATIOS[0]), math.log(RATIOS[-1])

    def across(ratio):
        at = min(max(math.log(ratio), low), high)
        return LEFT + (at - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    picture.text(16, 28, "Predicted over published speed and memory", 15, font_weight=600)
    picture.text(16, 48, "right of 1: predicted faster (or larger) than it was; the band is 10 %", 12, svg.FAINT)
    picture.text(WIDTH - 16, TOP - 12, "held out: median error", 11, svg.FAINT, "end")
    bottom = height - BOTTOM
    picture.rect(across(0.9), TOP, across(1.1) - across(0.9), bottom - TOP, BAND)
    for ratio in RATIOS:
        picture.line(across(ratio), TOP, across(ratio), bottom, svg.FAINT if ratio == 1 else svg.GRID)
        picture.text(across(ratio), bottom + 18, f"{ratio:g}", 12, svg.FAINT, "middle")
    for i, (name, runs_here) in enumerate(rows):
        y = TOP + (i + 0.5) * ROW
        picture.text(LEFT - 12, y + 4, name, 12, anchor="end")
        picture.text(WIDTH - 16, y + 4, median_error(runs_here), 11, svg.FAINT, "end")
        for j, run in enumerate(sorted(runs_here, key=lambda run: run["half"] == "held out")):
            colour = HELD_OUT if run["half"] == "held out" else FITTED
            title = f"{run['id']}: {run['metric']} published {run['published']:g}, predicted {run['predicted']:.4g}"
            picture.raw(f'<circle cx="{across(ratio_of(run)):.1f}" cy="{y + (j * 7 % 13) - 6:.1f}" r="3.2" fill="{colour}" '
                        f'fill-opacity="0.85"><title>{svg.escape(title)}</title></circle>')
    for x, colour, label in ((WIDTH - 330, HELD_OUT, "held out"), (WIDTH - 240, FITTED, "fitted")):
        picture.raw(f'<circle cx="{x}" cy="24" r="4" fill="{colour}"/>')
        picture.text(x + 10, 28, label, 12)
    picture.write(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("validation", help="what expedite validate --json wrote")
    parser.add_argument("svg")
    arguments = parser.parse_args()
    runs = read_runs(arguments.validation)
    if not rows_of(runs):
        raise InputError(f"{arguments.validation}: no times, rates or memory to draw")
    draw(runs, arguments.svg)


if __name__ == "__main__":
    run(main)
