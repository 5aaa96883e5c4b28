"""A run that was interrupted goes on as if it had not been, bit for bit in the same layout."""

import os
import shutil
import signal

import harness
from harness import bits_of, losses

FOR_EVER = 1_000_000


class Resume(harness.Case):
    def finish_and_compare(self, name, ranks, steps, **changes):
        """Resumes the run up to `steps`, and compares it with one that was never interrupted."""
        self.train("--resume", ranks=ranks, name=name, train__steps=steps, **changes)
        self.train(ranks=ranks, name="whole", train__steps=steps, **changes)
        resumed, whole = self.metrics(name), self.metrics("whole")
        self.assertEqual([line["step"] for line in resumed], list(range(1, steps + 1)))
        # The interrupted run validated its model where it stopped.
        without_validation = [[row[:-1] for row in bits_of(run)] for run in (resumed, whole)]
        self.assertEqual(*without_validation)
        self.assertEqual(resumed[-1]["validation_bits_per_byte"], whole[-1]["validation_bits_per_byte"])
        self.assert_same_files(self.checkpoints(name)[-1], self.checkpoints("whole")[-1])

    def interrupt(self, process, name):
        """SIGINT to the launcher after some steps; returns how many were done."""
        self.wait_for_steps(process, 4, name)
        os.kill(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(), 0, process.output)
        return self.metrics(name)[-1]["step"]

    def test_after_an_interrupt(self):
        for ranks, dtype in ((1, "f32"), (2, "bf16")):
            name = f"stopped{ranks}"
            changes = {"dtype": dtype, "moe__router_load_balancing_type": "bias"}
            config = self.write_config(name=name, train__steps=FOR_EVER, **changes)
            process = self.start("train", config, "--ranks", ranks)
            steps = self.interrupt(process, name)
            self.assertLess(steps, FOR_EVER)
            self.assertEqual([c.name for c in self.checkpoints(name)], [f"step-{steps:06}"])
            self.finish_and_compare(name, ranks, steps + 10, **changes)

    def test_after_a_kill(self):
        config = self.write_config(name="killed", train__steps=FOR_EVER, checkpoint__save_interval=3)
        process = self.start("train", config, "--ranks", 2)
        self.wait_for_steps(process, 8, "killed")
        for pid in harness.processes_of_session(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        done = self.metrics("killed")[-1]["step"]
        self.assertLessEqual(len([c for c in self.checkpoints("killed") if c.suffix != ".tmp"]), 2)
        self.finish_and_compare("killed", 2, done + 10, checkpoint__save_interval=3)

    def test_under_another_layout(self):
        self.train(ranks=1, name="first", train__steps=10)
        self.train(ranks=1, name="whole", train__steps=20)
        for ranks, ep in ((2, 1), (2, 2), (4, 4)):
            name = f"r{ranks}e{ep}"
            shutil.copytree(self.run_folder("first"), self.run_folder(name))
            self.train("--resume", ranks=ranks, name=name, parallel__expert_parallel_size=ep, train__steps=20)
            self.assert_close(losses(self.metrics(name)), losses(self.metrics("whole")), 1e-5, name)
        # And back to one rank: what four ranks wrote.
        self.train("--resume", ranks=1, name="r4e4", train__steps=24)
        self.assertEqual(self.metrics("r4e4")[-1]["step"], 24)

    def test_broken_checkpoint_falls_back(self):
        self.train(train__steps=10, checkpoint__save_interval=5)
        newest = self.checkpoints()[-1]
        self.assertEqual([c.name for c in self.checkpoints()], ["step-000005", "step-000010"])
        weights = newest / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        process = self.train("--resume", train__steps=12, checkpoint__save_interval=5)
        self.assertIn("checkpoint of step 10 is not usable", process.output)
        self.assertIn("model.safetensors", process.output)
        self.assertIn("resuming after step 5", process.output)
        self.train(name="whole", train__steps=12, checkpoint__save_interval=5)
        self.assertEqual(losses(self.metrics()), losses(self.metrics("whole")))
        self.assert_same_files(self.checkpoints()[-1], self.checkpoints("whole")[-1])

    def test_nothing_left_to_do(self):
        self.train(ranks=2)
        before = self.metrics()
        process = self.train("--resume", ranks=2)
        self.assertIn("nothing left to do", process.output)
        self.assertEqual(self.metrics(), before)

    def test_another_run_is_refused(self):
        self.train(train__steps=3)
        for ranks in (1, 2):
            process = self.train("--resume", ranks=ranks, status=1, train__steps=6, seed=8)
            self.assert_said_once(process, "saved with seed = 7, but the configuration says 8")
        # Nothing was lost by trying.
        self.assertEqual(len(self.metrics()), 3)
        self.train("--resume", train__steps=6)


if __name__ == "__main__":
    harness.main()
