"""Drawing traces: every operation has a colour, several traces share one axis, and no text lies on another."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import harness

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/plot_trace.py"
sys.path.insert(0, str(TOOL.parent))
import plot_trace  # noqa: E402
import svg  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def task(rank, stream, op, begin, end, pass_name="forward", **arguments):
    chunk = f"c{arguments['chunk']} " if "chunk" in arguments else ""
    return {
        "ph": "X", "pid": rank, "tid": plot_trace.STREAMS.index(stream), "name": f"L0 mb0 {chunk}{op} {pass_name}",
        "cat": op, "ts": begin * 1e3, "dur": (end - begin) * 1e3, "args": {"pass": pass_name, "layer": 0, **arguments},
    }  # fmt: skip


class PlotTrace(harness.Case):
    def write(self, name, tasks):
        threads = {(t["pid"], t["tid"]) for t in tasks}
        names = [
            {"ph": "M", "pid": p, "tid": t, "name": "thread_name", "args": {"name": plot_trace.STREAMS[t]}}
            for p, t in threads
        ]
        path = self.folder / name
        path.write_text(json.dumps({"traceEvents": names + tasks}))
        return path

    def plot(self, *arguments, status=0):
        command = [sys.executable, TOOL, *map(str, arguments)]
        process = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(process.returncode, status, process.stderr)
        return process.stderr if status else ElementTree.parse(self.folder / "out.svg")

    @staticmethod
    def texts(picture):
        return [element.text for element in picture.iter(f"{SVG}text")]

    def assert_legible(self, picture):
        """Every text lies inside the picture and on no other."""
        width, height = float(picture.getroot().get("width")), float(picture.getroot().get("height"))
        boxes = []
        for element in picture.iter(f"{SVG}text"):
            size, x, y = (float(element.get(name)) for name in ("font-size", "x", "y"))
            length = svg.text_width(element.text, size)
            left = x - {"start": 0, "middle": length / 2, "end": length}[element.get("text-anchor")]
            boxes.append((left, y - 0.75 * size, left + length, y + 0.2 * size, element.text))
        for index, (left, top, right, bottom, text) in enumerate(boxes):
            self.assertTrue(left >= 0 and right <= width and top >= 0 and bottom <= height, text)
            for other in boxes[:index]:
                apart = right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
                self.assertTrue(apart, f"'{text}' lies on '{other[4]}'")

    def test_every_operation_has_a_colour(self):
        header = (ROOT / "expedite/schedule/schedule.h").read_text()
        operations = re.search(r"enum class Op .*?\{(.*?)\};", header, re.S)[1]
        names = set(re.findall(r"^\s*(\w+),", re.sub(r"//.*", "", operations), re.M))
        self.assertIn("experts", names)
        self.assertEqual(set(plot_trace.KIND_OF) | plot_trace.STAGE_OPS, names)

    def test_several_traces_share_an_axis(self):
        slow = [
            task(0, "compute", "router", 5, 10),
            task(0, "inter", "dispatch", 10, 40, chunk=0),
            task(0, "compute", "experts", 40, 90, chunk=0, wait_us=30e3, exposed_us=30e3),
            task(0, "inter", "combine", 90, 105, chunk=0),
            task(1, "compute", "router", 0, 10),
        ]
        fast = [
            task(0, "compute", "experts", 0, 40, "weight_grad", chunk=2, chunks=2),
            task(0, "inter", "dispatch", 0, 10, chunk=3),
            task(1, "compute", "experts", 0, 41),
        ]
        self.write("slow.json", slow)
        self.write("fast.json", fast)
        picture = self.plot("slow.json", "fast.json", "out.svg", "--ranks", 0, "--title", "A layer")
        self.assert_legible(picture)
        texts = self.texts(picture)
        for text in (
            "A layer", "slow", "fast", "100 ms, of which compute waits 45 ms (45%)",
            "40 ms, of which compute waits 0 ms (0%)", "0 experts", "0 dispatch", "2-3 experts dW", "3 dispatch",
        ):  # fmt: skip
            self.assertIn(text, texts)
        self.assertNotIn("rank 1", texts)
        rectangles = {
            element.find(f"{SVG}title").text: element
            for element in picture.iter(f"{SVG}rect")
            if element.find(f"{SVG}title") is not None
        }
        wide = float(rectangles["L0 mb0 c0 experts forward: 50.00 ms"].get("width"))
        narrow = float(rectangles["L0 mb0 c2 experts weight_grad: 40.00 ms"].get("width"))
        self.assertAlmostEqual(wide / narrow, 50 / 40, delta=0.02)
        waited = rectangles["compute waits 30.00 ms for communication"]
        self.assertAlmostEqual(float(waited.get("width")) / wide, 30 / 50, delta=0.02)

        named = self.plot("slow.json", "fast.json", "out.svg", "--panels", "none,pairwise")
        self.assertTrue({"none", "pairwise", "rank 1"} <= set(self.texts(named)))

    def test_mistakes(self):
        path = self.write("one.json", [task(0, "compute", "router", 0, 5)])
        self.assertIn("--panels names 1 of 2 traces", self.plot(path, path, "out.svg", "--panels", "a", status=2))
        self.assertIn("nothing to draw", self.plot(path, "out.svg", "--ranks", 3, status=1))
        self.assertIn("nothing to draw", self.plot(path, "out.svg", "--from", 7, status=1))
        self.assertIn("has 0 steps", self.plot(path, "out.svg", "--step", 0, status=1))

    def test_draws_what_the_program_traces(self):
        process = self.start(
            "bench", "layer", "--ranks", 2, "--tokens", 64, "--hidden", 32, "--ffn", 16, "--rounds", 1, "--dispatcher",
            "alltoall,hierarchical_dedup", "--chunks", 4, "--pipeline", "continuous,pairwise,none", "--trace", "traces",
        )  # fmt: skip
        self.assertEqual(process.wait(), 0, process.output)
        traces = sorted((self.folder / "traces").iterdir())
        self.assertEqual(len(traces), 6)
        self.assert_legible(self.plot(*traces, "out.svg"))
        self.assert_legible(self.plot(traces[0], "out.svg"))


if __name__ == "__main__":
    harness.main()
