"""expedite plan and validate, as a user runs them."""

import csv
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

    def refused(self, *arguments, says, status=1):
        """Ends with an error in one line that holds every part of `says`: the field, and what would be legal."""
        process = self.run_command(*arguments, status=status)
        for part in says if isinstance(says, tuple) else (says,):
            self.assertIn(part, process.stderr)
        self.assertNotIn("terminate", process.stderr)

    def plan_refused(self, options, says, status=1):
        arguments = dict(zip(QWEN[::2], QWEN[1::2])) | options
        self.refused("plan", *[part for pair in arguments.items() for part in pair], says=says, status=status)

    def test_says_what_is_wrong(self):
        for option, value in {"--model": "qwen4", "--cluster": "h101", "--precision": "int4", "--software": "x",
                              "--device": "h101"}.items():
            self.plan_refused({option: value}, value)
        process = self.run_command("plan", *QWEN, "--memory-limit", 0.01, status=1)
        self.assertIn("nothing fits", process.stdout)

    def test_refuses_absurd_figures(self):
        for option, values in {"--devices": (0, -5, "1e300", 10**12, "many"), "--global-batch": (0, -1, "1e300", 10**18),
                               "--seq": (0, -1, "1e300"), "--zipf": (-1, "nan", "inf", "1e300"),
                               "--memory-limit": (-1, 0, "nan", "1e300"), "--top": (0, 10**9),
                               "--threads": (0, -1)}.items():
            for value in values:
                self.plan_refused({option: value}, option, status=2)
        for path in ("/nonexistent", "/"):
            self.plan_refused({"--load": path}, path)
            self.refused("validate", path, says=path)

    def test_refuses_impossible_strategies(self):
        for strategy, says in {"tp=3": "tp 3", "ep=7": ("ep 7", "1, 2, 4"), "pp=48": "pp 48", "vpp=3": "vpp 3",
                               "tp=0": ("tp=0", "from 1"), "tp=-1": "tp=-1", "tp=1e300": "tp=1e300",
                               "tp=99999999999999999999": "tp=9999", "mb=3": ("mb 3", "256"), "dp=5": "dp 5",
                               "zero=4": ("zero=4", "0 to 3"),
                               "chunks=4": "chunks 4", "tp=2,tp=4": "twice", "tp": "tp=8", "turbo=1": "turbo",
                               "pipeline=gpipe": ("pipeline=gpipe", "1f1b"),
                               "recompute=some": ("recompute=some", "selective"),
                               "dispatcher=magic": ("dispatcher=magic", "alltoall")}.items():
            self.plan_refused({"--explain": strategy}, says)
        self.plan_refused({"--model": "mixtral-8x22b", "--devices": 64, "--explain": "tp=64"},
                          ("tp 64", "attention heads", "divisors are"))

    def test_refuses_models_that_cannot_be(self):
        llama = {"model_type": "llama", "vocab_size": 32000, "hidden_size": 1024, "num_hidden_layers": 8,
                 "num_attention_heads": 16, "intermediate_size": 4096}
        for field, value, says in (
                ("model_type", None, ("model_type", "llama")), ("model_type", "rwkv", ("rwkv", "llama")),
                ("model_type", 5, "model_type"), ("vocab_size", None, "vocab_size"), ("hidden_size", -1, "hidden_size"),
                ("hidden_size", 0, "hidden_size"), ("hidden_size", 1e300, "hidden_size"),
                ("hidden_size", 2**62, "hidden_size"), ("hidden_size", "big", "hidden_size"),
                ("num_hidden_layers", 10**9, ("num_hidden_layers", "4096")),
                ("num_attention_heads", 7, "num_attention_heads"), ("num_key_value_heads", 5, "5 key-value heads"),
                ("intermediate_size", None, "intermediate_size"), ("model_type", "mixtral", "num_local_experts")):
            config = {key: entry for key, entry in (llama | {field: value}).items() if entry is not None}
            (self.folder / "config.json").write_text(json.dumps(config))
            self.plan_refused({"--model": "config.json"}, says)
        for text in ("", "{", "[]", "null", "[[[[", '{"model_type": "llama", "model_type": "llama"}', "\0"):
            (self.folder / "config.json").write_text(text)
            self.plan_refused({"--model": "config.json"}, "config.json")

    def test_refuses_tables_of_runs_that_cannot_be(self):
        header, *rows = RUNS.read_text().splitlines()
        row = next(row for row in csv.DictReader([header, *rows]) if row["id"] == "vtrain-18.4B-t8d4p8m8")

        def table(cells):
            with open(self.folder / "runs.csv", "w", newline="") as file:
                writer = csv.DictWriter(file, cells)
                writer.writeheader()
                writer.writerow(cells)

        for column, value in (("hidden", -1), ("hidden", 1e300), ("layers", 0), ("layers", 100000), ("n_devices", 0),
                              ("n_devices", 255), ("seq", 0), ("tp", 0), ("tp", 64), ("pp", 1000), ("vpp", 99), ("ep", 99),
                              ("dp", 3), ("global_batch", 0), ("global_batch", 1000), ("micro_batch", 0),
                              ("micro_batch", 2**30), ("heads", 0), ("heads", 7), ("kv_heads", 5), ("vocab", 0),
                              ("value", 0), ("value", -1), ("value", "nan"), ("value", 1e300), ("value", ""),
                              ("metric", "speed"), ("hardware", "X100"), ("precision", "int4"), ("recompute", "some"),
                              ("id", "")):
            table(row | {column: value})
            words = {"kv_heads": "key-value heads", "ep": "ep = 99"}
            self.refused("validate", "runs.csv", says=("runs.csv:2", words.get(column, column)))
        for column in row:
            table({name: value for name, value in row.items() if name != column})
            self.refused("validate", "runs.csv", says=f"the column {column} is missing")
        for text in ("", "\n", header + "\n", "no table\n", "\0\1", header + "\nx\n", header + '\n"'):
            (self.folder / "runs.csv").write_text(text)
            self.refused("validate", "runs.csv", says="runs.csv")

    def test_validates(self):
        self.run_command("validate", RUNS, "--json", "runs.json")
        runs = json.loads((self.folder / "runs.json").read_text())
        self.assertEqual(len(runs), len(RUNS.read_text().splitlines()) - 1)
        for run in runs:
            for key in ("id", "metric", "published", "predicted"):
                self.assertIn(key, run)
            self.assertGreater(run["predicted"], 0)


if __name__ == "__main__":
    harness.main()
