"""Tokenizers as users bring them: found beside the model, kept with checkpoints, refused where they do not fit, and
honest about text that they cannot say."""

import json
import shutil
import subprocess
import unittest

import harness
from harness import losses
from tiny_tokenizer import tokenizer, write_tokenizer

RUSSIAN = ["привет", "мир", "слово", "дело", "язык", "вода", "город", "книга", "ночь", "утро"]


class Tokenizers(harness.Case):
    def write_model(self, vocab_size=400, **tokenizer_arguments):
        """A folder of a model's configuration and tokenizer."""
        folder = self.folder / "model"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({**harness.MODEL, "vocab_size": vocab_size}))
        write_tokenizer(folder, **tokenizer_arguments)
        (folder / "generation_config.json").write_text("{}")
        return folder

    def write_russian(self):
        folder = self.folder / "russian"
        folder.mkdir()
        lines = [" ".join(RUSSIAN[(i * k) % len(RUSSIAN)] for k in range(1, 8)) for i in range(300)]
        (folder / "part0.txt").write_text("\n".join(lines))
        return folder

    def train_sentencepiece(self, files, *flags):
        prefix = self.folder / "words"
        subprocess.run(["spm_train", f"--input={files}", f"--model_prefix={prefix}", "--hard_vocab_limit=false", *flags],
                       check=True, capture_output=True)  # fmt: skip
        return f"{prefix}.model"

    def test_the_models_own(self):
        model = self.write_model(words=[" ba", " de", "ku"])
        run = {"model": {"path": str(model)}, "train__steps": 6, "checkpoint__save_interval": 3}
        one = self.train(ranks=1, name="one", **run)
        self.assertIn(f"tokenizer: {model}", one.stderr)
        self.assertNotIn("loses", one.stderr)
        # A checkpoint stands alone: the same files, also where the model's have gone since.
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            self.assertEqual((self.checkpoints("one")[-1] / name).read_bytes(), (model / name).read_bytes())
        # Encoded once; two ranks find it, and see the same tokens.
        cache = self.folder / "runs" / "token-cache"
        encoded = {file.name: file.read_bytes() for file in cache.iterdir()}
        self.assertEqual(len(encoded), 2)
        self.train(ranks=2, name="two", **run)
        self.assertEqual(encoded, {file.name: file.read_bytes() for file in cache.iterdir()})
        self.assert_close(losses(self.metrics("two")), losses(self.metrics("one")), 1e-5)
        # What is damaged is made again, by two ranks together to the same bytes.
        for file in cache.iterdir():
            file.write_bytes(file.read_bytes()[:-1])
        process = self.train(ranks=2, name="three", **run)
        self.assertIn("is damaged", process.stderr)
        self.assertEqual(encoded, {file.name: file.read_bytes() for file in cache.iterdir()})
        # The checkpoint's own tokenizer goes on with its weights.
        source = {"path": str(self.checkpoints("one")[-1]), "load_weights": True}
        process = self.train(ranks=1, name="on", model=source, train__steps=1)
        self.assertIn(f"tokenizer: {source['path']}", process.stderr)

    def test_refused(self):
        model = self.write_model(vocab_size=256)
        process = self.train(status=1, model={"path": str(model)})
        self.assert_said_once(process, "vocab_size is 256, but the tokenizer")
        process = self.train(status=1, model={"path": str(harness.FIXTURES / "qwen3_moe"), "load_weights": True})
        self.assert_said_once(process, "data.tokenizer=bytes")
        wordpiece = tokenizer()
        wordpiece["model"]["type"] = "WordPiece"
        (model / "tokenizer.json").write_text(json.dumps(wordpiece))
        process = self.train(status=1, model={"path": str(model)})
        self.assert_said_once(process, "WordPiece is not read")

    @unittest.skipUnless(shutil.which("spm_train"), "spm_train (Debian: sentencepiece) is not installed")
    def test_lossy(self):
        english = ",".join(str(path) for path in sorted(self.data.iterdir()))
        words = self.train_sentencepiece(english, "--vocab_size=120", "--model_type=bpe")
        run = {"data__tokenizer": words, "data__path": str(self.write_russian()), "train__steps": 2}
        # Text without a letter that the tokenizer knows.
        process = self.train(status=1, name="refused", **run)
        self.assert_said_once(process, "bytes of the text (")
        self.assert_said_once(process, "part0.txt at byte 0, where 'привет")
        self.assert_said_once(process, "data.max_lost_fraction (0.05)")
        process = self.train(name="told", data__max_lost_fraction=1.0, **run)
        self.assert_said_once(process, "no yardsticks")
        self.assertNotIn("Markov", process.stdout)
        # Some of the bits are of what is lost, none of the bytes.
        self.assertGreater(self.metrics("told")[-1]["validation_bits_per_byte"], 1.0)
        # Runs of spaces and line ends become one space.
        code = self.folder / "code"
        code.mkdir()
        (code / "code.txt").write_text("".join(path.read_text().replace(" ", "\n        ") for path in self.data.iterdir()))
        process = self.train(status=1, name="code", **{**run, "data__path": str(code)})
        self.assert_said_once(process, "where '\\n")
        # A few broken bytes are told, and no error.
        (self.data / "part0.txt").write_bytes((self.data / "part0.txt").read_bytes() + b"ba\xffde")
        process = self.train(name="few", data__tokenizer="bytes", train__steps=1)
        self.assertNotIn("loses", process.stderr)
        model = self.write_model()
        process = self.train(name="byte_level", model={"path": str(model)}, train__steps=1)
        self.assert_said_once(process, "loses 1 of")
        self.assertIn("Markov", process.stdout)

    def test_tokenize(self):
        model = self.write_model(words=["ab", " c"])
        text = self.folder / "text.txt"
        text.write_bytes(b"ab c\xff<|endoftext|>")
        process = self.start("tokenize", text, "--tokenizer", model, "--ids", "ids.jsonl", "--bench", 1)
        self.assertEqual(process.wait(), 0, process.output)
        line = json.loads((self.folder / "ids.jsonl").read_text())
        self.assertEqual(line, {"file": str(text), "ids": [256, 257, 239, 191, 189, 258]})
        self.assertIn("18 bytes, 6 tokens of 259", process.stdout)
        self.assertIn("1 bytes are lost", process.stdout)
        self.assertIn(f"first at byte 4 of {text}: '\\xFF'", process.stdout)
        self.assertIn("MB/s", process.stdout)
        process = self.start("tokenize", text, "--tokenizer", "bytes")
        self.assertEqual(process.wait(), 0, process.output)
        self.assertIn("decode(encode(text)) is the text", process.stdout)
        process = self.start("tokenize", text, "--tokenizer", self.folder / "runs")
        self.assertEqual(process.wait(), 1, process.output)
        self.assertIn("no such file", process.stderr)


if __name__ == "__main__":
    harness.main()
