"""expedite plan and validate, as a user runs them."""

import csv
import json
import pathlib
import shlex

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

    def emitted(self, *arguments):
        """The flags that a plan prints, as a shell reads them."""
        process = self.run_command("plan", *arguments)
        lines = [line for line in process.stdout.splitlines() if line.startswith("--")]
        flags = {}
        for line in lines:
            flag, *value = shlex.split(line)
            flags[flag] = value[0] if value else ""
        self.assertTrue(flags, process.output)
        return flags, process

    def test_emits_a_split_for_layers_that_do_not_divide(self):
        qwen = ("--model", "qwen3-235b-a22b", "--cluster", "h100", "--devices", 256, "--global-batch", 2048, "--seq", 4096)
        for pp in (8, 16, 32):
            flags, _ = self.emitted(*qwen, "--explain", f"pp={pp},ep=8", "--emit", "megatron")
            layout = flags["--pipeline-model-parallel-layout"]
            self.assertTrue(layout.startswith("E") and layout.endswith("L"), layout)
            self.assertEqual(flags["--num-layers"], "94")
        (self.folder / "gpt30.json").write_text(json.dumps(
            {"model_type": "gpt2", "vocab_size": 50304, "n_embd": 2048, "n_head": 16, "n_layer": 30, "n_positions": 2048}))
        gpt = ("--model", "gpt30.json", "--cluster", "h100", "--devices", 16, "--global-batch", 64, "--seq", 2048,
               "--explain", "pp=4", "--emit")
        self.assertIn("--pipeline-model-parallel-layout", self.emitted(*gpt, "megatron")[0])
        layers = self.emitted(*gpt, "mindspeed")[0]["--num-layer-list"].split(",")
        self.assertEqual((len(layers), sum(map(int, layers))), (4, 30))
        alone, _ = self.emitted(*gpt[:-2], "pp=1", "--emit", "megatron")
        self.assertNotIn("--pipeline-model-parallel-layout", alone)

    def test_emits_the_checkpoint_format_that_sharding_demands(self):
        flags, process = self.emitted("--model", "qwen3-30b-a3b", "--cluster", "h800", "--devices", 16, "--global-batch", 64,
                                      "--seq", 32768, "--explain", "tp=8,zero=3,ep=8", "--emit", "megatron")
        self.assertEqual(flags["--ckpt-format"], "fsdp_dtensor")
        self.assertIn("# Megatron-LM, core 0.16", process.stdout)  # tp is above the 4 key-value heads

    def test_refuses_to_emit_what_the_program_cannot_do(self):
        for launcher, strategy, says in (("megatron", "ep=8,chunks=2", "chunks 2"), ("mindspeed", "zero=3", "zero 3"),
                                         ("mindspeed", "tp=8", "4 key-value heads"),
                                         ("megatron", "pp=2,pipeline=zb-h1", "zb-h1")):
            self.refused("plan", *QWEN, "--explain", strategy, "--emit", launcher, says=(f"--emit {launcher}", says))

    def test_names_dispatchers_that_change_nothing(self):
        process = self.run_command("plan", *QWEN, "--json", "plan.json")
        shown = [row["strategy"] for row in json.loads((self.folder / "plan.json").read_text())["strategies"]]
        self.assertEqual(len(shown), len(set(shown)))
        self.assertIn("(the same: dispatcher=", process.stdout)

    def test_reads_rope_settings(self):
        qwen = {"model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 4,
                "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144,
                "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 768, "max_position_embeddings": 40960}
        yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
        for spelling in ("rope_scaling", "rope_parameters"):
            (self.folder / "config.json").write_text(json.dumps(qwen | {spelling: yarn}))
            process = self.run_command("plan", "--model", "config.json", *QWEN[2:], "--explain", "ep=8")
            self.assertEqual(process.stderr.count("contradicts max_position_embeddings"), 1)
            for slip, meant in (("attn_factor", "attention_factor"), ("beta_fats", "beta_fast")):
                (self.folder / "config.json").write_text(json.dumps(qwen | {spelling: yarn | {slip: 0.878}}))
                self.plan_refused({"--model": "config.json", "--explain": "ep=8"}, (spelling, slip, meant))
        (self.folder / "config.json").write_text(json.dumps({k: v for k, v in qwen.items() if k != "head_dim"} |
                                                            {"head_dims": 128}))
        self.plan_refused({"--model": "config.json", "--explain": "ep=8"}, ("head_dims", "head_dim"))

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
                ("model_type", 5, "model_type"), ("hidden_size", -1, "hidden_size"),
                ("hidden_size", 0, "hidden_size"), ("hidden_size", 1e300, "hidden_size"),
                ("hidden_size", 2**62, "hidden_size"), ("hidden_size", "big", "hidden_size"),
                ("num_hidden_layers", 10**9, ("num_hidden_layers", "4096")),
                ("num_attention_heads", 7, "num_attention_heads"), ("num_key_value_heads", 5, "num_key_value_heads 5"),
                ("num_key_value_heads", 0, "num_key_value_heads")):
            config = {key: entry for key, entry in (llama | {field: value}).items() if entry is not None}
            (self.folder / "config.json").write_text(json.dumps(config))
            self.plan_refused({"--model": "config.json"}, says)
        for text in ("", "{", "[]", "null", "[[[[", '{"model_type": "llama", "model_type": "llama"}', "\0"):
            (self.folder / "config.json").write_text(text)
            self.plan_refused({"--model": "config.json"}, "config.json")

    def test_tells_of_sizes_that_are_not_given(self):
        (self.folder / "config.json").write_text(
            json.dumps({"model_type": "mixtral", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16,
                        "num_key_value_heads": 8, "intermediate_size": 4096}))
        process = self.run_command("plan", "--model", "config.json", "--cluster", "h100", "--devices", 8,
                                   "--global-batch", 64)
        self.assertIn("vocab_size, the number of experts not given", process.stderr)

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
