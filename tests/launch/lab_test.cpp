#include "expedite/launch/lab.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expedite/base/error.h"
#include "tests/test_folder.h"

namespace expedite::launch {
namespace {

using Words = std::vector<std::string>;

TEST(LabSpec, GivesNodesAndRanks) {
  for (const char* text : {"3x2", "3x2@none", "3x2@2.5gbit"}) {
    const LabSpec spec = parse_lab_spec(text);
    EXPECT_EQ(spec.nodes, 3) << text;
    EXPECT_EQ(spec.ranks_per_node, 2) << text;
    EXPECT_EQ(spec.ranks(), 6) << text;
  }
}

TEST(LabSpec, SaysWhatIsLegal) {
  for (const char* text : {"", "2", "x", "2x", "x2", "0x2", "2x0", "-1x2", "2x-2", "2y2", "2x2gbit", "2x2x2",
                           " 2x2", "99999x1", "1x99999999999999999999"}) {
    try {
      static_cast<void>(parse_lab_spec(text));
      ADD_FAILURE() << "'" << text << "' was taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("expected NODESxRANKS"), std::string::npos) << text;
    }
  }
}

TEST(LabArguments, PutRanksInThePlaceOfTheLab) {
  EXPECT_EQ(arguments_in_lab({"train", "--lab", "2x2@1gbit", "a b.yaml", "--resume"}, 4),
            (Words{"train", "--ranks", "4", "a b.yaml", "--resume"}));
  EXPECT_EQ(arguments_in_lab({"train", "x", "--lab=2x2", "--set", "name=--lab"}, 4),
            (Words{"train", "x", "--ranks", "4", "--set", "name=--lab"}));
  EXPECT_EQ(arguments_in_lab({"train", "--ranks", "4", "--lab", "2x2", "x"}, 4),
            (Words{"train", "--ranks", "4", "x"}));
  EXPECT_EQ(arguments_in_lab({"train", "--lab", "2x2", "--ranks=4"}, 4), (Words{"train", "--ranks", "4"}));
  EXPECT_EQ(arguments_in_lab({"train", "x"}, 4), (Words{"train", "x"}));
}

TEST(BecomeLab, RunsTheScriptWithThisProgram) {
  const TestFolder folder;
  const auto script = folder.write(
      "lab", "#!/bin/sh\nprintf '%s\\n' \"$@\" > " + (folder.path() / "words").string() + "\nexit 7\n");
  ASSERT_EQ(chmod(script.c_str(), 0700), 0);
  const pid_t child = fork();
  if (child == 0) {
    try {
      become_lab("2x1", {"train", "a b"}, script);
    } catch (const Error&) {
      _exit(99);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_EQ(read_text(folder.path() / "words"), "2x1\n" + program + "\ntrain\na b\n");
}

TEST(BecomeLab, SaysWhatIsMissing) {
  try {
    become_lab("2x1", {}, "/no/such/lab");
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/no/such/lab: No such file"), std::string::npos);
  }
}

}  // namespace
}  // namespace expedite::launch
