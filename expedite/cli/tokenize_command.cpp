#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "expedite/base/error.h"
#include "expedite/base/median.h"
#include "expedite/base/read_text.h"
#include "expedite/cli/commands.h"
#include "expedite/cli/legal_values.h"
#include "expedite/text/encode_texts.h"

namespace expedite::cli {
namespace {

struct TokenizeOptions {
  std::vector<std::string> files;
  std::string tokenizer;
  std::string ids;
  std::int64_t threads = 1;
  std::int64_t bench = 0;
};

using EncodedFiles = std::vector<text::EncodedText>;

/// A JSON line per file: its name, and its ids.
void write_ids(const TokenizeOptions& options, const EncodedFiles& encoded) {
  std::ofstream out(options.ids, std::ios::binary);
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    out << fmt::format("{{\"file\": {}, \"ids\": [{}]}}\n", nlohmann::json(options.files[i]).dump(),
                       fmt::join(encoded[i].tokens, ","));
  }
  out.close();
  require(!out.fail(), "{}: cannot write: does its folder exist, is the disk full?", options.ids);
}

void print_loss(const TokenizeOptions& options, const EncodedFiles& encoded) {
  std::int64_t lost = 0;
  std::size_t first = encoded.size();
  for (std::size_t i = encoded.size(); i-- > 0;) {
    lost += encoded[i].loss.bytes;
    first = encoded[i].loss.bytes > 0 ? i : first;
  }
  if (lost == 0) {
    fmt::print("decode(encode(text)) is the text\n");
    return;
  }
  const text::TextLoss& loss = encoded[first].loss;
  fmt::print(
      "{} bytes are lost: they are not in decode(encode(text)); first at byte {} of {}: {} reads back as "
      "{}\n",
      lost, loss.first_offset, options.files[first], text::quoted(loss.original),
      text::quoted(loss.reads_back));
}

/// Of this thread: what other programs take of the machine does not count.
double cpu_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void measure_speed(const TokenizeOptions& options, const std::vector<std::string_view>& texts,
                   const text::Tokenizer& tokenizer, double megabytes) {
  std::vector<double> rates;
  for (std::int64_t i = 0; i < options.bench; ++i) {
    const double begin = cpu_seconds();
    const auto encoder = tokenizer.encoder();
    std::vector<std::int32_t> tokens;
    for (const std::string_view text : texts) {
      tokens.clear();
      encoder->encode(text, tokens, nullptr);
    }
    rates.push_back(megabytes / (cpu_seconds() - begin));
  }
  fmt::print("{:.1f} MB/s of one core's time, the median of {} (best {:.1f})\n", median(rates), options.bench,
             std::ranges::max(rates));
}

void run_tokenize(const TokenizeOptions& options) {
  const auto tokenizer = text::make_tokenizer(options.tokenizer);
  std::vector<std::string> contents;
  std::int64_t bytes = 0;
  for (const std::string& file : options.files) {
    contents.push_back(read_text(file));
    bytes += static_cast<std::int64_t>(contents.back().size());
  }
  const std::vector<std::string_view> texts(contents.begin(), contents.end());
  const EncodedFiles encoded =
      text::encode_texts(texts, *tokenizer, {.threads = static_cast<int>(options.threads)});
  std::int64_t tokens = 0;
  for (const text::EncodedText& one : encoded) {
    tokens += static_cast<std::int64_t>(one.tokens.size());
  }
  fmt::print("{} files, {} bytes, {} tokens of {}, {:.3f} bytes per token\n", contents.size(), bytes, tokens,
             tokenizer->vocab_size(),
             tokens > 0 ? static_cast<double>(bytes) / static_cast<double>(tokens) : 0.0);
  print_loss(options, encoded);
  if (!options.ids.empty()) {
    write_ids(options, encoded);
  }
  if (options.bench > 0) {
    measure_speed(options, texts, *tokenizer, static_cast<double>(bytes) / 1e6);
  }
}

}  // namespace

void add_tokenize_command(CLI::App& app, Context& context) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand(
      "tokenize", "Show how a tokenizer encodes text files, and how fast; see docs/tokenizers.md");
  command->add_option("files", options->files, "Text files, each one text")->required();
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "bytes, a tokenizer.json, a SentencePiece .model, or a folder that holds one")
      ->required();
  command->add_option("--ids", options->ids, "Write the ids of each file, one JSON line per file");
  whole_number(command->add_option("--threads", options->threads, "Encode on this many threads"), 1,
               kMostThreads)
      ->capture_default_str();
  whole_number(
      command->add_option("--bench", options->bench, "Measure the speed on one core, this many times"), 1,
      kMostRounds);
  command->callback([options, &context] {
    run_tokenize(*options);
    context.exit_code = 0;
  });
}

}  // namespace expedite::cli
