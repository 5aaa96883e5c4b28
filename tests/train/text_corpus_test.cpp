#include "expedite/train/text_corpus.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include "expedite/base/error.h"
#include "expedite/base/random.h"
#include "tests/test_folder.h"

namespace expedite::train {
namespace {

/// Lines of random length of words that differ by `seed`.
std::string random_text(std::int64_t bytes, std::uint64_t seed) {
  const Philox random(seed, 0);
  std::string text;
  for (std::uint64_t i = 0; static_cast<std::int64_t>(text.size()) < bytes; ++i) {
    text += static_cast<char>('a' + random.bits(i) % 26);
    if (random.bits(i) % 37 == 0) {
      text += '\n';
    }
  }
  text.resize(static_cast<std::size_t>(bytes));
  return text;
}

std::string error_of(const CorpusOptions& options) {
  try {
    static_cast<void>(read_corpus(options));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

using Key = std::pair<std::string, std::int64_t>;

std::set<Key> keys_of(const std::vector<Document>& documents) {
  std::set<Key> keys;
  for (const Document& document : documents) {
    keys.emplace(document.source, document.piece);
  }
  return keys;
}

/// The text of each file, put together again from both sides.
std::map<std::string, std::string> join(const Corpus& corpus) {
  std::map<Key, std::string> pieces;
  for (const auto* side : {&corpus.train, &corpus.validation}) {
    for (const Document& document : *side) {
      EXPECT_TRUE(pieces.emplace(Key{document.source, document.piece}, document.text).second);
    }
  }
  std::map<std::string, std::string> files;
  for (const auto& [key, text] : pieces) {
    files[key.first] += text;
  }
  return files;
}

TEST(Corpus, ReadsFoldersRecursivelyInSortedOrder) {
  const TestFolder folder;
  folder.write("b.txt", "bee");
  folder.write("a/z.txt", "zed");
  folder.write("a.txt", "ay");
  folder.write("empty.txt", "");
  folder.write("image.png", std::string("x\0y", 3));
  std::filesystem::create_symlink(folder.path() / "b.txt", folder.path() / "link.txt");
  std::filesystem::create_directory_symlink(folder.path(), folder.path() / "loop");
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  const auto corpus = read_corpus({.paths = {folder.path()}, .validation_fraction = 0.0});
  ASSERT_EQ(corpus.train.size(), 3U);
  EXPECT_EQ(corpus.train[0].source, "a.txt");
  EXPECT_EQ(corpus.train[1].source, "a/z.txt");
  EXPECT_EQ(corpus.train[2].source, "b.txt");
  EXPECT_EQ(corpus.train[1].text, "zed");
  EXPECT_EQ(corpus.train_bytes, 8);
  EXPECT_EQ(corpus.files, 3);
  EXPECT_EQ(corpus.skipped.count(Skip::binary), 1);
  EXPECT_EQ(corpus.skipped.count(Skip::loop), 1);
  EXPECT_EQ(corpus.skipped.count(Skip::duplicate), 1);
  EXPECT_TRUE(corpus.validation.empty());
}

TEST(Corpus, TakesAFileOnceAndNamedFilesWhateverTheirExtension) {
  const TestFolder folder;
  folder.write("a.pod", "one");
  folder.write("sub/b.txt", "two");
  folder.write("sub/pod", "not an extension");
  const auto name = folder.path().string();
  for (const char* extension : {"pod", ".pod"}) {
    const auto corpus = read_corpus({.paths = {name + "/sub/b.txt", name, name + "/a.pod"},
                                     .extensions = {extension},
                                     .validation_fraction = 0.0});
    ASSERT_EQ(corpus.train.size(), 2U);
    EXPECT_EQ(corpus.train[0].source, "b.txt");
    EXPECT_EQ(corpus.train[1].source, "a.pod");
  }
}

TEST(Corpus, CutsFilesWithoutLosingAByte) {
  const TestFolder folder;
  const std::string lines = random_text(300'000, 1);
  std::string accents;  // one line of two-byte characters, off by one against any even cut
  for (int i = 0; i < 5000; ++i) {
    accents += "é";
  }
  accents = "x" + accents;
  std::string bytes(5000, '\x80');  // never a character boundary
  folder.write("lines.txt", lines);
  folder.write("accents.txt", accents);
  folder.write("bytes.txt", bytes);
  const auto corpus = read_corpus({.paths = {folder.path()}, .validation_fraction = 0.2, .seed = 3});
  const auto files = join(corpus);
  EXPECT_EQ(files.at("lines.txt"), lines);
  EXPECT_EQ(files.at("accents.txt"), accents);
  EXPECT_EQ(files.at("bytes.txt"), bytes);
  const std::int64_t total = 300'000 + 10'001 + 5000;
  const std::int64_t longest = total / 200;
  EXPECT_EQ(corpus.train_bytes + corpus.validation_bytes, total);
  for (const auto* side : {&corpus.train, &corpus.validation}) {
    for (const Document& document : *side) {
      EXPECT_LE(static_cast<std::int64_t>(document.text.size()), longest);
      EXPECT_FALSE(document.text.empty());
      if (document.source == "accents.txt") {
        EXPECT_NE(static_cast<unsigned char>(document.text.front()) & 0xC0U, 0x80U);
      }
    }
  }
}

TEST(Corpus, CutsAfterLineEnds) {
  const TestFolder folder;
  folder.write("a.txt", random_text(20'000, 2));
  const auto corpus = read_corpus({.paths = {folder.path()}, .validation_fraction = 0.0});
  for (std::size_t i = 0; i + 1 < corpus.train.size(); ++i) {
    EXPECT_EQ(corpus.train[i].text.back(), '\n');
  }
}

TEST(Corpus, KeepsTheFractionForValidation) {
  const TestFolder folder;
  folder.write("a.txt", random_text(500'000, 1));
  folder.write("b.txt", random_text(500'000, 2));
  const CorpusOptions options = {.paths = {folder.path()}, .validation_fraction = 0.1, .seed = 1};
  const auto corpus = read_corpus(options);
  EXPECT_GE(corpus.validation_bytes, 100'000);
  EXPECT_LE(corpus.validation_bytes, 100'000 + 5000);  // one document more at most
}

TEST(Corpus, SplitsTheSameWhereverTheFolderLies) {
  const TestFolder one;
  const TestFolder two;
  for (const auto* folder : {&one, &two}) {
    folder->write("a.txt", random_text(50'000, 1));
    folder->write("sub/b.txt", random_text(50'000, 2));
  }
  const auto split = [](const TestFolder& folder, std::int64_t seed) {
    return keys_of(
        read_corpus({.paths = {folder.path()}, .validation_fraction = 0.1, .seed = seed}).validation);
  };
  EXPECT_EQ(split(one, 7), split(two, 7));
  EXPECT_NE(split(one, 7), split(one, 8));
}

TEST(Corpus, GivesEachSideADocumentWhenThereAreTwo) {
  const TestFolder folder;
  folder.write("a.txt", "a");
  folder.write("b.txt", std::string(900, 'b'));
  for (const double fraction : {0.001, 0.5, 0.999}) {
    for (std::int64_t seed = 0; seed < 8; ++seed) {
      const auto corpus =
          read_corpus({.paths = {folder.path()}, .validation_fraction = fraction, .seed = seed});
      EXPECT_EQ(corpus.train.size(), 1U);
      EXPECT_EQ(corpus.validation.size(), 1U);
    }
  }
  std::filesystem::remove(folder.path() / "b.txt");
  EXPECT_EQ(read_corpus({.paths = {folder.path()}, .validation_fraction = 0.5}).train.size(), 1U);
}

TEST(Corpus, NamesThePathWithoutText) {
  const TestFolder folder;
  const auto name = folder.path().string();
  std::filesystem::create_directory(folder.path() / "none");
  folder.write("binary/a", std::string("\0", 1));
  folder.write("text/a.txt", "a");
  EXPECT_NE(error_of({.paths = {name + "/absent"}}).find(name + "/absent does not exist"), std::string::npos);
  EXPECT_NE(error_of({.paths = {name + "/text", name + "/none"}}).find(name + "/none holds no text"),
            std::string::npos);
  EXPECT_NE(error_of({.paths = {name + "/binary"}}).find("1 file is binary"), std::string::npos);
  EXPECT_NE(error_of({.paths = {name + "/text"}, .extensions = {"pod"}}).find("holds no text"),
            std::string::npos);
  EXPECT_NE(error_of({.paths = {"/dev/null"}}).find("is neither a file nor a folder"), std::string::npos);
  EXPECT_NE(error_of({.paths = {}}), "no error");
  EXPECT_NE(error_of({.paths = {name + "/text"}, .validation_fraction = 1.0}), "no error");
}

TEST(Tokenize, PutsASeparatorBeforeEachDocument) {
  const auto tokenizer = text::make_byte_tokenizer();
  const std::vector<Document> documents = {{"a", 0, "ab"}, {"b", 0, "\xff"}};
  const auto stream = tokenize(documents, *tokenizer, {.with_token_bytes = true});
  EXPECT_EQ(stream.tokens, (std::vector<std::int32_t>{256, 97, 98, 256, 255}));
  EXPECT_EQ(stream.token_bytes, (std::vector<std::uint32_t>{0, 1, 1, 0, 1}));
  EXPECT_EQ(stream.text_bytes, 3);
  EXPECT_TRUE(tokenize(documents, *tokenizer, {}).token_bytes.empty());
  EXPECT_TRUE(tokenize({}, *tokenizer, {.with_token_bytes = true}).tokens.empty());
}

}  // namespace
}  // namespace expedite::train
