// The seeds of the fuzzers, as ordinary tests: those named bad_ once broke a parser or what follows it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/parsers.h"

namespace expedite::fuzz {
namespace {

template <typename Use>
void check(const char* parser, const Use& use) {
  int read = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(EXPEDITE_FIXTURES "/../fuzz/seeds/") + parser)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    SCOPED_TRACE(entry.path().string());
    if (entry.path().filename().string().starts_with("bad_")) {
      read_or_refuse(use, text);
    } else {
      EXPECT_NO_THROW(use(text));
      ++read;
    }
  }
  EXPECT_GT(read, 0);
}

TEST(FuzzSeeds, OfTables) {
  check("csv", use_csv);
}

TEST(FuzzSeeds, OfModels) {
  check("json", use_json);
}

TEST(FuzzSeeds, OfClusters) {
  check("yaml", use_yaml);
}

}  // namespace
}  // namespace expedite::fuzz
