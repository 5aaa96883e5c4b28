"""A run's folder is one run's; what cannot work is refused in one line before any rank starts."""

import json
import os
import re
import shutil
import signal
import socket

import harness
from harness import bits_of

FOR_EVER = 1_000_000


class RunSafety(harness.Case):
    def assert_refused(self, process, *words):
        """One line on standard error, and nothing of MPI's."""
        self.assertEqual(process.wait(), 1, process.output)
        lines = process.stderr.splitlines()
        self.assertEqual(len(lines), 1, process.output)
        for word in words:
            self.assertIn(word, lines[0])
        self.assertEqual(process.stdout, "")

    def try_train(self, *arguments, ranks=2, **changes):
        return self.start("train", self.write_config(**changes), "--ranks", ranks, *arguments)

    # ---- The folder

    def test_two_at_once(self):
        first = self.try_train(train__steps=FOR_EVER)
        self.wait_for_steps(first, 2)
        owner = first.rank_pids()[0]
        for resume in ((), ("--resume=auto",)):
            second = self.try_train(*resume, train__steps=2)
            self.assert_refused(second, "runs/tiny is in use", f"process {owner} on {socket.gethostname()}")
        # Under mpirun of the user's too.
        second = self.start("-n", 2, harness.PROGRAM, "train", self.write_config(), program=["mpirun"])
        self.assertNotEqual(second.wait(), 0)
        self.assert_said_once(second, f"process {owner} on ")
        # The first has noticed nothing, and is the only one there.
        os.kill(first.pid, signal.SIGTERM)
        self.assertEqual(first.wait(), 0, first.output)
        self.assertEqual(sorted(p.name for p in (self.folder / "runs").iterdir()), ["tiny"])
        self.train("--resume", ranks=2, train__steps=self.metrics()[-1]["step"] + 1)

    def test_lock_of_a_dead_run(self):
        first = self.try_train(train__steps=FOR_EVER, checkpoint__save_interval=1)
        self.wait_for_steps(first, 2)
        for pid in harness.processes_of_session(first.pid):
            os.kill(pid, signal.SIGKILL)
        first.wait()
        self.assertTrue((self.folder / "runs/tiny.lock").exists())
        self.train("--resume", ranks=2, train__steps=self.metrics()[-1]["step"] + 2)
        self.assertFalse((self.folder / "runs/tiny.lock").exists())

    def test_nothing_to_resume(self):
        for ranks in (1, 2):
            process = self.try_train("--resume", ranks=ranks, name="absent")
            self.assert_refused(process, "runs/absent/checkpoints holds no checkpoint", "--resume=auto")
        self.assertFalse((self.folder / "runs").exists())
        self.train("--resume=auto", ranks=2, name="absent", train__steps=2)
        process = self.train("--resume=auto", ranks=2, name="absent", train__steps=3)
        self.assertIn("resuming after step 2", process.stderr)

    def test_nothing_sound_to_resume(self):
        self.train(train__steps=4, checkpoint__save_interval=2)
        before = self.metrics()
        for checkpoint in self.checkpoints():
            os.truncate(checkpoint / "model.safetensors", 100)
        for resume in ("--resume", "--resume=auto"):
            process = self.try_train(resume, train__steps=6)
            self.assertEqual(process.wait(), 1, process.output)
            self.assert_said_once(process, "none of the 2 checkpoints is whole")
            self.assertNotIn("MPI", process.output)
        self.assertEqual(self.metrics(), before)
        # Told to, it starts anew, and loses nothing.
        self.train(train__steps=2)
        self.assertEqual(self.metrics("tiny.previous-1"), before)

    def test_damaged_checkpoints_do_not_push_out_sound_ones(self):
        steps = {"checkpoint__save_interval": 3, "checkpoint__keep": 2}
        self.train(train__steps=9, **steps)
        os.truncate(self.checkpoints()[-1] / "model.safetensors", 100)
        process = self.train("--resume", train__steps=11, **{**steps, "checkpoint__save_interval": 0})
        self.assertIn("resuming after step 6", process.stderr)
        self.assertEqual([c.name for c in self.checkpoints()], ["step-000006", "step-000009", "step-000011"])

    def test_saved_configuration_works_anywhere(self):
        config = self.write_config(name="first", train__steps=3, data__path="data")
        first = self.start("train", config, "--ranks", 2)
        self.assertEqual(first.wait(), 0, first.output)
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        saved = self.run_folder("first") / "config.yaml"
        with harness.Process([harness.PROGRAM, "train", saved, "--set", "name=again"], elsewhere) as again:
            self.assertEqual(again.wait(), 0, again.output)
            self.assertIn("2 ranks on 1 nodes", again.stderr)
        self.assertEqual(bits_of(self.metrics("again")), bits_of(self.metrics("first")))
        more = [harness.PROGRAM, "train", saved, "--resume", "--set", "train.steps=5"]
        with harness.Process(more, elsewhere) as resumed:
            self.assertEqual(resumed.wait(), 0, resumed.output)
            self.assertIn("resuming after step 3", resumed.stderr)
        # And from where it was started, by the configuration with relative paths.
        process = self.start("train", config, "--ranks", 2, "--resume", "--set", "train.steps=6")
        self.assertEqual(process.wait(), 0, process.output)

    # ---- What cannot work

    def test_refused_before_a_rank_starts(self):
        model = shutil.copytree(harness.FIXTURES / "qwen3_moe", self.folder / "model")
        loaded = {"path": str(model), "load_weights": True}
        tokenizer = self.folder / "some.model"
        tokenizer.write_text("no tokenizer")
        (self.folder / "empty").mkdir()
        cases = [
            ({"data__seq_length": 129}, ["data.seq_length = 129", "128 positions", "data.seq_length=128"]),
            ({"data__path": str(self.folder / "nowhere")}, ["nowhere does not exist"]),
            ({"data__path": str(self.folder / "empty")}, ["empty holds no text"]),
            ({"data__tokenizer": str(tokenizer)}, ["some.model"]),
            ({"model": {"path": str(self.folder / "nowhere")}}, ["nowhere"]),
            ({"parallel__expert_parallel_size": 3}, ["3"]),
            ({"model__config": {**harness.MODEL, "vocab_size": 100}}, ["vocab_size is 100"]),
            ({"model__config": {**harness.MODEL, "hidden_size": 1 << 17, "num_hidden_layers": 64}},
             ["not enough memory", "2 ranks", "GB are available"]),
            ({"train__micro_batch_size": 1 << 24, "train__global_batch_size": 1 << 25}, ["not enough memory"]),
        ]
        for changes, words in cases:
            with self.subTest(words=words):
                self.assert_refused(self.try_train(**changes), *words)
        # Weights that do not fit their config.json.
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "moe_intermediate_size": 8}))
        self.assert_refused(self.try_train(model=loaded, data__tokenizer="bytes"), "has shape")
        (model / "model.safetensors").unlink()
        (model / "config.json").write_text(json.dumps(config))
        self.assert_refused(self.try_train(model=loaded, data__tokenizer="bytes"), str(model))
        self.assertFalse((self.folder / "runs").exists())

    def test_memory_is_as_forecast(self):
        process = self.train(ranks=2, train__steps=3, model__config={**harness.MODEL, "hidden_size": 256},
                             data__seq_length=128)
        forecast = float(re.search(r"memory: about (\S+) GB of 2 ranks", process.stderr)[1])
        measured = 2 * self.metrics()[-1]["peak_bytes"] / 1e9
        self.assertLess(abs(forecast - measured), 0.25 * measured, process.stderr)

    def test_links_are_told(self):
        linked = self.folder / "linked"
        linked.mkdir()
        for file in self.data.iterdir():
            (linked / file.name).symlink_to(file)
        (linked / "gone.txt").symlink_to("nowhere")
        (linked / "round").symlink_to(linked)
        (linked / "image").write_bytes(b"a\0b")
        (linked / "wide.txt").write_text("wide text", encoding="utf-16")
        process = self.train(ranks=2, train__steps=1, data__path=str(linked))
        self.assertIn("text: 3 files", process.stderr)
        self.assert_said_once(process, "text left out: 1 file is binary")
        for words in ("1 file is UTF-16", "1 link leads nowhere", "1 link leads to a folder around it"):
            self.assertIn(words, process.stderr)
        # The same text as without links.
        self.train(ranks=2, name="plain", train__steps=1)
        self.assertEqual(bits_of(self.metrics()), bits_of(self.metrics("plain")))


if __name__ == "__main__":
    harness.main()
