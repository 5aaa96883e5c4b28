#include "expedite/train/token_cache.h"

#include <gtest/gtest.h>

#include "tests/test_folder.h"

namespace expedite::train {
namespace {

TEST(TokenCache, GivesWhatWasPutWhole) {
  const TestFolder folder;
  const TokenCache cache(folder.path() / "made" / "here");
  EXPECT_FALSE(cache.find("a").has_value());
  const std::string content("tokens\0and more", 15);
  cache.put("a", content);
  EXPECT_EQ(cache.find("a"), content);
  EXPECT_FALSE(cache.find("b").has_value());
  cache.put("a", "other");
  EXPECT_EQ(cache.find("a"), "other");
}

TEST(TokenCache, DoesNotTakeWhatIsDamagedOrAnothers) {
  const TestFolder folder;
  const TokenCache cache(folder.path());
  cache.put("a", std::string(1000, 'x'));
  const std::string whole = read_text(cache.file_of("a"));
  for (std::size_t size : {std::size_t{0}, std::size_t{5}, whole.size() / 2, whole.size() - 1}) {
    folder.write("a.tokens", whole.substr(0, size));
    EXPECT_FALSE(cache.find("a").has_value()) << size;
  }
  for (std::size_t at = 0; at < whole.size(); at += 7) {
    std::string changed = whole;
    changed[at] ^= 1;
    folder.write("a.tokens", changed);
    EXPECT_FALSE(cache.find("a").has_value()) << at;
  }
  folder.write("b.tokens", whole);  // a file of another name
  EXPECT_FALSE(cache.find("b").has_value());
  cache.put("a", "again");
  EXPECT_EQ(cache.find("a"), "again");
}

TEST(TokenCache, LeavesNothingBesideAndTakesNoHarmFromADiskThatRefuses) {
  const TestFolder folder;
  const TokenCache cache(folder.path() / "cache");
  cache.put("a", "content");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path() / "cache"), {}), 1);
  folder.write("file", "");
  const TokenCache impossible(folder.path() / "file");
  impossible.put("a", "content");
  EXPECT_FALSE(impossible.find("a").has_value());
}

}  // namespace
}  // namespace expedite::train
