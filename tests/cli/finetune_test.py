"""README's commands for one's own text and one's own model, as they stand there."""

import json
import os
import random
import re
import shlex
import signal
import struct
from pathlib import Path

import harness
from harness import read_safetensors
from tiny_tokenizer import write_tokenizer

SOURCE = Path(__file__).resolve().parents[2]
FOR_EVER = 1_000_000

# Qwen3's shape, tiny.
QWEN3 = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 32,
    "initializer_range": 0.02,
    "intermediate_size": 48,
    "max_position_embeddings": 40960,
    "mlp_only_layers": [],
    "moe_intermediate_size": 16,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 300,
}


def readme_commands():
    """The program's command lines in README's section, by their command, without placeholders."""
    section = (SOURCE / "README.md").read_text().split("## Your own text, your own model")[1].split("\n## ")[0]
    lines = re.findall(r"(?m)^    (build/release/expedite (?:.*\\\n)*.*)$", section)
    return [shlex.split(line.replace("\\\n", " ")) for line in lines]


def bf16(value):
    return struct.pack("<f", value)[2:]


def make_model(folder, vocabulary):
    """A Hugging Face folder with random weights and a tokenizer of 257 ids."""
    config = {**QWEN3, "vocab_size": vocabulary}
    hidden, head = config["hidden_size"], config["head_dim"]
    draw = random.Random(3)
    shapes = {"model.embed_tokens.weight": [vocabulary, hidden], "model.norm.weight": [hidden]}
    shapes["lm_head.weight"] = [vocabulary, hidden]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{at}{norm}.weight"] = [hidden]
        queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            shapes[f"{at}self_attn.{name}_proj.weight"] = [rows, hidden]
        shapes[f"{at}self_attn.o_proj.weight"] = [hidden, queries]
        for name in ("q", "k"):
            shapes[f"{at}self_attn.{name}_norm.weight"] = [head]
        shapes[f"{at}mlp.gate.weight"] = [config["num_experts"], hidden]
        for expert in range(config["num_experts"]):
            inner = config["moe_intermediate_size"]
            for name in ("gate", "up"):
                shapes[f"{at}mlp.experts.{expert}.{name}_proj.weight"] = [inner, hidden]
            shapes[f"{at}mlp.experts.{expert}.down_proj.weight"] = [hidden, inner]
    tensors = {}
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0] * count if "norm" in name else [draw.gauss(0.0, 0.02) for _ in range(count)]
        tensors[name] = ("BF16", shape, b"".join(map(bf16, values)))
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    harness.write_safetensors(folder / "model.safetensors", tensors)
    return folder


class ReadmeCase(harness.Case):
    """The folder looks like a checkout after a build."""

    def setUp(self):
        super().setUp()
        (self.folder / "build/release").mkdir(parents=True)
        (self.folder / "build/release/expedite").symlink_to(harness.PROGRAM)
        (self.folder / "configs").symlink_to(SOURCE / "configs")
        self.commands = readme_commands()

    def command(self, *words, **places):
        """README's command with these words in it, FOLDER and other places filled in."""
        (line,) = [line for line in self.commands if all(any(w in part for part in line) for w in words)]
        for place, value in places.items():
            line = [part.replace(place, str(value)) for part in line]
        return line

    def run_command(self, line, *more, status=0):
        process = self.start(*line, *more, program=())
        self.assertEqual(process.wait(), status, process.output)
        return process


class OwnText(ReadmeCase):
    def test_a_folder_of_text_files(self):
        line = self.command("configs/text.yaml", FOLDER=self.data)
        small = ["--set", "train.steps=2", "--set", "model.config.hidden_size=32", "--set", "data.seq_length=32"]
        process = self.run_command(line, *small)
        self.assertIn("3 files", process.stderr)
        self.assertIn("before the first step: validation loss", process.stderr)
        self.assertRegex(process.stdout, r"(?m)^done after 2 of 2 steps")
        saved = json.loads((self.checkpoints("mine")[-1] / "config.json").read_text())
        self.assertEqual(saved["architectures"], ["Qwen3MoeForCausalLM"])
        # On one rank too, and without a word about ranks: the experts are where the ranks are.
        one = [part for part in line if part != "--ranks"]
        one.remove("2")
        process = self.run_command([*one, "--set", "name=one"], *small)
        self.assertRegex(process.stdout, r"(?m)^done after 2 of 2 steps")


class FineTuning(ReadmeCase):
    def test_from_weights_to_an_export(self):
        model = make_model(self.folder / "model", 257)
        places = {"MODEL": model, "FOLDER": self.data}
        train = self.command("configs/finetune.yaml", **places)
        self.assertIn("--ranks", train)
        small = ["--set", "data.seq_length=64", "--set", "train.global_batch_size=4"]

        # Stopped.
        process = self.start(*train, *small, "--set", f"train.steps={FOR_EVER}", program=())
        self.wait_for_steps(process, 3, "tuned")
        os.kill(process.pid, signal.SIGTERM)
        self.assertEqual(process.wait(), 0, process.output)
        done = self.metrics("tuned")[-1]["step"]
        self.assertIn(f"{model}/model.safetensors: 69 tensors", process.stderr)
        self.assertIn(f"tokenizer: {model}, 257 ids", process.stderr)
        before = re.search(r"before the first step: validation loss (\S+), (\S+) bits/byte", process.stderr)
        self.assertIsNotNone(before, process.output)
        # Near-random weights know nothing.
        self.assertAlmostEqual(float(before[1]), 5.55, delta=0.2)

        # Resumed.
        steps = done + 30
        quick = ["--set", f"train.steps={steps}", "--set", "optimizer.lr=2e-3"]
        process = self.run_command(train, "--resume", *small, *quick)
        self.assertIn(f"resuming after step {done}", process.stderr)
        tuned = float(re.search(r"validation +(\S+) bits/byte", process.stdout)[1])
        self.assertLess(tuned, float(before[2]) - 0.1)

        # Measured alone: the same figure, on any number of ranks.
        for ranks in (1, 2):
            process = self.run_command(self.command("eval", "runs/tuned"), "--ranks", ranks)
            self.assertAlmostEqual(float(re.search(r"validation +(\S+) bits/byte", process.stdout)[1]), tuned, 2)

        # Exported, and compared: the weights of the last checkpoint, and nothing else.
        out = self.folder / "out"
        self.run_command(self.command("export", "runs/tuned", OUT=out))
        checkpoint = self.checkpoints("tuned")[-1]
        tokenizer = ["tokenizer.json", "tokenizer_config.json"]
        self.assertEqual(sorted(p.name for p in out.iterdir()), ["config.json", "model.safetensors", *tokenizer])
        for name in tokenizer:
            self.assertEqual((out / name).read_bytes(), (model / name).read_bytes())
        ours, theirs = (read_safetensors(folder / "model.safetensors") for folder in (out, checkpoint))
        self.assertEqual(ours, theirs)
        self.assertEqual(sorted(ours), sorted(read_safetensors(model / "model.safetensors")))
        self.assertNotEqual(ours, read_safetensors(model / "model.safetensors"))
        config = json.loads((out / "config.json").read_text())
        self.assertEqual(config, {**QWEN3, "vocab_size": 257})
        # It is a model like any other.
        process = self.run_command(["build/release/expedite", "eval", out, "--set", f"data.path={self.data}"]
                                   + ["--set", "data.seq_length=64", "--set", "seed=1"])
        self.assertAlmostEqual(float(re.search(r"validation +(\S+) bits/byte", process.stdout)[1]), tuned, 2)
        again = self.run_command(self.command("export", "runs/tuned", OUT=out), status=1)
        self.assert_said_once(again, "is there already, and not empty")


if __name__ == "__main__":
    harness.main()
