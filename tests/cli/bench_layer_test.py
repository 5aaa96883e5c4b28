"""The benchmark of a layer as a user runs it: what it counts is right, whatever the machine's speed."""

import json

import harness

SHAPE = ["--tokens", 40, "--hidden", 32, "--experts", 8, "--topk", 3, "--dtype", "f32", "--rounds", 2]
KEYS = {
    "chunks", "pipeline", "window", "dispatcher", "recompute", "median_ms", "min_ms", "speedup", "matmul_floor_ms",
    "wire_floor_ms", "floor_ratio", "exposed_fraction", "peak_expert_activation_bytes", "metadata_exchanges",
    "bytes_intra_node", "bytes_inter_node",
}  # fmt: skip


class BenchLayer(harness.Case):
    def bench(self, *arguments):
        process = self.start("bench", *arguments, "--json", "results.json")
        self.assertEqual(process.wait(), 0, process.output)
        self.assert_nothing_left(process)
        results = json.loads((self.folder / "results.json").read_text())
        for result in results:
            self.assertEqual(set(result), KEYS)
            self.assertGreaterEqual(result["median_ms"], result["min_ms"])
            self.assertGreater(result["min_ms"], 0)
            self.assertGreater(result["matmul_floor_ms"], 0)
            self.assertEqual(result["bytes_inter_node"], 0)
        return process, results

    def test_every_combination_has_a_line(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                process, results = self.bench(
                    "layer", *SHAPE, "--ffn", 16, "--ranks", ranks, "--chunks", "1,4", "--pipeline",
                    "continuous,pairwise,none", "--recompute", "no,yes", "--dispatcher",
                    "alltoall,zero_redundancy,hierarchical,hierarchical_dedup",
                )  # fmt: skip
                self.assertEqual(len(results), 4 * 2 * 3 * 2, process.output)
                for result in results:
                    self.assertEqual(result["metadata_exchanges"], ranks - 1)
                    self.assertEqual(result["bytes_intra_node"] > 0, ranks > 1)
                    self.assertEqual(result["wire_floor_ms"] > 0, ranks > 1)
                by_name = {result["dispatcher"]: result["bytes_intra_node"] for result in results}
                self.assertLessEqual(by_name["zero_redundancy"], by_name["alltoall"])

    def test_dispatch_compares_the_dispatchers(self):
        process, results = self.bench("dispatch", *SHAPE, "--ranks", 2)
        self.assertEqual(
            [result["dispatcher"] for result in results],
            ["alltoall", "zero_redundancy", "hierarchical", "hierarchical_dedup"],
        )
        self.assertRegex(process.stdout, r"(?m)^auto is (alltoall|zero_redundancy|hierarchical(_dedup)?): ")

    def test_mistakes_are_told_before_anything_starts(self):
        for arguments, text in (
            (["--topk", 9, "--experts", 8], "--topk 9"),
            (["--experts", 64, "--hidden", 32], "--experts 64"),
            (["--pipeline", "fast"], "fast"),
            (["--dispatcher", "alltoall,nccl"], "nccl"),
            (["--chunks", "1,0"], "0"),
        ):
            process = self.start("bench", "layer", "--ranks", 2, *arguments)
            self.assertNotIn(process.wait(), (0, 134, 139), process.output)
            self.assertIn(text, process.stderr)
            self.assertEqual(process.stdout, "")


if __name__ == "__main__":
    harness.main()
