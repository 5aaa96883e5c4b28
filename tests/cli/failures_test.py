"""A rank that dies, stops or fails ends the whole job soon, with its number, and nothing of it stays behind."""

import os
import signal
import subprocess
import time

import harness

FOR_EVER = 1_000_000
# From the failure to the end of the job.
END_S = 10.0
# What Open MPI adds of its own.
OF_MPIRUN = r"-{70}|MPI_ABORT|mpirun|help message|orte_base|Primary job"


class Failures(harness.Case):
    def start_endless(self, ranks, **changes):
        changes = {"train__steps": FOR_EVER, "checkpoint__save_interval": 2, **changes}
        process = self.start("train", self.write_config(**changes), "--ranks", ranks)
        self.wait_for_steps(process, 5)
        return process

    def assert_ends(self, process, limit=END_S):
        begin = time.monotonic()
        status = process.wait(limit)
        self.assertNotEqual(status, 0, process.output)
        self.assert_nothing_left(process, max(0.0, limit - (time.monotonic() - begin)))
        self.assertNotRegex(process.stderr, OF_MPIRUN, process.output)

    def assert_resumes(self, ranks):
        saved = [c for c in self.checkpoints() if c.suffix != ".tmp"]
        process = self.train("--resume", ranks=ranks, train__steps=10_000, train__max_minutes=0.01)
        self.assertRegex(process.output, r"resuming after step \d+")
        self.assertNotIn("not usable", process.output)
        self.assertTrue(saved)

    def test_killed_rank(self):
        process = self.start_endless(4)
        os.kill(process.rank_pids()[2], signal.SIGKILL)
        self.assert_ends(process)
        self.assert_said_once(process, "[rank 2] died of signal 9 (Killed)")
        self.assert_resumes(4)

    def test_crashed_rank(self):
        process = self.start_endless(2)
        os.kill(process.rank_pids()[0], signal.SIGSEGV)
        self.assert_ends(process)
        self.assert_said_once(process, "[rank 0] died of signal 11 (Segmentation fault)")

    def test_stopped_rank(self):
        # Seldom saved, so that the rank is stopped inside a step; the case below stops it while saving.
        process = self.start_endless(
            4, parallel__expert_parallel_size=2, runtime__collective_timeout_s=3, checkpoint__save_interval=200
        )
        self.wait_for_steps(process, 200)
        os.kill(process.rank_pids()[1], signal.SIGSTOP)
        # The limit, the time given to the silent rank to answer, and the end.
        self.assert_ends(process, 3.0 + END_S)
        self.assertIn("rank 1 does not answer", process.stderr)
        self.assertIn("runtime.collective_timeout_s = 3 s", process.stderr)
        for rank in (0, 2, 3):
            self.assertRegex(process.stderr, rf"(?m)^\[rank {rank}\]   compute: ")
        # Somebody waits for the silent one, in something that has a layer or a name, and a group.
        self.assertRegex(process.stderr, r"in flight for \d+\.\d s")
        self.assertRegex(process.stderr, r"\(group [^)]+\)")
        self.assert_resumes(4)

    def test_stopped_rank_while_saving(self):
        # Most of the time goes into checkpoints: whether the rank stops in one or in a step, the others notice.
        process = self.start_endless(2, checkpoint__save_interval=1, runtime__collective_timeout_s=2)
        os.kill(process.rank_pids()[1], signal.SIGSTOP)
        self.assert_ends(process, 2.0 + END_S)
        self.assertIn("rank 1 does not answer", process.stderr)
        self.assertIn("runtime.collective_timeout_s = 2 s", process.stderr)

    def test_out_of_memory_on_one_rank(self):
        # All but the smallest allocations ask the system anew, so that a checkpoint finds no memory left over.
        config = self.write_config(train__steps=FOR_EVER, train__eval_interval=20, checkpoint__save_interval=2)
        malloc = {"ARENA_MAX": "1", "TOP_PAD_": "0", "TRIM_THRESHOLD_": "0", "MMAP_THRESHOLD_": "1024"}
        environment = {**harness.ENVIRONMENT, **{f"MALLOC_{name}": value for name, value in malloc.items()}}
        process = self.start("train", config, "--ranks", 2, environment=environment)
        self.wait_for_steps(process, 5)
        pid = process.rank_pids()[1]
        subprocess.run(["prlimit", "--pid", str(pid), "--as=50000000"], check=True)
        self.assert_ends(process, 3 * END_S)
        self.assertRegex(process.stderr, r"(?i)rank 1\b|\[1,1\]|,1\],1\]")

    def test_unwritable_checkpoint(self):
        # Only the rank that writes fails; the others wait for it.
        config = self.write_config(train__steps=FOR_EVER, checkpoint__save_interval=10)
        process = self.start("train", config, "--ranks", 2)
        self.wait_for_steps(process, 1)
        (self.run_folder() / "checkpoints").write_text("in the way\n")
        self.assert_ends(process, 40)
        said = [line for line in process.stderr.splitlines() if not line.startswith(("info: ", "warning: "))]
        self.assertEqual(len(said), 1, process.output)
        self.assertRegex(said[0], r"^\[rank 0\] .*checkpoints")


if __name__ == "__main__":
    harness.main()
