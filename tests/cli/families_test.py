"""Every family of models trains: the same losses on one rank and on two, checkpoints under another layout, exported."""

import json

import harness
from harness import FIXTURES, losses, read_safetensors

SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}


def models():
    """One of each family that has a fixture, and of two that have none; bytes are the tokens."""
    for folder in sorted(FIXTURES.iterdir()):
        if folder.name.startswith("qwen3_moe"):
            continue  # what all other tests train
        config = json.loads((folder / "config.json").read_text())
        yield folder.name, config | {"vocab_size": 300}
    for name in ("mistral", "qwen3"):
        yield name, SMALL | {"model_type": name, "intermediate_size": 64, "vocab_size": 300}


class Families(harness.Case):
    def test_train_resume_and_export(self):
        for family, model in models():
            with self.subTest(family=family):
                changes = {"model": {"config": model}, "checkpoint__save_interval": 5, "train__eval_interval": 0}
                self.train(ranks=1, name=f"{family}1", train__steps=10, **changes)
                self.train(ranks=2, name=family, train__steps=5, **changes)
                self.train("--resume", ranks=1, name=family, train__steps=10, **changes)
                ours, alone = losses(self.metrics(family)), losses(self.metrics(f"{family}1"))
                self.assertEqual(len(ours), 10)
                self.assertLess(ours[-1], 0.95 * ours[0])
                self.assert_close(ours, alone, 2e-5, family)
                self.export(family)

    def export(self, family):
        target = self.folder / "exported" / family
        process = self.start("export", self.run_folder(family), target)
        self.assertEqual(process.wait(), 0, process.output)
        saved = read_safetensors(self.checkpoints(family)[-1] / "model.safetensors")
        self.assertEqual(read_safetensors(target / "model.safetensors"), saved)
        if family in {path.name for path in FIXTURES.iterdir()}:  # named and shaped as Hugging Face's
            theirs = read_safetensors(FIXTURES / family / "model.safetensors")
            shapes = {name: shape for name, (_, shape, _) in theirs.items() if "embed_tokens" not in name}
            for name, shape in shapes.items():
                if name != "lm_head.weight":
                    self.assertEqual(saved[name][1], shape, name)
            self.assertEqual(sorted(saved), sorted(theirs))


if __name__ == "__main__":
    harness.main()
