#include "expedite/train/text_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "expedite/base/error.h"
#include "tests/error_of.h"
#include "tests/test_folder.h"

namespace expedite::train {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> sources_of(const std::vector<TextFile>& files) {
  std::vector<std::string> sources;
  for (const TextFile& file : files) {
    sources.push_back(file.source);
  }
  return sources;
}

using Names = std::vector<std::string>;

TEST(TextFinder, ReadsEachFileOnceWhateverLeadsToIt) {
  const TestFolder folder;
  folder.write("data/b.txt", "bee");
  folder.write("data/sub/c.txt", "see");
  folder.write("elsewhere/deep/d.txt", "dee");
  folder.write("elsewhere/e.txt", "ee");
  const fs::path data = folder.path() / "data";
  fs::create_symlink(data / "b.txt", data / "a-link-to-b.txt");
  fs::create_hard_link(data / "b.txt", data / "z-same-file.txt");
  fs::create_symlink("../elsewhere/e.txt", data / "e.txt");
  fs::create_directory_symlink(folder.path() / "elsewhere", data / "linked");
  fs::create_directory_symlink(folder.path() / "elsewhere", data / "linked-again");
  Skipped skipped;
  TextFinder finder({});
  // A file's own name goes first; what is behind links keeps the links' names.
  EXPECT_EQ(sources_of(finder.find(data, skipped)),
            (Names{"b.txt", "e.txt", "linked/deep/d.txt", "sub/c.txt"}));
  EXPECT_EQ(skipped.count(Skip::duplicate), 4);  // two names of b.txt, linked/e.txt, linked-again
  EXPECT_EQ(skipped.total(), 4);
  // Of another path only what is new.
  EXPECT_TRUE(finder.find(folder.path() / "elsewhere", skipped).empty());
}

TEST(TextFinder, ReadsAFolderOfLinksAlone) {
  // As model hubs' caches and git-annex keep files: names are links to contents named by hashes.
  const TestFolder folder;
  folder.write("blobs/0a1b", "one");
  folder.write("blobs/2c3d", "two");
  fs::create_directories(folder.path() / "snapshots/main");
  fs::create_symlink("../../blobs/0a1b", folder.path() / "snapshots/main/a.txt");
  fs::create_symlink("../../blobs/2c3d", folder.path() / "snapshots/main/b.txt");
  Skipped skipped;
  EXPECT_EQ(sources_of(TextFinder({}).find(folder.path() / "snapshots/main", skipped)),
            (Names{"a.txt", "b.txt"}));
  // The extension is asked of the link's name.
  EXPECT_EQ(sources_of(TextFinder({"txt"}).find(folder.path(), skipped)),
            (Names{"snapshots/main/a.txt", "snapshots/main/b.txt"}));
  EXPECT_EQ(skipped.total(), 0);
}

TEST(TextFinder, CountsLoopsAndDanglingLinks) {
  const TestFolder folder;
  folder.write("data/a/x.txt", "x");
  folder.write("data/b/y.txt", "y");
  const fs::path data = folder.path() / "data";
  fs::create_directory_symlink(data, data / "a/loop");
  fs::create_directory_symlink("..", data / "b/up");
  fs::create_directory_symlink("/", data / "b/whole-disk");
  fs::create_directory_symlink("../b", data / "a/to-b");
  fs::create_directory_symlink("../a", data / "b/to-a");
  fs::create_symlink("self", data / "self");
  fs::create_symlink("nowhere", data / "gone.txt");
  ASSERT_EQ(mkfifo((data / "pipe").c_str(), 0600), 0);
  Skipped skipped;
  EXPECT_EQ(sources_of(TextFinder({}).find(data, skipped)), (Names{"a/x.txt", "b/y.txt"}));
  EXPECT_EQ(skipped.count(Skip::loop), 4);
  EXPECT_EQ(skipped.count(Skip::duplicate), 2);
  EXPECT_EQ(skipped.count(Skip::dangling), 1);
  EXPECT_EQ(skipped.count(Skip::special), 1);
  EXPECT_NE(skipped.text().find("1 link leads nowhere (" + (data / "gone.txt").string() + ")"),
            std::string::npos)
      << skipped.text();
  EXPECT_NE(skipped.text().find("4 links lead to folders around them"), std::string::npos) << skipped.text();
}

TEST(TextFile, IsNotBinaryNorUtf16) {
  const TestFolder folder;
  Skipped skipped;
  const auto read = [&](const std::string& content) {
    return read_text_file(folder.write("file", content), skipped);
  };
  EXPECT_EQ(read("text\xff\n"), "text\xff\n");
  EXPECT_FALSE(read(""));
  EXPECT_FALSE(read(std::string("a\0b", 3)));
  EXPECT_FALSE(read(std::string("\xff\xfeh\0i\0", 6)));
  EXPECT_FALSE(read(std::string("\xfe\xff\0h\0i", 6)));
  EXPECT_FALSE(read(std::string("h\0e\0l\0l\0o\0", 10)));
  EXPECT_FALSE(read(std::string("\0h\0e\0l\0l\0o", 10)));
  EXPECT_FALSE(read(std::string(64, '\0')));
  EXPECT_EQ(skipped.count(Skip::empty), 1);
  EXPECT_EQ(skipped.count(Skip::binary), 2);
  EXPECT_EQ(skipped.count(Skip::utf16), 4);
  EXPECT_NE(skipped.text().find("2 files are binary"), std::string::npos) << skipped.text();
  EXPECT_NE(skipped.text().find("4 files are UTF-16 (convert them to UTF-8"), std::string::npos);
  EXPECT_NE(skipped.text().find("1 file is empty"), std::string::npos);
}

TEST(RequireText, NamesThePathAndWhatIsThere) {
  const TestFolder folder;
  folder.write("good/a.txt", "a");
  folder.write("bad/image", std::string("\0", 1));
  fs::create_symlink("nowhere", folder.path() / "bad/gone");
  const std::string good = folder.path() / "good";
  const std::string bad = folder.path() / "bad";
  require_text(std::vector{good, good}, {});
  const std::string error = error_of([&] { require_text(std::vector{good, bad}, {}); });
  EXPECT_NE(error.find(bad + " holds no text: 1 file is binary"), std::string::npos) << error;
  EXPECT_NE(error.find("1 link leads nowhere"), std::string::npos) << error;
  EXPECT_NE(error_of([&] { require_text(std::vector{good}, {"pod"}); }).find("that ends in pod"),
            std::string::npos);
  EXPECT_NE(error_of([&] { require_text(std::vector{good + "/none"}, {}); }).find("does not exist"),
            std::string::npos);
}

}  // namespace
}  // namespace expedite::train
