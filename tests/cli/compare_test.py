"""compare: Hugging Face's own numbers are met on any number of ranks; wrong weights and broken files are noticed."""

import json
import shutil
import struct

import harness
from harness import FIXTURES, floats, read_safetensors, write_safetensors


class Compare(harness.Case):
    def compare(self, model, expected=None, *arguments, status=0):
        process = self.start("compare", model, expected or FIXTURES / model.name / "expected.safetensors", *arguments)
        self.assertEqual(process.wait(), status, process.output)
        return process

    def copy(self, name="qwen3_moe"):
        return shutil.copytree(FIXTURES / name, self.folder / "copies" / name, dirs_exist_ok=True)

    def test_fixtures(self):
        models = sorted(path for path in FIXTURES.iterdir() if path.is_dir())
        self.assertGreaterEqual(len(models), 3)
        for model in models:
            tensors = len(read_safetensors(model / "expected.safetensors")) - 1
            for ranks in (1, 2, 4):
                with self.subTest(model=model.name, ranks=ranks):
                    process = self.compare(model, None, "--ranks", ranks)
                    self.assertIn(f"{tensors} of {tensors} tensors within 0.0001", process.stdout)
                    self.assertEqual(process.stdout.count("logits "), 1)

    def test_other_layout_and_bf16(self):
        model = FIXTURES / "qwen3_moe"
        self.compare(model, None, "--ranks", 2, "--expert-parallel-size", 1)
        process = self.compare(model, None, "--dtype", "bf16", "--ranks", 2, "--tolerance", 1.0)
        self.assertIn("within 1", process.stdout)
        self.compare(model, None, "--dtype", "bf16", "--tolerance", 1e-6, status=1)

    def test_perturbed_weight(self):
        model = self.copy()
        tensors = read_safetensors(model / "model.safetensors")
        name = "model.layers.1.mlp.experts.3.down_proj.weight"
        values = floats(tensors[name])
        values[5] += 0.05
        tensors[name] = (*tensors[name][:2], struct.pack(f"<{len(values)}f", *values))
        write_safetensors(model / "model.safetensors", tensors)
        for ranks in (1, 2):
            process = self.compare(model, FIXTURES / "qwen3_moe" / "expected.safetensors", "--ranks", ranks, status=1)
            self.assertRegex(process.stdout, r"(?m)^hidden_states\.1 .*BEYOND TOLERANCE")
            # What comes before the weight is right.
            self.assertNotRegex(process.stdout, r"(?m)^(hidden_states\.0|router_logits\.[01]) .*BEYOND TOLERANCE")

    def refuse(self, model, *texts, expected=None):
        for ranks in (1, 2):
            process = self.compare(model, expected, "--ranks", ranks, status=1)
            self.assert_said_once(process, texts[0])
            for text in texts:
                self.assertIn(text, process.stderr)
            self.assertNotRegex(process.stderr, r"terminate called|Process received signal")
            self.assert_nothing_left(process)

    def test_missing_files(self):
        model = self.copy()
        self.refuse(model, "absent.safetensors", expected=self.folder / "absent.safetensors")
        self.refuse(self.folder / "nowhere", "nowhere", expected=model / "expected.safetensors")
        (model / "model.safetensors").unlink()
        self.refuse(model, "safetensors")

    def test_truncated_file(self):
        model = self.copy()
        weights = model / "model.safetensors"
        content = weights.read_bytes()
        for size in (0, 5, 100, len(content) - 1):
            weights.write_bytes(content[:size])
            process = self.compare(model, status=1)
            self.assert_said_once(process, str(weights))
        weights.write_bytes(b"\xff" * 8 + content[8:])  # a header longer than the file
        self.refuse(model, str(weights))

    def test_missing_or_misshapen_tensor(self):
        model = self.copy()
        tensors = read_safetensors(model / "model.safetensors")
        name = "model.layers.0.mlp.experts.7.up_proj.weight"
        without = {key: value for key, value in tensors.items() if key != name}
        write_safetensors(model / "model.safetensors", without)
        self.refuse(model, name)
        dtype, (rows, columns), content = tensors[name]
        write_safetensors(model / "model.safetensors", {**without, name: (dtype, [columns, rows], content)})
        self.refuse(model, name)

    def test_unknown_tensor_in_expected(self):
        model = self.copy()
        expected = read_safetensors(model / "expected.safetensors")
        expected["grad.model.nonsense"] = ("F32", [1], struct.pack("<f", 1.0))
        write_safetensors(model / "expected.safetensors", expected)
        self.refuse(model, "grad.model.nonsense", expected=model / "expected.safetensors")
        del expected["input_ids"], expected["grad.model.nonsense"]
        write_safetensors(model / "expected.safetensors", expected)
        self.refuse(model, "input_ids", expected=model / "expected.safetensors")

    def test_unknown_model_type(self):
        model = self.copy()
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "model_type": "rwkv"}))
        self.refuse(model, "rwkv", "mixtral")
        (model / "config.json").write_text("{")
        self.refuse(model, "config.json")


if __name__ == "__main__":
    harness.main()
