"""The commit that `expedite --version` shows: what cmake/WriteCommit.cmake finds before every build."""

import re
import shutil
import subprocess
import unittest
from pathlib import Path

import harness

SCRIPT = Path(__file__).resolve().parents[2] / "cmake/WriteCommit.cmake"


@unittest.skipUnless(shutil.which("git") and shutil.which("cmake"), "git or cmake is not in PATH")
class Commit(harness.Case):
    def setUp(self):
        super().setUp()
        self.tree = self.folder / "tree"
        (self.tree / "cmake").mkdir(parents=True)
        for name in ("WriteCommit.cmake", "commit.txt"):
            shutil.copy(SCRIPT.parent / name, self.tree / "cmake")
        (self.tree / ".gitattributes").write_text("cmake/commit.txt export-subst\n")

    def git(self, *arguments, folder=None):
        settings = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main")
        done = subprocess.run(["git", *settings, *arguments], cwd=folder or self.tree, capture_output=True, check=True)
        return done.stdout

    def commit(self, message):
        self.git("add", "-A")
        self.git("commit", "-qm", message, "--allow-empty")
        return self.git("rev-parse", "HEAD").decode()[:12]

    def written(self, tree=None):
        tree, output = tree or self.tree, self.folder / "commit.cpp"
        command = ["cmake", f"-DSOURCE_DIR={tree}", f"-DOUTPUT={output}", "-P", tree / "cmake/WriteCommit.cmake"]
        subprocess.run(command, check=True, capture_output=True)
        return re.search(r'"([^"]*)";', output.read_text())[1]

    def test_repository(self):
        self.git("init", "-q")
        first = self.commit("one")
        self.git("tag", "v1")
        self.assertEqual(self.written(), first)
        before = (self.folder / "commit.cpp").stat().st_mtime_ns
        self.assertEqual(self.written(), first)
        self.assertEqual((self.folder / "commit.cpp").stat().st_mtime_ns, before)  # nothing to compile again
        (self.tree / "untracked").write_text("x")
        self.assertEqual(self.written(), first)
        (self.tree / "cmake/commit.txt").write_text("changed")
        self.assertEqual(self.written(), f"{first}-dirty")
        second = self.commit("two")
        self.assertNotEqual(second, first)
        self.assertEqual(self.written(), second)

    def test_archive_inside_another_repository(self):
        self.git("init", "-q")
        commit = self.commit("one")
        (self.folder / "source.tar").write_bytes(self.git("archive", "HEAD"))
        other = self.folder / "other"
        (other / "source").mkdir(parents=True)
        self.git("init", "-q", folder=other)
        subprocess.run(["tar", "-xf", self.folder / "source.tar", "-C", other / "source"], check=True)
        self.assertEqual(self.written(other / "source"), commit)

    def test_neither(self):
        self.assertEqual(self.written(), "unknown")


if __name__ == "__main__":
    harness.main()
