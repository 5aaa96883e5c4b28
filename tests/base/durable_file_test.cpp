#include "expedite/base/durable_file.h"

#include <gtest/gtest.h>

#include "expedite/base/error.h"
#include "tests/test_folder.h"

namespace expedite {
namespace {

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ReplaceFile, LeavesTheNewTextAlone) {
  const TestFolder folder;
  const auto path = folder.path() / "cluster.yaml";
  for (const char* text : {"the first, which is longer\n", "the second\n", ""}) {
    replace_file(path, text);
    EXPECT_EQ(content_of(path), text);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(ReplaceFile, NamesTheFileThatItCannotReplace) {
  const TestFolder folder;
  std::filesystem::create_directories(folder.path() / "taken");
  for (const auto& path : {folder.path() / "taken", folder.path() / "absent" / "file"}) {
    try {
      replace_file(path, "text");
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_NE(std::string_view(error.what()).find(path.string()), std::string_view::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace expedite
