"""What a run leaves and shows: metrics, trace, and progress in a pipe and on a terminal."""

import fcntl
import json
import os
import pty
import re
import struct
import termios
import threading

import harness


class Output(harness.Case):
    def test_trace(self):
        ranks, first, steps = 4, 3, 2
        self.train(
            ranks=ranks,
            train__steps=8,
            train__micro_batch_size=1,
            parallel__expert_parallel_size=2,
            trace={"first_step": first, "steps": steps},
        )
        trace = json.loads((self.run_folder() / "trace.json").read_text())
        events = trace["traceEvents"]
        named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        self.assertEqual(named, {rank: f"rank {rank}" for rank in range(ranks)})
        rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
        tasks = [e for e in events if e["ph"] == "X"]
        self.assertTrue(all(e["ph"] in "MX" for e in events))
        for rank in range(ranks):
            streams = {name for (pid, _), name in rows.items() if pid == rank}
            self.assertGreaterEqual(streams, {"compute", "intra", "reduce"})
            mine = [e for e in tasks if e["pid"] == rank]
            for layer in range(2):
                for micro_batch in range(2):
                    for operation in ("dispatch", "combine"):
                        for phase in ("forward", "input_grad"):
                            name = f"L{layer} mb{micro_batch} {operation} {phase}"
                            self.assertEqual(sum(e["name"] == name for e in mine), steps, f"rank {rank}: {name}")
            self.assertTrue(all(e["args"]["bytes"] >= 0 for e in mine if e["cat"] in ("dispatch", "combine")))
            self.assertGreater(sum(e["args"]["bytes"] for e in mine if e["cat"] == "dispatch"), 0)
        for event in tasks:
            self.assertIn((event["pid"], event["tid"]), rows)
            self.assertGreaterEqual(event["ts"], 0)
            self.assertGreaterEqual(event["dur"], 0)
        self.check_rows_do_not_overlap(tasks)

    def check_rows_do_not_overlap(self, tasks):
        rows = {}
        for event in tasks:
            rows.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
        for row, spans in rows.items():
            spans.sort()
            for (_, end), (begin, _) in zip(spans, spans[1:]):
                self.assertLessEqual(end, begin + 1e-3, row)

    def test_metrics(self):
        for ranks in (1, 2):
            self.train(ranks=ranks, name=f"r{ranks}", train__steps=7, train__eval_interval=3)
            lines = self.metrics(f"r{ranks}")
            self.assertEqual([line["step"] for line in lines], list(range(1, 8)))
            for line in lines:
                for field in ("loss", "aux_loss", "z_loss", "gradient_norm", "tokens_per_s", "step_ms", "lr"):
                    self.assertGreater(line[field], 0.0, field)
                self.assertEqual(line["tokens"], 8 * 32)
                self.assertGreater(line["peak_bytes"], 0)
                self.assertGreaterEqual(line["load_imbalance"], 1.0)
                self.assertGreaterEqual(line["exposed_communication"], 0.0)
                self.assertEqual("validation_bits_per_byte" in line, line["step"] in (3, 6, 7))
            # Linear warm-up over five steps, then constant.
            rates = [line["lr"] for line in lines]
            self.assert_close(rates, [2e-3 * min(step, 5) / 5 for step in range(1, 8)], 1e-5)

    def test_log_interval(self):
        # Progress is for the eye; the metrics are whole.
        process = self.train(train__steps=10, train__log_interval=20)
        self.assertEqual([line["step"] for line in self.metrics()], list(range(1, 11)))
        self.assertEqual(re.findall(r"(?m)^step (\S+)", process.stdout), ["1/10", "10/10"])

    def test_configuration_is_kept(self):
        self.train("--set", "train.steps=2", "--set", "name=other")
        again = self.start("train", self.run_folder("other") / "config.yaml", "--set", "name=again")
        self.assertEqual(again.wait(), 0, again.output)
        self.assertEqual(harness.bits_of(self.metrics("again")), harness.bits_of(self.metrics("other")))

    def test_pipe_gets_plain_lines(self):
        for ranks in (1, 2):
            process = self.train(ranks=ranks, train__steps=6)
            for text in (process.stdout, process.stderr):
                self.assertNotIn("\x1b", text)
                self.assertNotIn("\r", text)
            self.assertRegex(process.stdout, r"(?m)^step 1/6  loss \d+\.\d+ .* tokens/s")
            self.assertRegex(process.stdout, r"(?m)^step 6/6  loss \d")
            self.assertRegex(process.stdout, r"(?m)^done after 6 of 6 steps")
            self.assertEqual("exposed" in process.stdout, ranks > 1)
            self.assertEqual(process.stdout.count("done after"), 1)
            for name in ("metrics.jsonl", "step-000006"):
                self.assertIn(name, process.stdout)

    def on_terminal(self, ranks, columns):
        """What the program writes to a terminal of so many columns."""
        config = self.write_config(train__steps=60)
        controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        shown = bytearray()

        def read():
            try:
                while part := os.read(controller, 65536):
                    shown.extend(part)
            except OSError:
                pass  # how Linux says that nobody has the terminal open any more

        reader = threading.Thread(target=read)
        reader.start()
        process = self.start("train", config, "--ranks", ranks, stdout=terminal)
        os.close(terminal)
        self.assertEqual(process.wait(), 0, process.output)
        reader.join(10)
        os.close(controller)
        return shown.decode()

    def test_terminal_is_redrawn(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                shown = self.on_terminal(ranks, 60)
                redraws = shown.split("\r\x1b[K")
                self.assertGreater(len(redraws), 2, shown)
                self.assertIn("step 60/60", redraws[-1])
                for redraw in redraws[1:]:
                    self.assertLess(len(redraw.splitlines()[0]), 60)
                self.assertRegex(shown, re.compile(r"^done after 60", re.MULTILINE))


if __name__ == "__main__":
    harness.main()
