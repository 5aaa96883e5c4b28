"""expedite plan and validate, as a user runs them."""

import json
import pathlib

import harness

RUNS = pathlib.Path(__file__).parents[2] / "data" / "measured_runs.csv"
QWEN = ("--model", "qwen3-30b-a3b", "--cluster", "h100", "--devices", 16, "--global-batch", 256)


class Plan(harness.Case):
    def run_command(self, *arguments, status=0):
        process = self.start(*arguments)
        self.assertEqual(process.wait(limit=250), status, process.output)
        return process

    def test_writes_its_best_with_every_knob(self):
        process = self.run_command("plan", *QWEN, "--top", 3, "--json", "plan.json", "--emit", "megatron")
        plan = json.loads((self.folder / "plan.json").read_text())
        self.assertEqual(len(plan["strategies"]), 3)
        self.assertGreater(plan["costed"], 1000)
        self.assertGreater(plan["pruned"], 0)
        knobs = ["tp", "sp", "cp", "pp", "vpp", "ep", "etp", "dp", "zero", "micro_batch", "chunks", "recompute",
                 "pipeline", "dispatcher"]
        results = ["step_s", "tokens_per_s_per_device", "mfu", "memory_gib", "exposed_ep_fraction", "bubble_fraction"]
        steps = []
        for strategy in plan["strategies"]:
            for key in knobs + results:
                self.assertIn(key, strategy)
            self.assertEqual(strategy["tp"] * strategy["cp"] * strategy["pp"] * strategy["dp"], 16)
            self.assertLessEqual(strategy["memory_gib"], 80e9 / 2**30)
            steps.append(strategy["step_s"])
        self.assertEqual(steps, sorted(steps))
        self.assertIn("strategies costed in time and memory", process.stdout)
        self.assertIn("rejected as impossible", process.stdout)
        self.assertIn(f"--expert-model-parallel-size {plan['strategies'][0]['ep']}\n", process.stdout)
        self.assertEqual({strategy["pipeline"] for strategy in plan["strategies"]}, {"1f1b"})

    def test_explains_a_strategy(self):
        process = self.run_command("plan", *QWEN, "--explain", "ep=8,pp=2")
        for part in ("matmul", "memory of the fullest stage", "what if one knob were another"):
            self.assertIn(part, process.stdout)

    def test_reads_models_and_clusters_from_files(self):
        config = {"model_type": "llama", "vocab_size": 32000, "hidden_size": 1024, "num_hidden_layers": 8,
                  "num_attention_heads": 16, "intermediate_size": 4096}
        (self.folder / "config.json").write_text(json.dumps(config))
        (self.folder / "cluster.yaml").write_text("""expedite_cluster: 1
name: small
nodes: 1
ranks_per_node: 4
devices:
  - kind: card
    cores: 1
    memory_bytes: 16000000000
    memory_read_bytes_per_s: 5e11
    memory_copy_bytes_per_s: 5e11
    matmul: []
    caches: []
    peaks:
      - {precision: bf16, flops_per_s: 1e14}
links:
  - name: intra_node
    latency_s: 5e-6
    message_rate_per_s: 1e6
    bandwidth_bytes_per_s: 5e10
    pair_bandwidth_bytes_per_s: 5e10
    bandwidth_by_size: []
""")
        process = self.run_command("plan", "--model", ".", "--cluster", "cluster.yaml", "--devices", 4,
                                   "--global-batch", 8, "--seq", 2048)
        self.assertIn("tokens/s", process.stdout)

    def test_says_what_is_wrong(self):
        changed = {"--model": "qwen4", "--cluster": "h101", "--precision": "int4", "--software": "x"}
        for option, value in changed.items():
            arguments = list(QWEN)
            if option in arguments:
                arguments[arguments.index(option) + 1] = value
            else:
                arguments += [option, value]
            process = self.run_command("plan", *arguments, status=1)
            self.assertIn(value, process.stderr)
        process = self.run_command("plan", *QWEN, "--explain", "ep=7", status=1)
        self.assertIn("ep 7", process.stderr)
        process = self.run_command("plan", *QWEN, "--memory-limit", 0.01, status=1)
        self.assertIn("nothing fits", process.stdout)

    def test_validates(self):
        self.run_command("validate", RUNS, "--json", "runs.json")
        runs = json.loads((self.folder / "runs.json").read_text())
        self.assertEqual(len(runs), len(RUNS.read_text().splitlines()) - 1)
        for run in runs:
            for key in ("id", "metric", "published", "predicted"):
                self.assertIn(key, run)
            self.assertGreater(run["predicted"], 0)
        (self.folder / "bad.csv").write_text("id,model\nx\n")
        process = self.run_command("validate", "bad.csv", status=1)
        self.assertIn("bad.csv:2", process.stderr)


if __name__ == "__main__":
    harness.main()
