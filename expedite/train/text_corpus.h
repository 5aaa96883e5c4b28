// Text as training data: files and folders, cut into documents, split into training and validation, made into
// tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "expedite/text/encode_texts.h"
#include "expedite/text/tokenizer.h"
#include "expedite/train/text_files.h"

namespace expedite::train {

struct CorpusOptions {
  std::vector<std::string> paths = {};       // files, and folders that are read recursively
  std::vector<std::string> extensions = {};  // ".pod" or "pod"; empty: all; not asked of files in `paths`
  double validation_fraction = 0.05;         // of the bytes, in [0, 1)
  std::int64_t seed = 0;                     // picks the validation documents
};

/// A piece of a file. Files are cut into pieces of at most clamp(total bytes / 200, 1 KiB, 256 KiB), after a
/// line end where there is one in the second half of a piece, else between UTF-8 characters.
struct Document {
  std::string source;       // path of the file, relative to the folder given; its name for a file
  std::int64_t piece = 0;   // of that file, from 0
  std::string text;         // never empty
  std::int64_t offset = 0;  // of the text in the file
};

/// Documents in the order of the paths given, of sorted relative file names, and of pieces.
struct Corpus {
  std::vector<Document> train;
  std::vector<Document> validation;
  std::int64_t train_bytes = 0;
  std::int64_t validation_bytes = 0;
  std::int64_t files = 0;
  Skipped skipped;

  [[nodiscard]] std::int64_t bytes() const { return train_bytes + validation_bytes; }
};

/// Reads the text that TextFinder finds. Validation gets the documents with the smallest hash of (source,
/// piece, seed) until it holds validation_fraction of the bytes; with a fraction above 0 and two documents or
/// more, each side gets at least one. The same text and seed give the same split wherever the folder lies.
/// Throws Error naming the path that does not exist, cannot be read, or holds no text.
[[nodiscard]] Corpus read_corpus(const CorpusOptions& options);

/// Bytes of the text that its tokens do not say (text/survival.h), and where the first of them is.
struct CorpusLoss {
  std::int64_t bytes = 0;
  std::string source = {};      // file of the first
  std::int64_t offset = 0;      // in that file
  std::string original = {};    // there, for a message
  std::string reads_back = {};  // what the tokens say of it
};

/// Counts `other`, of documents that come later, into `loss`.
void add_loss(CorpusLoss& loss, const CorpusLoss& other);

/// Documents as one flat vector of tokens, each document after one separator, so that each of its tokens is
/// predicted.
struct TokenStream {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint32_t> token_bytes;  // of the text that each token says (separators: 0); empty when not
                                           // asked for
  std::int64_t text_bytes = 0;             // of all documents
  CorpusLoss loss;
};

/// `options.with_token_bytes` also fills token_bytes, needed for bits per byte over a part of the text.
[[nodiscard]] TokenStream tokenize(std::span<const Document> documents, const text::Tokenizer& tokenizer,
                                   const text::EncodeOptions& options);

}  // namespace expedite::train
