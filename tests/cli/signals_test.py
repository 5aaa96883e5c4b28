"""A run that is told to stop finishes its step, saves and says how to go on."""

import os
import signal
import time

import harness

FOR_EVER = 1_000_000


class Signals(harness.Case):
    def start_endless(self, ranks, name="tiny", **changes):
        config = self.write_config(name=name, train__steps=FOR_EVER, **changes)
        process = self.start("train", config, "--ranks", ranks)
        self.wait_for_steps(process, 3, name)
        return process

    def assert_stopped_well(self, process, ranks, name="tiny", validates=False):
        self.assertEqual(process.wait(), 0, process.output)
        done = self.metrics(name)[-1]["step"]
        self.assertIn(f"stopped after {done} of {FOR_EVER} steps", process.stdout)
        self.assertIn("--resume continues this run", process.stdout)
        self.assertIn(f"step-{done:06}", process.stdout)
        # Whoever sends a signal may not wait for a validation.
        self.assertEqual("validation_bits_per_byte" in self.metrics(name)[-1], validates)
        self.assert_nothing_left(process)
        resumed = self.train("--resume", ranks=ranks, name=name, train__steps=done + 2)
        self.assertIn(f"resuming after step {done}", resumed.output)
        self.assertEqual(self.metrics(name)[-1]["step"], done + 2)

    def test_to_the_launcher(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number.name):
                name = number.name.lower()
                process = self.start_endless(2, name)
                os.kill(process.pid, number)
                self.assert_stopped_well(process, 2, name)

    def test_to_a_single_rank(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number.name):
                name = number.name.lower()
                process = self.start_endless(1, name)
                os.kill(process.pid, number)
                self.assert_stopped_well(process, 1, name)

    def test_to_one_of_the_ranks(self):
        # As Slurm can do: every rank stops after the same step.
        process = self.start_endless(2)
        os.kill(process.rank_pids()[1], signal.SIGTERM)
        self.assert_stopped_well(process, 2)

    def test_answered_within_a_long_step(self):
        # A step of minutes: the answer does not wait for its end, nor does a second signal.
        changes = {"train__global_batch_size": 40_000, "train__micro_batch_size": 8, "train__steps": 2}
        for ranks, number in ((1, signal.SIGTERM), (2, signal.SIGINT)):
            with self.subTest(ranks=ranks):
                process = self.start("train", self.write_config(**changes), "--ranks", ranks)
                self.wait_until(process, lambda: "yardsticks" in process.stderr, "the first step")
                time.sleep(0.5)
                os.kill(process.pid, number)
                self.wait_until(process, lambda: "stopping: the step under way" in process.stderr, "an answer")
                self.assert_said_once(process, "stopping: the step under way")
                self.assertIn("(within 120 s)", process.stderr)
                self.assertIsNone(process.child.poll())
                os.kill(process.pid, number)
                self.assertNotEqual(process.wait(20), 0)
                self.assert_nothing_left(process)

    def test_a_long_step_has_a_limit(self):
        changes = {"train__global_batch_size": 40_000, "train__micro_batch_size": 8, "train__steps": 2}
        process = self.start("train", self.write_config(runtime__stop_timeout_s=1, **changes), "--ranks", 2)
        self.wait_until(process, lambda: "yardsticks" in process.stderr, "the first step")
        os.kill(process.pid, signal.SIGTERM)
        self.assertNotEqual(process.wait(20), 0)
        self.assertIn("did not end within 1 s of the signal to stop", process.stderr)
        self.assert_nothing_left(process)

    def test_twice_ends_at_once(self):
        # Whatever the second interrupts: what was saved before is whole.
        changes = {"checkpoint__save_interval": 2}
        process = self.start_endless(2, **changes)
        process.child.send_signal(signal.SIGINT)
        time.sleep(0.02)
        process.child.send_signal(signal.SIGINT)
        process.wait(20)
        self.assert_nothing_left(process)
        process = self.train("--resume", ranks=2, train__steps=self.metrics()[-1]["step"] + 2, **changes)
        self.assertIn("resuming after step", process.output)

    def test_while_starting(self):
        # Whatever the moment: it ends, and leaves nothing behind.
        for delay in (0.02, 0.2, 0.5):
            config = self.write_config(name="starting", train__steps=FOR_EVER)
            process = self.start("train", config, "--ranks", 2)
            time.sleep(delay)
            os.kill(process.pid, signal.SIGINT)
            process.wait(20)
            self.assert_nothing_left(process)

    def test_launcher_killed(self):
        process = self.start_endless(2)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        self.assert_nothing_left(process)

    def test_to_mpirun(self):
        # Best effort: mpirun tells the ranks and kills them a little later. Nothing stays, nothing breaks.
        for number in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(signal=number.name):
                name = number.name.lower()
                process = self.start_endless(2, name, checkpoint__save_interval=2)
                programs = {os.readlink(f"/proc/{pid}/exe"): pid for pid in harness.processes_of_session(process.pid)}
                (mpirun,) = [pid for program, pid in programs.items() if program != os.path.realpath(harness.PROGRAM)]
                os.kill(mpirun, number)
                self.assertNotEqual(process.wait(20), 0, process.output)
                self.assert_nothing_left(process)
                self.train("--resume", ranks=2, name=name, train__steps=self.metrics(name)[-1]["step"] + 2)

    def test_time_limit(self):
        process = self.train(ranks=2, train__steps=FOR_EVER, train__max_minutes=0.02)
        self.assert_stopped_well(process, 2, validates=True)


if __name__ == "__main__":
    harness.main()
