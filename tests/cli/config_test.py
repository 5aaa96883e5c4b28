"""A mistake in the configuration or its surroundings is told once, in words, before anything is lost."""

import json
import re

import harness


class Config(harness.Case):
    def refuse(self, *arguments, texts, ranks=1, config=None, **changes):
        """One rank and the launcher refuse in the same words, the first of them in one line."""
        config = config or self.write_config(**changes)
        for count in {1, ranks}:
            process = self.start("train", config, "--ranks", count, *arguments)
            self.assertNotIn(process.wait(), (0, 134, 139), process.output)
            self.assert_said_once(process, texts[0])
            for text in texts[1:]:
                self.assertIn(text, process.stderr)
            self.assertNotRegex(process.stderr, r"terminate called|\*\*\* Process received signal|stack trace")
            self.assertEqual(process.stdout, "", process.output)
            self.assertFalse(self.metrics())
            self.assert_nothing_left(process)

    def test_unknown_keys_name_the_nearest(self):
        self.refuse(train__stepz=3, ranks=2, texts=["train.stepz", "train.steps"])
        self.refuse(optimiser__lr=1e-3, texts=["optimiser", "optimizer"])
        self.refuse("--set", "train.global_batch=3", texts=["train.global_batch", "train.global_batch_size"])
        names = ["model.config.num_expertz", "model.config.num_experts"]
        self.refuse(model__config__num_expertz=3, ranks=2, texts=names)
        self.refuse(model__config__num_layers=3, texts=["model.config.num_layers", "model.config.num_hidden_layers"])
        yarn = {"rope_type": "yarn", "factor": 2.0, "attn_factor": 0.878}
        for spelling in ("rope_scaling", "rope_parameters"):
            self.refuse("--set", f"model.config.{spelling}={json.dumps(yarn)}",
                        texts=[f"{spelling}: unknown field attn_factor", "attention_factor"])  # fmt: skip

    def test_rope_settings_that_contradict_are_told_once(self):
        yarn = {"type": "yarn", "factor": 5.5, "original_max_position_embeddings": 128}
        process = self.train(train__steps=1, ranks=2, model__config__rope_scaling=yarn)
        self.assert_said_once(process, "factor 5.5 is taken, which contradicts max_position_embeddings 128")

    def test_wrong_types_and_values(self):
        self.refuse(train__steps="many", texts=["train.steps", "many", "an integer"])
        self.refuse(train__steps=0, texts=["train.steps", "in [1, "])
        self.refuse(optimizer__lr=-1, texts=["optimizer.lr", "in (0, 1000]"])
        self.refuse(dtype="f16", texts=["dtype", "f16", "bf16"])
        self.refuse(data=[1, 2], texts=["data"])
        self.refuse("--set", "train.steps", texts=["train.steps"])
        self.refuse(model__config__hidden_size="wide", texts=["hidden_size"])
        self.refuse(train__micro_batch_size=3, texts=["train.global_batch_size", "train.micro_batch_size = 3"])

    def test_chunks_and_dispatchers_train(self):
        for plan in ({"moe_num_chunks": "auto", "dispatcher": "hierarchical_dedup"},
                     {"moe_chunk_size": 8, "dispatcher": "zero_redundancy", "chunk_moe_recompute": "full"},
                     {"moe_num_chunks": 2, "dispatcher": "auto", "moe_chunk_pipeline": "pairwise",
                      "chunk_moe_recompute": True}):
            self.train(train__steps=1, parallel__ep_plan=plan, ranks=2)

    def test_expert_parallel_size_that_does_not_fit(self):
        for ranks, ep in ((2, 3), (2, 4), (4, 3)):
            process = self.train(ranks=ranks, status=1, parallel__expert_parallel_size=ep)
            self.assert_said_once(process, "expert_parallel_size")
            self.assertIn(str(ep), process.stderr)
            self.assert_nothing_left(process)
        process = self.train(ranks=1, status=1, parallel__expert_parallel_size=2)
        self.assert_said_once(process, "expert_parallel_size")
        # More ranks than experts: a rank without an expert, or a message.
        config = self.write_config(model__config__num_experts=3, train__steps=2)
        process = self.start("train", config, "--ranks", 4)
        if process.wait() != 0:
            self.assertEqual(len(re.findall(r"\[rank \d\] .*experts", process.stderr)), 1, process.output)

    def test_bad_yaml(self):
        config = self.folder / "bad.yaml"
        for text, line in (("train:\n  steps: [1\nname: x\n", "bad.yaml:"), ("train: {steps: 3\n", "bad.yaml:")):
            config.write_text(text)
            self.refuse(config=config, ranks=2, texts=[line])
        config.write_text("train:\n  steps: 3\n  steps: 4\n")
        self.refuse(config=config, texts=["bad.yaml:3", "train.steps"])
        config.write_text("just words\n")
        self.refuse(config=config, texts=["bad.yaml"])
        config.write_text("")
        self.refuse(config=config, texts=["model"])
        self.refuse(config=self.folder / "absent.yaml", ranks=2, texts=["absent.yaml"])

    def test_missing_data(self):
        self.refuse(data__path=str(self.folder / "nowhere"), ranks=2, texts=["nowhere"])
        (self.folder / "empty").mkdir()
        self.refuse(data__path=str(self.folder / "empty"), texts=["empty"])
        self.refuse(data__extensions=[".tex"], texts=[".tex"])
        self.refuse(data__tokenizer="no.model", ranks=2, texts=["no.model"])
        self.refuse(data__validation_fraction=1.0, texts=["data.validation_fraction"])

    def test_models_that_do_not_fit(self):
        self.refuse(model__config__vocab_size=100, ranks=2, texts=["vocab_size", "257"])
        self.refuse(model__config__num_experts_per_tok=9, ranks=2, texts=["num_experts_per_tok", "9"])
        self.refuse(model__config__num_key_value_heads=3, texts=["num_key_value_heads"])
        self.refuse(model__config__model_type="rwkv", texts=["rwkv", "mixtral"])
        self.refuse(model={"path": str(self.folder / "absent")}, ranks=2, texts=["absent"])
        self.refuse(model__load_weights=True, texts=["load_weights", "model.path"])

    def test_more_memory_than_there_is(self):
        process = self.start(
            "train",
            self.write_config(model__config__num_experts=4096, model__config__moe_intermediate_size=1_000_000),
            "--ranks",
            1,
        )
        self.assertEqual(process.wait(), 1, process.output)
        self.assertRegex(process.stderr, r"(?i)memory|bytes")

    def test_run_folder_that_cannot_be_written(self):
        (self.folder / "runs").write_text("a file\n")
        for ranks in (1, 2):
            process = self.train(ranks=ranks, status=1)
            self.assertEqual(len(re.findall(r"(?m)^(?:expedite:|\[rank \d\]) ", process.stderr)), 1, process.output)
            self.assertIn("runs", process.stderr)

    def test_command_line(self):
        for line in ("train", "fly", "", "train x.yaml --rank 2", "train x.yaml --ranks 0"):
            process = self.start(*line.split())
            self.assertNotIn(process.wait(), (0, 134, 139), process.output)
            self.assertTrue(process.stderr, line)
        process = self.start("config")
        self.assertEqual(process.wait(), 0)
        self.assertIn("`train.max_minutes`", process.stdout)
        process = self.start("--version")
        self.assertEqual(process.wait(), 0)


if __name__ == "__main__":
    harness.main()
