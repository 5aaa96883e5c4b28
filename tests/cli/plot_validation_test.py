"""Drawing a validation: every comparable run of time, rate or memory has a point, on the side of its error."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import harness

TOOL = Path(__file__).resolve().parents[2] / "tools/plot_validation.py"
SVG = "{http://www.w3.org/2000/svg}"


def run(name, metric, published, predicted, half="held out", comparable=True, software="megatron"):
    return {
        "id": name, "metric": metric, "published": published, "predicted": predicted, "half": half,
        "comparable": comparable, "software": software,
    }  # fmt: skip


class PlotValidation(harness.Case):
    def plot(self, runs):
        (self.folder / "validation.json").write_text(json.dumps(runs))
        return subprocess.run(
            [sys.executable, "-B", TOOL, "validation.json", "validation.svg"],
            cwd=self.folder, capture_output=True, text=True,
        )  # fmt: skip

    def test_faster_than_published_is_right_of_the_middle(self):
        process = self.plot(
            [
                run("slow", "iter_time_s", 10.0, 12.0),
                run("fast", "iter_time_s", 10.0, 8.0, half="fitted"),
                run("faster", "tokens_per_s_per_device", 100.0, 190.0, software="torchtitan"),
                run("beyond", "tokens_per_s_per_device", 100.0, 1e9),
                run("large", "peak_mem_GB", 60.0, 66.0),
                run("regression", "iter_time_s", 10.0, 1.0, comparable=False),
                run("flops", "model_tflops_per_device", 500.0, 400.0),
            ]
        )
        self.assertEqual(process.returncode, 0, process.stderr)
        root = ElementTree.parse(self.folder / "validation.svg").getroot()
        at = {
            circle.find(f"{SVG}title").text.split(":")[0]: float(circle.get("cx"))
            for circle in root.iter(f"{SVG}circle")
            if circle.find(f"{SVG}title") is not None
        }
        middle = next(float(text.get("x")) for text in root.iter(f"{SVG}text") if text.text == "1")
        self.assertEqual(set(at), {"slow", "fast", "faster", "beyond", "large"})
        self.assertLess(at["slow"], middle)
        self.assertLess(middle, at["large"])
        self.assertLess(at["large"], at["fast"])
        self.assertLess(at["fast"], at["faster"])
        self.assertLess(at["faster"], at["beyond"])
        self.assertLessEqual(at["beyond"], float(root.get("width")))
        texts = [text.text for text in root.iter(f"{SVG}text")]
        for text in ("megatron", "torchtitan", "memory, all sources", "90.0 % of 1", "10.0 % of 1"):
            self.assertIn(text, texts)

    def test_nothing_to_draw(self):
        process = self.plot([run("flops", "model_tflops_per_device", 500.0, 400.0)])
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("validation.json: no times, rates or memory to draw", process.stderr)


if __name__ == "__main__":
    harness.main()
