#include "expedite/train/text_corpus.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>

#include "expedite/base/error.h"
#include "expedite/base/random.h"

namespace expedite::train {
namespace {

constexpr std::int64_t kPieces = 200;  // about as many documents as the text is cut into
constexpr std::int64_t kSmallestPiece = 1024;
constexpr std::int64_t kLargestPiece = 256 * 1024;

struct SourceText {
  std::string source;
  std::string text;
};

std::int64_t length_of(const std::string& text) {
  return static_cast<std::int64_t>(text.size());
}

std::vector<SourceText> read_files(const CorpusOptions& options, Skipped& skipped) {
  TextFinder finder(options.extensions);
  std::vector<SourceText> texts;
  for (const std::string& path : options.paths) {
    const std::size_t texts_before = texts.size();
    Skipped here;
    for (TextFile& file : finder.find(path, here)) {
      if (std::optional<std::string> text = read_text_file(file.path, here)) {
        texts.push_back({std::move(file.source), std::move(*text)});
      }
    }
    // Another path may have led to all of it.
    if (texts.size() == texts_before && here.count(Skip::duplicate) == 0) {
      fail_without_text(path, here, options.extensions);
    }
    skipped.add(here);
  }
  return texts;
}

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

/// Where a piece that begins at `begin` and should be `length` bytes ends.
std::size_t piece_end(const std::string& text, std::size_t begin, std::size_t length) {
  std::size_t end = begin + length;
  if (end >= text.size()) {
    return text.size();
  }
  const auto newline = text.rfind('\n', end - 1);
  if (newline != std::string::npos && newline + 1 > begin + length / 2) {
    return newline + 1;
  }
  constexpr std::size_t kLongestCharacter = 4;
  for (std::size_t back = 0; back < kLongestCharacter && back < length / 2; ++back) {
    if (!continues_character(text[end - back])) {
      return end - back;
    }
  }
  return end;  // not UTF-8
}

std::vector<Document> cut(std::vector<SourceText> files) {
  const std::int64_t total =
      std::transform_reduce(files.begin(), files.end(), std::int64_t{0}, std::plus<>(),
                            [](const SourceText& file) { return length_of(file.text); });
  const auto length = static_cast<std::size_t>(std::clamp(total / kPieces, kSmallestPiece, kLargestPiece));
  std::vector<Document> documents;
  for (SourceText& file : files) {
    std::int64_t piece = 0;
    for (std::size_t begin = 0; begin < file.text.size();) {
      const std::size_t end = piece_end(file.text, begin, length);
      documents.push_back(
          {file.source, piece++, file.text.substr(begin, end - begin), static_cast<std::int64_t>(begin)});
      begin = end;
    }
    file.text = {};  // the documents hold it now
  }
  return documents;
}

/// For each document whether it is for validation.
std::vector<bool> choose_validation(const std::vector<Document>& documents, double fraction,
                                    std::int64_t seed) {
  std::vector<std::tuple<std::uint64_t, std::size_t>> order;
  double total = 0.0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const Philox hash(static_cast<std::uint64_t>(seed), stream_of(documents[i].source));
    order.emplace_back(hash.bits(static_cast<std::uint64_t>(documents[i].piece)), i);
    total += static_cast<double>(documents[i].text.size());
  }
  std::ranges::sort(order);
  std::vector<bool> chosen(documents.size(), false);
  double bytes = 0.0;
  for (std::size_t i = 0; i + 1 < order.size() && bytes < fraction * total; ++i) {
    const std::size_t document = std::get<1>(order[i]);
    chosen[document] = true;
    bytes += static_cast<double>(documents[document].text.size());
  }
  return chosen;
}

}  // namespace

Corpus read_corpus(const CorpusOptions& options) {
  require(!options.paths.empty(), "data.path is empty: give text files or folders");
  require(options.validation_fraction >= 0.0 && options.validation_fraction < 1.0,
          "data.validation_fraction = {}: expected a number in [0, 1)", options.validation_fraction);
  Corpus corpus;
  std::vector<SourceText> files = read_files(options, corpus.skipped);
  corpus.files = std::ssize(files);
  auto documents = cut(std::move(files));
  const auto validation = choose_validation(documents, options.validation_fraction, options.seed);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    (validation[i] ? corpus.validation_bytes : corpus.train_bytes) += length_of(documents[i].text);
    (validation[i] ? corpus.validation : corpus.train).push_back(std::move(documents[i]));
  }
  return corpus;
}

void add_loss(CorpusLoss& loss, const CorpusLoss& other) {
  const std::int64_t before = loss.bytes;
  if (before == 0 && other.bytes > 0) {
    loss = other;
  }
  loss.bytes = before + other.bytes;
}

TokenStream tokenize(std::span<const Document> documents, const text::Tokenizer& tokenizer,
                     const text::EncodeOptions& options) {
  std::vector<std::string_view> texts;
  for (const Document& document : documents) {
    texts.emplace_back(document.text);
  }
  const std::vector<text::EncodedText> encoded = text::encode_texts(texts, tokenizer, options);
  TokenStream stream;
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    stream.tokens.push_back(tokenizer.separator());
    stream.tokens.insert(stream.tokens.end(), encoded[i].tokens.begin(), encoded[i].tokens.end());
    if (options.with_token_bytes) {
      stream.token_bytes.push_back(0);
      stream.token_bytes.insert(stream.token_bytes.end(), encoded[i].token_bytes.begin(),
                                encoded[i].token_bytes.end());
    }
    stream.text_bytes += length_of(documents[i].text);
    const text::TextLoss& loss = encoded[i].loss;
    add_loss(stream.loss, {.bytes = loss.bytes,
                           .source = documents[i].source,
                           .offset = documents[i].offset + loss.first_offset,
                           .original = text::quoted(loss.original),
                           .reads_back = text::quoted(loss.reads_back)});
  }
  return stream;
}

}  // namespace expedite::train
