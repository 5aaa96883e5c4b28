"""The plot tools and the lab on files and outputs that are not as they should be: one line, no traceback."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import harness

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import inputs  # noqa: E402
import plot_metrics  # noqa: E402
import plot_trace  # noqa: E402
import plot_validation  # noqa: E402

PLOTS = ("plot_trace.py", "plot_metrics.py", "plot_validation.py")
TASK = {"ph": "X", "pid": 0, "tid": 0, "name": "L0 mb0 experts forward", "cat": "experts", "ts": 1.0, "dur": 2.0,
        "args": {"pass": "forward"}}  # fmt: skip
NAME = {"ph": "M", "pid": 0, "tid": 0, "name": "thread_name", "args": {"name": "compute"}}
RUN = {"id": "a", "metric": "iter_time_s", "published": 1.0, "predicted": 1.1, "half": "fitted", "comparable": True,
       "software": "megatron"}  # fmt: skip


class Tools(harness.Case):
    def run_tool(self, tool, *arguments, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.run(
            [sys.executable, "-B", TOOLS / tool, *map(str, arguments)], cwd=self.folder, text=True, timeout=60, **options
        )

    def refuse(self, tool, *arguments, text="", status=1, **options):
        process = self.run_tool(tool, *arguments, **options)
        self.assertEqual(process.returncode, status, f"{tool} {arguments}: {process.stderr}")
        self.assertNotIn("Traceback", process.stderr)
        if status == 1:
            self.assertEqual(len(process.stderr.splitlines()), 1, process.stderr)
        self.assertIn(text, process.stderr)

    def write(self, name, content):
        path = self.folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def good(self, tool):
        return {
            "plot_trace.py": self.write("trace.json", {"traceEvents": [NAME, TASK]}),
            "plot_metrics.py": self.write("metrics.jsonl", '{"step": 1, "loss": 2.0}\n{"step": 2, "lo'),
            "plot_validation.py": self.write("validation.json", [RUN]),
        }[tool]

    def test_good_files_are_drawn(self):
        for tool in PLOTS:
            process = self.run_tool(tool, self.good(tool), "out.svg")
            self.assertEqual((process.returncode, process.stderr), (0, ""))
            self.assertIn("</svg>", (self.folder / "out.svg").read_text())

    def test_files_that_are_no_input(self):
        bad = {
            "absent": None, "folder": None, "empty": "", "blank": "\n \n", "half.json": '{"traceEvents": [', "words": "a\nb\n",
            "binary": bytes(range(256)), "list": [], "null": "null\n", "number": "3\n", "deep": "[" * 100_000,
            "objects": [{}], "constants": '[NaN, Infinity]\n', "kinds": {"traceEvents": {"ph": "X"}},
        }  # fmt: skip
        (self.folder / "folder").mkdir()
        for name, content in bad.items():
            path = self.folder / name if content is None else self.write(name, content)
            for tool in PLOTS:
                self.refuse(tool, path, "out.svg", text=name)
                self.assertFalse((self.folder / "out.svg").exists())
        for tool in PLOTS:  # a good one, of another tool
            for other in set(PLOTS) - {tool}:
                self.refuse(tool, self.good(other), "out.svg")

    def test_fields_that_are_wrong(self):
        def refuse(read, path, text):
            with self.assertRaises(inputs.InputError) as refusal:
                read(path)
            self.assertIn(text, str(refusal.exception))

        wrong = (None, "x", [], {}, True, float("nan"), float("inf"), -1e308)
        for name in TASK:
            for value in wrong:
                trace = {"traceEvents": [NAME, {**TASK, name: value}]}
                if name == "ph" and value == "x" or name == "name" and value == "x":
                    continue  # another kind of event; a task by another name
                refuse(plot_trace.read_events, self.write("t.json", trace), "t.json: event 1")
        for name in ("step", "loss"):
            for value in wrong[:-1]:
                line = json.dumps({"step": 1, "loss": 2.0, name: value}) + "\n"
                refuse(plot_metrics.read_metrics, self.write("m.jsonl", line), f"m.jsonl:1: {name}")
        for name in RUN:
            for value in (None, [], float("nan")):
                refuse(plot_validation.read_runs, self.write("v.json", [{**RUN, name: value}]), f"run 0: {name}")

    def test_arguments(self):
        trace = self.good("plot_trace.py")
        for tool in PLOTS:
            self.refuse(tool, status=2)
            self.refuse(tool, self.good(tool), "out.svg", "--wrong", status=2)
        for arguments in (["--ranks", "x"], ["--step", "x"], ["--from", "nan"], ["--to", "x"], ["--panels", "a,b"]):
            self.refuse("plot_trace.py", trace, "out.svg", *arguments, status=2)
        for arguments in (["--ranks", "9"], ["--step", "7"], ["--step", "-1"], ["--streams", "x"], ["--from", "9e9"]):
            self.refuse("plot_trace.py", trace, "out.svg", *arguments)
        for arguments in (["--line", "x"], ["--line", "x=nan"], ["--tokens-per-byte", "0"]):
            self.refuse("plot_metrics.py", self.good("plot_metrics.py"), "out.svg", *arguments, status=2)

    def test_outputs_that_cannot_be_written(self):
        for tool in PLOTS:
            self.refuse(tool, self.good(tool), self.folder / "no/such/out.svg", text="out.svg")
            self.refuse(tool, self.good(tool), self.folder, text="directory")
            self.refuse(tool, self.good(tool), "/dev/full", text="No space left")

    def test_readers_that_have_gone(self):
        for tool, arguments in [*((tool, ["--help"]) for tool in PLOTS), ("lab", ["--help"]),
                                ("plot_trace.py", [self.good("plot_trace.py"), "/dev/stdout"])]:  # fmt: skip
            reader, writer = os.pipe()
            os.close(reader)
            process = self.run_tool(tool, *arguments, stdout=writer)
            os.close(writer)
            # argparse leaves a help that nobody reads at that.
            self.assertIn(process.returncode, (0, 1) if "--help" in arguments else (1,), process.stderr)
            self.assertEqual(len(process.stderr.splitlines()), process.returncode, process.stderr)

    def test_interrupt(self):
        # A pipe without a writer's end: the tool waits for its input.
        for tool in PLOTS:
            path = self.folder / f"{tool}.fifo"
            os.mkfifo(path)
            process = subprocess.Popen(
                [sys.executable, "-B", TOOLS / tool, path, "out.svg"], cwd=self.folder, stderr=subprocess.PIPE, text=True
            )
            with open(path, "w"):  # it has opened the other end: main() is under way
                process.send_signal(signal.SIGINT)
                _, said = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1, said)
            self.assertEqual(said, f"{tool}: interrupted\n")

    def test_lab(self):
        for arguments, status, text in (
            ([], 2, "usage"), (["2x2"], 2, "what command"), (["0x2", "true"], 2, "describes no lab"),
            (["2x2@fast", "true"], 2, "describes no lab"), (["999x1", "true"], 2, "outside"), (["--agent"], 2, "--agent"),
        ):  # fmt: skip
            process = self.run_tool("lab", *arguments)
            self.assertEqual(process.returncode, status, process.stderr)
            self.assertIn(text, process.stderr)
            self.assertNotIn("Traceback", process.stderr)


if __name__ == "__main__":
    harness.main()
