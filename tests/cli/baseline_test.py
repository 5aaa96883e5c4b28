"""A run against its baseline without overlap: the table, the steps behind it, and what ends it early."""

import json
import os
import re
import signal
import statistics

import harness

WARM_UP = 2  # steps whose times do not count
CHUNKS = {"moe_num_chunks": 3, "dispatcher": "hierarchical_dedup"}


class Baseline(harness.Case):
    def steps(self, name="tiny"):
        """{plan: its steps} of comparison.jsonl."""
        path = self.run_folder(name) / "comparison.jsonl"
        found = {"baseline": [], "overlapped": []}
        if path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                found[entry["plan"]].append(entry)
        return found

    def row(self, process, name):
        """The two values of a row of the table."""
        found = re.search(rf"(?m)^  {re.escape(name)} {{2,}}(.+?) {{2,}}(.+)$", process.stdout)
        self.assertIsNotNone(found, f"{name}\n{process.output}")
        return found.groups()

    def check_table(self, process, steps, name="tiny"):
        """The table says what the steps say."""
        compared = self.steps(name)
        for plan, lines in compared.items():
            self.assertEqual([line["step"] for line in lines], list(range(1, steps + WARM_UP + 1)), plan)
        for row, field, factor in (
            ("step, ms", "step_ms", 1.0),
            ("exposed communication, %", "exposed_communication", 1e2),
            ("rows between nodes, MB/step", "bytes_inter_node", 1e-6),
            ("rows inside nodes, MB/step", "bytes_intra_node", 1e-6),
        ):
            for shown, lines in zip(self.row(process, row), compared.values(), strict=True):
                median = statistics.median(line[field] for line in lines[WARM_UP:])
                self.assertAlmostEqual(float(shown), median * factor, delta=0.051, msg=row)
        for shown, lines in zip(self.row(process, "tokens/s"), compared.values(), strict=True):
            seconds = statistics.median(line["step_ms"] for line in lines[WARM_UP:]) / 1e3
            tokens = lines[0]["tokens_per_s"] * lines[0]["step_ms"] / 1e3
            self.assertAlmostEqual(float(shown), tokens / seconds, delta=0.51)
        for shown, lines in zip(self.row(process, "training loss, last step"), compared.values(), strict=True):
            self.assertAlmostEqual(float(shown), lines[-1]["loss"], delta=1e-4)
        self.assertRegex(process.stdout, r"(?m)^overlapped is \d+\.\d\d times as fast")
        self.assertNotIn("BEYOND", process.stdout)
        return compared

    def test_table(self):
        process = self.train("--compare-baseline", 3, ranks=4, train__steps=8, parallel__ep_plan=CHUNKS)
        self.assertEqual(self.row(process, "dispatcher"), ("alltoall", "hierarchical_dedup"))
        self.assertEqual(self.row(process, "chunks, pipeline"), ("1, none", "3, continuous"))
        self.assertRegex(process.stdout, r"(?m)^comparison 5/5  loss")
        compared = self.check_table(process, 3)
        # A new model as configured: the beginning of the run, bit for bit.
        run = self.metrics()[:5]
        self.assertEqual(harness.losses(compared["overlapped"]), harness.losses(run))
        # One node; a row for each expert copy, or each row once in memory that all share.
        for plan, lines in compared.items():
            for line in lines:
                self.assertEqual(line["bytes_inter_node"], 0)
                self.assertGreater(line["bytes_intra_node"], 0, plan)
        # What both learn is held against the baseline trained alone.
        self.train(ranks=4, name="alone", train__steps=8, parallel__ep_plan={"moe_chunk_pipeline": "none"})
        self.assertEqual(harness.losses(compared["baseline"]), harness.losses(self.metrics("alone"))[:5])

    def test_one_dispatcher_computes_the_same_bits(self):
        plan = {"moe_num_chunks": 3, "moe_chunk_pipeline": "pairwise"}
        process = self.train("--compare-baseline", 2, ranks=2, train__steps=1, dtype="bf16", parallel__ep_plan=plan)
        self.assertIn("first step: loss the same, ", process.stdout)
        compared = self.check_table(process, 2)
        self.assertEqual(compared["baseline"][0]["loss"], compared["overlapped"][0]["loss"])
        self.assertEqual(compared["baseline"][0]["bytes_intra_node"], compared["overlapped"][0]["bytes_intra_node"])

    def test_one_rank_has_nothing_to_hide(self):
        process = self.train("--compare-baseline", 2, train__steps=1, parallel__ep_plan={"moe_num_chunks": 2})
        self.check_table(process, 2)
        self.assertEqual(self.row(process, "rows inside nodes, MB/step"), ("0.0", "0.0"))

    def test_a_run_that_is_done_can_be_compared(self):
        self.train(ranks=2, train__steps=2, parallel__ep_plan=CHUNKS)
        before = self.metrics()
        for _ in range(2):  # the second replaces the first
            process = self.train(
                "--resume", "--compare-baseline", 2, ranks=2, train__steps=2, parallel__ep_plan=CHUNKS
            )
            self.assertIn("nothing left to do", process.stderr)
            self.check_table(process, 2)
            self.assertEqual(harness.bits_of(self.metrics()), harness.bits_of(before))

    def test_validation_is_that_of_the_run(self):
        steps = 3
        process = self.train("--compare-baseline", steps - WARM_UP, ranks=2, train__steps=steps,
                             train__eval_sequences=0, parallel__ep_plan=CHUNKS)
        shown = float(self.row(process, "validation, bits/byte")[1])
        self.assertAlmostEqual(shown, self.metrics()[-1]["validation_bits_per_byte"], delta=1e-4)

    def test_bad_number_of_steps(self):
        config = self.write_config()
        for bad in ("0", "-3", "many", "1.5", ""):
            process = self.start("train", config, f"--compare-baseline={bad}")
            self.assertNotIn(process.wait(), (0, 134, 139), process.output)
            self.assertIn("--compare-baseline", process.stderr)
            self.assertFalse(self.metrics())

    def test_a_stopped_run_is_not_compared(self):
        config = self.write_config(train__steps=1_000_000)
        process = self.start("train", config, "--ranks", 2, "--compare-baseline", 2)
        self.wait_for_steps(process, 3)
        os.kill(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(), 0, process.output)
        self.assertIn("stopped after", process.stdout)
        self.assertNotIn("baseline", process.stdout)
        self.assertFalse((self.run_folder() / "comparison.jsonl").exists())

    def test_ctrl_c_ends_the_comparison(self):
        config = self.write_config(train__steps=1, parallel__ep_plan=CHUNKS)
        process = self.start("train", config, "--ranks", 2, "--compare-baseline", 1_000_000)
        self.wait_until(process, lambda: len(self.steps()["overlapped"]) >= 6, "some steps of the comparison")
        os.kill(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(), 0, process.output)
        done = len(self.steps()["overlapped"])
        self.check_table(process, done - WARM_UP)
        self.assertTrue(self.checkpoints())
        self.assert_nothing_left(process)

    def test_a_failure_ends_the_job(self):
        config = self.write_config(train__steps=1, parallel__ep_plan=CHUNKS)
        process = self.start("train", config, "--ranks", 2, "--compare-baseline", 1_000_000)
        self.wait_until(process, lambda: self.steps()["overlapped"], "the comparison")
        os.kill(process.rank_pids()[1], signal.SIGKILL)
        self.assertNotEqual(process.wait(), 0, process.output)
        self.assert_nothing_left(process)


if __name__ == "__main__":
    harness.main()
