#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "expedite/base/error.h"
#include "expedite/text/encode_texts.h"
#include "expedite/text/tokenizer.h"
#include "expedite/text/tokenizer_files.h"
#include "tests/test_folder.h"

namespace expedite::text {
namespace {

using nlohmann::json;

using Tokens = std::vector<std::int32_t>;

/// A tokenizer.json whose vocabulary is `tokens`, ids in order, without merges.
json with_tokens(const std::vector<std::string>& tokens) {
  json vocab = json::object();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    vocab[tokens[i]] = i;
  }
  return {{"added_tokens", json::array({{{"id", tokens.size()}, {"content", "<s>"}, {"special", true}}})},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"decoder", nullptr},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}};
}

std::unique_ptr<Tokenizer> make(const json& file) {
  const TestFolder folder;
  return make_tokenizer(folder.write("tokenizer.json", file.dump()).string());
}

std::string error_of(const json& file) {
  try {
    static_cast<void>(make(file));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Pieces of `text`, by a model whose tokens are single characters, one per piece: "ab|c".
std::string pieces(const json& pre_tokenizer, const std::string& text) {
  // ignore_merges makes a piece that is a token one id; so each possible piece is a token.
  std::vector<std::string> tokens;
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    for (std::size_t end = begin + 1; end <= text.size(); ++end) {
      for (const char* prefix : {"", "_"}) {
        std::string token = prefix + text.substr(begin, end - begin);
        std::ranges::replace(token, ' ', prefix[0] == '\0' ? ' ' : '_');
        if (std::ranges::find(tokens, token) == tokens.end()) {
          tokens.push_back(token);
        }
        std::ranges::replace(token, ' ', '_');
        if (std::ranges::find(tokens, token) == tokens.end()) {
          tokens.push_back(token);
        }
      }
    }
  }
  json file = with_tokens(tokens);
  file["model"]["ignore_merges"] = true;
  file["pre_tokenizer"] = pre_tokenizer;
  Tokens ids;
  const auto tokenizer = make(file);
  tokenizer->encode(text, ids, nullptr);
  std::string shown;
  for (const std::int32_t id : ids) {
    shown += (shown.empty() ? "" : "|") + tokens[id];
  }
  return shown;
}

json split(const char* behavior, bool invert = false, const json& pattern = {{"String", "-"}}) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
}

TEST(HuggingFace, SplitsWithEveryBehaviour) {
  const std::string text = "-a--b-";
  EXPECT_EQ(pieces(split("Isolated"), text), "-|a|-|-|b|-");
  EXPECT_EQ(pieces(split("Removed"), text), "a|b");
  EXPECT_EQ(pieces(split("MergedWithPrevious"), text), "-|a-|-|b-");
  EXPECT_EQ(pieces(split("MergedWithNext"), text), "-a|-|-b|-");
  EXPECT_EQ(pieces(split("Contiguous"), text), "-|a|--|b|-");
  EXPECT_EQ(pieces(split("Removed", true), text), "-|-|-|-");
  EXPECT_EQ(pieces(split("Contiguous", true), text), "-|a|--|b|-");
  EXPECT_EQ(pieces(split("Isolated", false, {{"Regex", "[ab]-?"}}), text), "-|a-|-|b-");
}

TEST(HuggingFace, PreTokenizers) {
  EXPECT_EQ(pieces({{"type", "Digits"}, {"individual_digits", true}}, "a12b"), "a|1|2|b");
  EXPECT_EQ(pieces({{"type", "Digits"}, {"individual_digits", false}}, "a12b"), "a|12|b");
  EXPECT_EQ(pieces({{"type", "Punctuation"}}, "a,.b"), "a|,|.|b");
  EXPECT_EQ(pieces({{"type", "Whitespace"}}, "ab .. c"), "ab|..|c");
  EXPECT_EQ(pieces({{"type", "WhitespaceSplit"}}, " a.b \n c"), "a.b|c");
  EXPECT_EQ(pieces({{"type", "CharDelimiterSplit"}, {"delimiter", "-"}}, "a-b"), "a|b");
  const json meta = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "always"}};
  EXPECT_EQ(pieces(meta, "a b  c"), "_a|_b|_|_c");
  json one = meta;
  one["split"] = false;
  EXPECT_EQ(pieces(one, "a b"), "_a_b");
  one["prepend_scheme"] = "never";
  EXPECT_EQ(pieces(one, "a b"), "a_b");
  EXPECT_EQ(
      pieces({{"type", "Sequence"}, {"pretokenizers", {split("Isolated"), {{"type", "WhitespaceSplit"}}}}},
             "a b-c"),
      "a|b|-|c");
}

/// All bytes, in the alphabet that ByteLevel writes them in.
json byte_level(bool use_regex, bool add_prefix_space) {
  std::vector<std::string> tokens;
  for (int byte = 0, next = 256; byte < 256; ++byte) {
    const bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const int c = printable ? byte : next++;
    tokens.push_back(c < 128
                         ? std::string(1, static_cast<char>(c))
                         : std::string{static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))});
  }
  json file = with_tokens(tokens);
  file["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"use_regex", use_regex}, {"add_prefix_space", add_prefix_space}};
  file["decoder"] = {{"type", "ByteLevel"}};
  return file;
}

void expect_round_trip(const Tokenizer& tokenizer, const std::string& text) {
  Tokens tokens;
  std::vector<std::uint32_t> bytes;
  tokenizer.encode(text, tokens, &bytes);
  Tokens again;
  tokenizer.encode(text, again, nullptr);
  EXPECT_EQ(tokens, again);
  EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}), text.size());
  EXPECT_EQ(tokenizer.decode(tokens), text);
}

TEST(HuggingFace, ByteLevelSaysEveryByteOfUtf8) {
  const auto tokenizer = make(byte_level(true, false));
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->separator(), 256);
  expect_round_trip(*tokenizer, "Grüße, 中文 🙂\t\n  x");
  Tokens tokens;
  tokenizer->encode("a<s>b", tokens, nullptr);
  EXPECT_EQ(tokens, (Tokens{'a', 256, 'b'}));
}

TEST(HuggingFace, MergesAsTextOrAsPairs) {
  const json text = json::array({"a b", "ab c"});
  const json pairs = json::array({json::array({"a", "b"}), json::array({"ab", "c"})});
  for (const json& merges : {text, pairs}) {
    json file = with_tokens({"a", "b", "c", "ab", "abc"});
    file["model"]["merges"] = merges;
    Tokens tokens;
    make(file)->encode("abcab", tokens, nullptr);
    EXPECT_EQ(tokens, (Tokens{4, 3}));
  }
}

/// As Llama 2 and Mistral: a space before the text, spaces as U+2581, bytes for what is unknown.
json of_sentencepiece_kind() {
  std::vector<std::string> tokens = {"<unk>", "▁", "a", "b", "▁a"};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
  }
  json file = with_tokens(tokens);
  file["model"].update(
      {{"byte_fallback", true}, {"fuse_unk", true}, {"unk_token", "<unk>"}, {"merges", {"▁ a"}}});
  file["normalizer"] = {{"type", "Sequence"},
                        {"normalizers",
                         {{{"type", "Prepend"}, {"prepend", "▁"}},
                          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}};
  file["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  return file;
}

TEST(HuggingFace, ByteFallbackSaysEverything) {
  const auto tokenizer = make(of_sentencepiece_kind());
  Tokens tokens;
  tokenizer->encode("a b", tokens, nullptr);
  EXPECT_EQ(tokens, (Tokens{4, 1, 3}));
  for (const std::string text : {"a b", " a", "  ", "中\n\nab", "x"}) {
    expect_round_trip(*tokenizer, text);
  }
}

TEST(HuggingFace, Normalizers) {
  const auto ids = [](const json& normalizer, const std::string& text) {
    json file = with_tokens({"a", "b", "é", "e", "\xCC\x81", "A", " ", "1"});
    file["normalizer"] = normalizer;
    Tokens tokens;
    std::vector<std::uint32_t> bytes;
    const auto tokenizer = make(file);
    tokenizer->encode(text, tokens, &bytes);
    EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}), text.size());
    return tokens;
  };
  EXPECT_EQ(ids({{"type", "NFC"}}, "ae\xCC\x81"), (Tokens{0, 2}));
  EXPECT_EQ(ids({{"type", "NFD"}}, "aé"), (Tokens{0, 3, 4}));
  EXPECT_EQ(ids({{"type", "NFKC"}}, "①ａ"), (Tokens{7, 0}));
  EXPECT_EQ(ids({{"type", "NFKD"}}, "ａé"), (Tokens{0, 3, 4}));
  EXPECT_EQ(ids({{"type", "Lowercase"}}, "AÉ"), (Tokens{0, 2}));
  EXPECT_EQ(ids({{"type", "Strip"}}, "  a b \n"), (Tokens{0, 6, 1}));
  EXPECT_EQ(ids({{"type", "StripAccents"}}, "ae\xCC\x81"), (Tokens{0, 3}));
  EXPECT_EQ(ids({{"type", "Replace"}, {"pattern", {{"Regex", "[xy]+"}}}, {"content", "b"}}, "xaxy"),
            (Tokens{1, 0, 1}));
  EXPECT_EQ(ids({{"type", "Prepend"}, {"prepend", "b"}}, "a"), (Tokens{1, 0}));
}

TEST(HuggingFace, AddedTokens) {
  json file = with_tokens({"a", "b", " ", "x"});
  const auto add = [&](int id, const char* content, const json& more = json::object()) {
    json token = {{"id", id}, {"content", content}, {"normalized", false}};
    token.update(more);
    file["added_tokens"].push_back(token);
  };
  add(10, "<t>");
  add(11, "<t><u>");
  add(12, "<l>", {{"lstrip", true}, {"rstrip", true}});
  add(13, "xx", {{"single_word", true}});
  add(14, "Q", {{"normalized", true}});
  file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "Q"}}}, {"content", "q"}};
  const auto tokenizer = make(file);
  const auto ids = [&](const std::string& text) {
    Tokens tokens;
    tokenizer->encode(text, tokens, nullptr);
    return tokens;
  };
  EXPECT_EQ(ids("a<t>b"), (Tokens{0, 10, 1}));
  EXPECT_EQ(ids("<t><u><t>"), (Tokens{11, 10}));       // the longest
  EXPECT_EQ(ids("a  <l> \nb"), (Tokens{0, 12, 1}));    // with white space
  EXPECT_EQ(ids("axx xx"), (Tokens{0, 3, 3, 2, 13}));  // not inside a word
  EXPECT_EQ(ids("aQ"), (Tokens{0, 14}));               // as the normaliser writes it
  EXPECT_EQ(tokenizer->decode(Tokens{10, 0}), "<t>a");
}

TEST(HuggingFace, Unigram) {
  json file = with_tokens({});
  file["added_tokens"][0]["id"] = 5;
  json vocab = json::array();
  for (const auto& [piece, score] : std::vector<std::pair<std::string, double>>{
           {"<unk>", 0.0}, {"_", -3.0}, {"_a", -3.5}, {"a", -3.0}, {"_aa", -4.0}}) {
    vocab.push_back(json::array({piece, score}));
  }
  file["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}};
  file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}};
  file["decoder"] = {{"type", "Metaspace"}, {"replacement", "_"}};
  const auto tokenizer = make(file);
  Tokens tokens;
  tokenizer->encode("aa a?", tokens, nullptr);
  EXPECT_EQ(tokens, (Tokens{4, 2, 0}));
  EXPECT_EQ(tokenizer->decode(tokens), "aa a");
}

TEST(HuggingFace, TheSeparator) {
  const auto separator = [](const std::string& config, const std::string& model) {
    const TestFolder folder;
    json file = with_tokens({"a"});
    for (const char* token : {"<|endoftext|>", "<bos>", "<eos>"}) {
      file["added_tokens"].push_back({{"id", file["added_tokens"].size() + 1}, {"content", token}});
    }
    folder.write("tokenizer.json", file.dump());
    if (!config.empty()) {
      folder.write("tokenizer_config.json", config);
    }
    if (!model.empty()) {
      folder.write("config.json", model);
    }
    return make_tokenizer(folder.path().string())->separator();
  };
  EXPECT_EQ(separator(R"({"bos_token": "<bos>", "eos_token": "<eos>"})", R"({"bos_token_id": 1})"), 3);
  EXPECT_EQ(separator(R"({"bos_token": {"content": "<bos>"}})", ""), 3);
  EXPECT_EQ(separator(R"({"bos_token": null, "eos_token": "<eos>"})", R"({"bos_token_id": 1})"), 1);
  EXPECT_EQ(separator(R"({"bos_token": null, "eos_token": "<eos>"})", ""), 2);
  EXPECT_EQ(separator("", ""), 2);
  json none = with_tokens({"a"});
  none["added_tokens"] = json::array();
  EXPECT_NE(error_of(none).find("no token to separate documents with"), std::string::npos);
}

TEST(HuggingFace, NamesWhatItDoesNotRead) {
  const auto with = [](const char* part, const json& value) {
    json file = with_tokens({"a", "b"});
    json::json_pointer pointer(part);
    file[pointer] = value;
    return error_of(file);
  };
  const auto expect = [](const std::string& error, const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      EXPECT_NE(error.find(text), std::string::npos) << error << "\nlacks " << text;
    }
  };
  expect(with("/model/type", "WordPiece"), {"tokenizer.json: model", "WordPiece", "BPE and Unigram"});
  expect(with("/model/type", "WordLevel"), {"WordLevel", "BPE and Unigram"});
  expect(with("/model/continuing_subword_prefix", "##"), {"continuing_subword_prefix"});
  expect(with("/model/end_of_word_suffix", "</w>"), {"end_of_word_suffix"});
  expect(with("/model/dropout", 0.1), {"dropout"});
  expect(with("/model/merges", {"a b"}), {"merges[0]", "not in the vocabulary"});
  expect(with("/model/merges", {"ab"}), {"merges[0]", "two tokens"});
  expect(with("/model/vocab/a", -1), {"id", "-1"});
  expect(with("/model/unk_token", "?"), {"unk_token", "?"});
  expect(with("/normalizer", {{"type", "Precompiled"}}), {"normalizer", "Precompiled", "tokenizer.model"});
  expect(with("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Bert"}}}}}),
         {"normalizer.normalizers[0]"});
  expect(with("/pre_tokenizer", {{"type", "BertPreTokenizer"}}),
         {"pre_tokenizer", "BertPreTokenizer", "Metaspace"});
  expect(with("/pre_tokenizer", split("Isolated", false, {{"Regex", "(a"}})), {"pre_tokenizer", "(a"});
  expect(with("/pre_tokenizer", split("Sideways")), {"behavior", "Sideways", "Contiguous"});
  expect(with("/decoder", {{"type", "WordPiece"}}), {"decoder", "WordPiece", "ByteFallback"});
  expect(error_of(json::object()), {"model is missing"});
  const TestFolder folder;
  try {
    static_cast<void>(make_tokenizer(folder.write("tokenizer.json", "{").string()));
    FAIL();
  } catch (const Error& error) {
    expect(error.what(), {"tokenizer.json is not valid JSON"});
  }
}

TEST(TokenizerFiles, ListsWhatLiesBesideIt) {
  const TestFolder folder;
  EXPECT_TRUE(tokenizer_files("bytes").empty());
  EXPECT_FALSE(has_tokenizer(folder.path()));
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json"}) {
    folder.write(name, "{}");
  }
  const auto names = [](const std::string& path) {
    std::vector<std::string> result;
    for (const TokenizerFile& file : tokenizer_files(path)) {
      result.push_back(file.name);
    }
    return result;
  };
  const std::vector<std::string> all = {"tokenizer.json", "tokenizer_config.json", "generation_config.json"};
  EXPECT_EQ(names(folder.path()), all);
  EXPECT_EQ(names(folder.path() / "tokenizer.json"), all);
  EXPECT_TRUE(has_tokenizer(folder.path()));
  const TestFolder other;
  EXPECT_EQ(names(other.write("words.model", "x")), (std::vector<std::string>{"tokenizer.model"}));
}

TEST(Survival, CountsWhatTokensDoNotSay) {
  // No token for c; runs of spaces are one.
  json file = with_tokens({"<unk>", "a", "b", "▁", " "});
  file["model"].update({{"unk_token", "<unk>"}, {"fuse_unk", true}});
  file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", " "}};
  const auto tokenizer = make(file);
  const std::vector<std::string_view> texts = {"ab",
                                               "a   b",
                                               "accb",
                                               "\n\nab",
                                               "ccc",
                                               "a\xFF"
                                               "b",
                                               "aéb a"};
  const std::vector<std::int64_t> lost = {0, 2, 2, 2, 3, 1, 2};
  for (const int threads : {1, 3}) {
    const auto encoded = encode_texts(texts, *tokenizer, {.threads = threads, .with_token_bytes = true});
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(encoded[i].loss.bytes, lost[i]) << texts[i];
      EXPECT_EQ(
          std::accumulate(encoded[i].token_bytes.begin(), encoded[i].token_bytes.end(), std::int64_t{0}),
          static_cast<std::int64_t>(texts[i].size()) - lost[i])
          << texts[i];
      EXPECT_EQ(encoded[i].token_bytes.size(), encoded[i].tokens.size());
    }
    EXPECT_EQ(encoded[2].loss.first_offset, 1);
    EXPECT_EQ(encoded[2].loss.original, "cc");
  }
}

TEST(Survival, QuotesWhatCannotBePrinted) {
  EXPECT_EQ(quoted("a\n\xFF"
                   "é\x01"),
            "'a\\n\\xFFé\\x01'");
}

}  // namespace
}  // namespace expedite::text
