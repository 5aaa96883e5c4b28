"""Where ranks, tokens and weights come from: mpirun of the user's, a SentencePiece model, a Hugging Face folder."""

import json
import shutil
import struct
import subprocess
import unittest

import harness
from harness import bits_of, floats, losses, read_safetensors


class Sources(harness.Case):
    def test_under_mpirun(self):
        config = self.write_config(name="joined")
        process = self.start("-n", 2, harness.PROGRAM, "train", config, program=["mpirun"])
        self.assertEqual(process.wait(), 0, process.output)
        self.train(ranks=2, name="launched")
        self.assertEqual(bits_of(self.metrics("joined")), bits_of(self.metrics("launched")))
        self.assertEqual(process.stdout.count("done after"), 1)
        # More ranks inside ranks are a mistake.
        process = self.start("-n", 2, harness.PROGRAM, "train", config, "--ranks", 3, program=["mpirun"])
        self.assertNotEqual(process.wait(), 0)
        self.assert_said_once(process, "--ranks 3 inside a job of 2 ranks")

    def test_alone(self):
        config = self.write_config(name="alone")
        process = self.start("train", config)
        self.assertEqual(process.wait(), 0, process.output)
        self.train(ranks=1, name="one")
        self.assertEqual(bits_of(self.metrics("alone")), bits_of(self.metrics("one")))

    def test_without_mpirun(self):
        environment = {**harness.ENVIRONMENT, "PATH": "/nowhere"}
        process = self.start("train", self.write_config(), "--ranks", 2, environment=environment)
        self.assertEqual(process.wait(), 1)
        self.assert_said_once(process, "mpirun is not installed")

    @unittest.skipUnless(shutil.which("spm_train"), "spm_train (Debian: sentencepiece) is not installed")
    def test_sentencepiece(self):
        prefix = self.folder / "words"
        files = ",".join(str(path) for path in sorted(self.data.iterdir()))
        subprocess.run(
            ["spm_train", f"--input={files}", f"--model_prefix={prefix}", "--vocab_size=300"]
            + ["--hard_vocab_limit=false"],
            check=True,
            capture_output=True,
        )
        pieces = len((self.folder / "words.vocab").read_text().splitlines())
        changes = {"data__tokenizer": f"{prefix}.model", "train__steps": 30}
        self.train(ranks=1, name="one", **changes)
        self.train(ranks=2, name="two", **changes)
        self.assert_close(losses(self.metrics("two")), losses(self.metrics("one")), 1e-5)
        last = self.metrics("one")[-1]
        # Pieces are longer than a byte: fewer bits per byte than bits per token.
        self.assertLess(last["validation_bits_per_byte"], 0.8 * last["loss"] / 0.6931)
        weights = read_safetensors(self.checkpoints("one")[-1] / "model.safetensors")
        self.assertEqual(weights["model.embed_tokens.weight"][1], [pieces, 32])

    def test_hugging_face_folder(self):
        model = harness.FIXTURES / "qwen3_moe"
        changes = {"model": {"path": str(model), "load_weights": True}, "data__tokenizer": "bytes",
                   "train__steps": 1, "optimizer__lr": 1e-12,
                   "optimizer__min_lr": 0.0, "optimizer__weight_decay": 0.0}
        for ranks in (1, 2):
            # One step that hardly moves anything: the checkpoint holds what was loaded.
            self.train(ranks=ranks, name=f"r{ranks}", **changes)
            saved = read_safetensors(self.checkpoints(f"r{ranks}")[-1] / "model.safetensors")
            given = read_safetensors(model / "model.safetensors")
            self.assertEqual(sorted(saved), sorted(given))
            for name, tensor in given.items():
                self.assertEqual(saved[name][1], tensor[1], name)
                worst = max(abs(a - b) for a, b in zip(floats(saved[name]), floats(tensor), strict=True))
                self.assertLessEqual(worst, 1e-6, name)
        # The checkpoint is a Hugging Face folder itself: compare reads it, and meets the numbers of the original.
        process = self.start("compare", self.checkpoints("r2")[-1], model / "expected.safetensors", "--ranks", 2)
        self.assertEqual(process.wait(), 0, process.output)
        # And a run can start from it.
        again = {**changes, "model": {"path": str(self.checkpoints("r2")[-1]), "load_weights": True}}
        self.train(ranks=1, name="again", **again)
        self.assert_close(losses(self.metrics("again")), losses(self.metrics("r1")), 1e-5)

    def test_architecture_alone(self):
        # Random weights in the shape that a config.json gives.
        config = json.loads((harness.FIXTURES / "mixtral" / "config.json").read_text())
        self.train(ranks=2, model={"path": str(harness.FIXTURES / "mixtral" / "config.json")}, train__steps=2)
        saved = json.loads((self.checkpoints()[-1] / "config.json").read_text())
        for field in ("model_type", "hidden_size", "num_local_experts", "vocab_size"):
            self.assertEqual(saved[field], config[field])
        self.assertEqual(saved["torch_dtype"], "float32")

    def test_selection_bias_is_saved_and_loaded(self):
        changes = {"moe__router_load_balancing_type": "bias", "moe__router_bias_update_rate": 0.01}
        self.train(ranks=2, name="first", train__steps=5, **changes)
        weights = read_safetensors(self.checkpoints("first")[-1] / "model.safetensors")
        biases = {name: floats(tensor) for name, tensor in weights.items() if "bias" in name}
        self.assertEqual(len(biases), 2, sorted(weights))  # one per layer
        for name, values in biases.items():
            self.assertEqual(len(values), 8, name)
            self.assertGreater(max(values), 0.0)
            self.assertLessEqual(max(map(abs, values)), 0.05 + 1e-6)
        # Loaded as any other tensor: a model started from it makes the loss that the first would make.
        source = {"path": str(self.checkpoints("first")[-1]), "load_weights": True}
        self.train(ranks=1, name="copy", model=source, train__steps=1, **changes)
        tensors = read_safetensors(self.checkpoints("first")[-1] / "model.safetensors")
        for name in biases:
            dtype, shape, content = tensors[name]
            tensors[name] = (dtype, shape, struct.pack(f"<{len(content) // 4}f", *[v * 200 for v in biases[name]]))
        other = shutil.copytree(source["path"], self.folder / "other")
        harness.write_safetensors(other / "model.safetensors", tensors)
        self.train(ranks=1, name="other", model={"path": str(other), "load_weights": True}, train__steps=1, **changes)
        self.assertNotEqual(losses(self.metrics("copy")), losses(self.metrics("other")))

    def test_validation(self):
        # Whole validation text, by any number of ranks; a fixed sample while training.
        for ranks in (1, 2):
            self.train(ranks=ranks, name=f"r{ranks}", train__steps=4, train__eval_interval=2, train__eval_sequences=0)
        ours, theirs = ([line.get("validation_bits_per_byte") for line in self.metrics(f"r{r}")] for r in (2, 1))
        self.assertEqual([value is None for value in ours], [True, False, True, False])
        self.assert_close(ours[1::2], theirs[1::2], 1e-5)
        # Without a validation text there is none, and no yardstick.
        process = self.train(name="none", data__validation_fraction=0.0, train__steps=2)
        self.assertNotIn("validation_bits_per_byte", self.metrics("none")[-1])
        self.assertNotIn("bits/byte", process.stdout)


if __name__ == "__main__":
    harness.main()
