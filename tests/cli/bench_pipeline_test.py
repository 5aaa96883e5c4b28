"""The benchmark of pipelines as a user runs it: simulated, so that its results are the same everywhere."""

import json

import harness

KINDS = ["1f1b", "interleaved_1f1b", "zero_bubble_h1", "dualpipe", "adaptive_pipe"]
SMALL = ["--stages", 4, "--micro-batches", 8, "--layers", 15]


class BenchPipeline(harness.Case):
    def bench(self, *arguments):
        process = self.start("bench", "pipeline", *arguments, "--json", "results.json")
        self.assertEqual(process.wait(), 0, process.output)
        return process, json.loads((self.folder / "results.json").read_text())

    def test_every_kind_has_a_line_and_a_trace(self):
        for options in ([], ["--coarse"], ["--contention"]):
            with self.subTest(options=options):
                process, results = self.bench(*SMALL, *options, "--trace", "traces")
                self.assertEqual([result["schedule"] for result in results], KINDS)
                for kind in KINDS:
                    self.assertIn(kind, process.stdout)
                    events = json.loads((self.folder / "traces" / f"{kind}.json").read_text())["traceEvents"]
                    self.assertEqual({event["pid"] for event in events}, {0, 1, 2, 3})

    def test_bubbles_equal_their_formulas(self):
        _, results = self.bench("--coarse", *SMALL)
        for result in results:
            self.assertAlmostEqual(result["bubble_ms"], result["formula_ms"], places=6, msg=result["schedule"])

    def test_what_cannot_run_says_what_could(self):
        process, results = self.bench("--coarse", "--stages", 4, "--micro-batches", 6)
        self.assertEqual([result["schedule"] for result in results], ["1f1b", "zero_bubble_h1"])
        self.assertIn("take 4 or 8", process.stdout)
        self.assertIn("at least 8", process.stdout)
        process = self.start("bench", "pipeline", "--schedules", "dualpipe", "--stages", 3)
        self.assertEqual(process.wait(), 1)


if __name__ == "__main__":
    harness.main()
