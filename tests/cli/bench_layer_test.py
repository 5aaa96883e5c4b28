"""The benchmark of a layer as a user runs it: what it counts is right, whatever the machine's speed."""

import json
import subprocess
from pathlib import Path

import harness

LAB = Path(harness.PROGRAM).with_name("lab")
NO_LAB = 3
SHAPE = ["--tokens", 40, "--hidden", 32, "--experts", 8, "--topk", 3, "--dtype", "f32", "--rounds", 2]
KEYS = {
    "chunks", "pipeline", "window", "dispatcher", "recompute", "recompute_level", "median_ms", "min_ms", "speedup",
    "matmul_floor_ms", "wire_floor_ms", "floor_ratio", "exposed_fraction", "exposed_bound_fraction",
    "peak_expert_activation_bytes", "metadata_exchanges", "bytes_intra_node", "bytes_inter_node",
    "expected_bytes_intra_node", "expected_bytes_inter_node", "row_bytes", "exchanges", "copies_to_other_ranks",
    "copies_to_other_nodes", "distinct_token_rank_pairs", "distinct_token_node_pairs",
}  # fmt: skip
DISPATCHERS = ["alltoall", "zero_redundancy", "hierarchical", "hierarchical_dedup"]


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
            for level in ("intra_node", "inter_node"):
                self.assertEqual(result[f"bytes_{level}"], result[f"expected_bytes_{level}"], result)
        self.assertNotIn(" NO", process.stdout)
        return process, results

    def test_every_combination_has_a_line(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                process, results = self.bench(
                    "layer", *SHAPE, "--ffn", 16, "--ranks", ranks, "--chunks", "1,4", "--pipeline",
                    "continuous,pairwise,none", "--recompute", "no,yes,full", "--dispatcher",
                    ",".join(DISPATCHERS),
                )  # fmt: skip
                self.assertEqual(len(results), 4 * 2 * 3 * 3, process.output)
                for result in results:
                    self.assertEqual(result["metadata_exchanges"], ranks - 1)
                    self.assertEqual(result["bytes_intra_node"] > 0, ranks > 1)
                    self.assertEqual(result["bytes_inter_node"], 0)
                    self.assertEqual(result["wire_floor_ms"] > 0, ranks > 1)
                by_name = {result["dispatcher"]: result["bytes_intra_node"] for result in results}
                self.assertLessEqual(by_name["zero_redundancy"], by_name["alltoall"])

    def test_dispatch_compares_the_dispatchers(self):
        process, results = self.bench("dispatch", *SHAPE, "--ranks", 2)
        self.assertEqual(
            [(result["dispatcher"], result["chunks"]) for result in results], [(d, n) for d in DISPATCHERS for n in (1, 4)]
        )
        self.assertRegex(process.stdout, r"(?m)^dispatcher auto is (alltoall|zero_redundancy|hierarchical(_dedup)?): ")

    def test_the_number_of_chunks_can_be_measured(self):
        process, results = self.bench("layer", *SHAPE, "--ranks", 2, "--chunks", "auto")
        self.assertEqual(len(results), 1)
        self.assertRegex(process.stdout, rf"(?m)^chunks auto is {results[0]['chunks']}: .* exposed")

    def check_bytes(self, *where, tokens, nodes):
        """Every dispatcher's bytes are, to the last one, those that follow from the routing: whatever the chunks,
        with one choice and many, and experts of very different popularity."""
        for command, topk, exchanges in (("layer", 1, 4), ("layer", 8, 4), ("dispatch", 8, 2)):
            with self.subTest(command=command, topk=topk):
                _, results = self.bench(
                    command, *where, "--tokens", tokens, "--hidden", 32, "--experts", 32, "--topk", topk, "--zipf",
                    1.2, "--rounds", 1, "--threads", 1, "--chunks", "1,5", "--dispatcher", ",".join(DISPATCHERS),
                    *(["--ffn", 16] if command == "layer" else []),
                )  # fmt: skip
                self.assertEqual(len(results), 2 * len(DISPATCHERS))
                self.check_rows(results, topk, exchanges, 4 * tokens * (nodes - 1))

    def check_rows(self, results, topk, exchanges, token_other_nodes):
        counted = results[0]
        copies, pairs = counted["copies_to_other_nodes"], counted["distinct_token_node_pairs"]
        several = counted["copies_to_other_ranks"] - counted["distinct_token_rank_pairs"]
        self.assertTrue(several == 0 if topk == 1 else several > 0, counted)
        if topk == 1:
            self.assertEqual(pairs, copies)
        between_nodes = {"alltoall": copies, "hierarchical": token_other_nodes, "hierarchical_dedup": pairs}
        altogether = {
            "alltoall": counted["copies_to_other_ranks"],
            "zero_redundancy": counted["distinct_token_rank_pairs"],
        }
        for result in results:
            self.assertEqual((result["row_bytes"], result["exchanges"]), (64, exchanges))
            inter, both = result["bytes_inter_node"], result["bytes_inter_node"] + result["bytes_intra_node"]
            self.assertGreater(both, 0)
            if result["dispatcher"] in between_nodes:
                self.assertEqual(inter, between_nodes[result["dispatcher"]] * 64 * exchanges)
            if result["dispatcher"] in altogether:
                self.assertEqual(both, altogether[result["dispatcher"]] * 64 * exchanges)

    def test_bytes_are_those_of_the_routing(self):
        self.check_bytes("--ranks", 4, tokens=37, nodes=1)

    def test_bytes_between_nodes_are_those_of_the_routing(self):
        trial = subprocess.run([LAB, "2x1", "true"], capture_output=True, text=True)
        if trial.returncode == NO_LAB:
            self.skipTest(f"this machine allows no lab: {trial.stderr}")
        self.check_bytes("--lab", "2x2", tokens=37, nodes=2)

    def test_traces_hold_a_run_of_each_contender(self):
        _, results = self.bench(
            "layer", *SHAPE, "--ffn", 16, "--ranks", 2, "--chunks", "1,4", "--pipeline", "continuous,none",
            "--recompute", "no,yes", "--trace", "new/traces",
        )  # fmt: skip
        self.assertEqual(
            sorted(path.name for path in (self.folder / "new/traces").iterdir()),
            sorted(
                f"alltoall-chunks{chunks}-{pipeline}{recompute}.json"
                for chunks in (1, 4)
                for pipeline in ("continuous-window2", "none")
                for recompute in ("", "-recompute-activation")
            ),
        )
        for result in results:
            name = f"alltoall-chunks{result['chunks']}-{result['pipeline']}"
            name += "-window2" if result["pipeline"] == "continuous" else ""
            name += "-recompute-activation" if result["recompute"] else ""
            events = json.loads((self.folder / f"new/traces/{name}.json").read_text())["traceEvents"]
            for rank in (0, 1):
                tasks = [e for e in events if e["ph"] == "X" and e["pid"] == rank]
                for op in ("dispatch", "combine"):  # forward and backward, of one run
                    self.assertEqual(sum(e["cat"] == op for e in tasks), 2 * result["chunks"], name)
                again = sum(e["args"]["pass"] == "recompute" for e in tasks)
                self.assertEqual(again, result["chunks"] if result["recompute"] else 0)
                begin, end = min(e["ts"] for e in tasks), max(e["ts"] + e["dur"] for e in tasks)
                self.assertLessEqual(end - begin, 1e3 * result["median_ms"])

    def test_traces_need_a_folder(self):
        (self.folder / "file").write_text("")
        for path in ("file", "file/below"):
            process = self.start("bench", "layer", *SHAPE, "--ffn", 16, "--ranks", 2, "--trace", path)
            self.assertNotEqual(process.wait(), 0)
            self.assertIn(f"{path}: cannot make a folder for traces", process.stderr)
            self.assertEqual(process.stdout, "")

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
