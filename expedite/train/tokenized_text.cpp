#include "expedite/train/tokenized_text.h"

#include <array>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "expedite/base/error.h"
#include "expedite/base/log.h"
#include "expedite/comm/collectives.h"
#include "expedite/text/fingerprint.h"
#include "expedite/train/token_cache.h"

namespace expedite::train {
namespace {

using Clock = std::chrono::steady_clock;

/// What the tokens depend on.
std::string key_of(std::span<const Document> documents, const text::Tokenizer& tokenizer,
                   bool with_token_bytes) {
  text::Fingerprint key;
  key.add(tokenizer.fingerprint());
  key.add(with_token_bytes ? "bytes" : "");
  for (const Document& document : documents) {
    key.add(document.source);
    key.add(std::to_string(document.offset));
    key.add(document.text);
  }
  return key.hex();
}

// ---- Streams as bytes: counts, tokens, bytes of tokens, and what is lost as JSON.

template <typename T>
void append(std::string& out, std::span<const T> values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

std::string pack(const TokenStream& stream) {
  const nlohmann::json rest = {{"text_bytes", stream.text_bytes},  {"lost_bytes", stream.loss.bytes},
                               {"source", stream.loss.source},     {"offset", stream.loss.offset},
                               {"original", stream.loss.original}, {"reads_back", stream.loss.reads_back}};
  const std::string text = rest.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::array<std::uint64_t, 3> counts = {stream.tokens.size(), stream.token_bytes.size(), text.size()};
  std::string out;
  append(out, std::span<const std::uint64_t>(counts));
  append(out, std::span<const std::int32_t>(stream.tokens));
  append(out, std::span<const std::uint32_t>(stream.token_bytes));
  return out += text;
}

template <typename T>
std::vector<T> take(std::string_view& from, std::size_t count) {
  std::vector<T> values(count);
  std::memcpy(values.data(), from.data(), count * sizeof(T));
  from.remove_prefix(count * sizeof(T));
  return values;
}

/// Of bytes that pack() made: their hash was checked.
TokenStream unpack(std::string_view from) {
  const auto counts = take<std::uint64_t>(from, 3);
  TokenStream stream;
  stream.tokens = take<std::int32_t>(from, counts[0]);
  stream.token_bytes = take<std::uint32_t>(from, counts[1]);
  const auto rest = nlohmann::json::parse(from);
  stream.text_bytes = rest.at("text_bytes");
  stream.loss = {.bytes = rest.at("lost_bytes"),
                 .source = rest.at("source"),
                 .offset = rest.at("offset"),
                 .original = rest.at("original"),
                 .reads_back = rest.at("reads_back")};
  return stream;
}

// ---- Encoding

/// A line now and then, where it takes long.
class EncodingProgress {
 public:
  EncodingProgress(std::int64_t bytes, bool shown) : bytes_(bytes), shown_(shown) {}

  void operator()(std::int64_t done) {
    constexpr auto kInterval = std::chrono::seconds(5);
    const auto now = Clock::now();
    if (shown_ && now - last_ >= kInterval && done > 0) {
      last_ = now;
      const double seconds = std::chrono::duration<double>(now - begin_).count();
      const double left = seconds * static_cast<double>(bytes_ - done) / static_cast<double>(done);
      spdlog::info("encoding the text: {:.0f} %, {:.0f} s left",
                   100.0 * static_cast<double>(done) / static_cast<double>(bytes_), left);
    }
  }

 private:
  std::int64_t bytes_;
  bool shown_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point last_ = begin_;
};

/// The documents of one rank: neighbours, so that the ranks' streams one after another are the whole.
std::span<const Document> share_of(std::span<const Document> documents, int rank, int ranks) {
  const auto bound = [&](int r) {
    return documents.size() * static_cast<std::size_t>(r) / static_cast<std::size_t>(ranks);
  };
  return documents.subspan(bound(rank), bound(rank + 1) - bound(rank));
}

std::string encode_share(std::span<const Document> documents, const text::Tokenizer& tokenizer,
                         const comm::ProcessGrid& grid, const TokenizeOptions& options) {
  const std::span<const Document> share = share_of(documents, grid.rank(), grid.size());
  std::int64_t bytes = 0;
  for (const Document& document : share) {
    bytes += static_cast<std::int64_t>(document.text.size());
  }
  EncodingProgress progress(bytes, grid.rank() == 0);
  return pack(tokenize(share, tokenizer,
                       {.threads = options.threads,
                        .with_token_bytes = options.with_token_bytes,
                        .progress = [&](std::int64_t done) { progress(done); }}));
}

/// On rank 0 all ranks' shares as one, elsewhere nothing.
std::string encode_together(std::span<const Document> documents, const text::Tokenizer& tokenizer,
                            const comm::ProcessGrid& grid, const TokenizeOptions& options) {
  const std::string mine = encode_share(documents, tokenizer, grid, options);
  TokenStream whole;
  for (const std::vector<std::byte>& part :
       comm::gather_bytes(grid.world(), std::as_bytes(std::span(mine)), 0)) {
    const TokenStream stream = unpack({reinterpret_cast<const char*>(part.data()), part.size()});
    whole.tokens.insert(whole.tokens.end(), stream.tokens.begin(), stream.tokens.end());
    whole.token_bytes.insert(whole.token_bytes.end(), stream.token_bytes.begin(), stream.token_bytes.end());
    whole.text_bytes += stream.text_bytes;
    add_loss(whole.loss, stream.loss);
  }
  return grid.rank() == 0 ? pack(whole) : std::string();
}

}  // namespace

TokenStream tokenize_together(std::span<const Document> documents, const text::Tokenizer& tokenizer,
                              const comm::ProcessGrid& grid, const TokenizeOptions& options) {
  if (options.cache.empty()) {
    return tokenize(documents, tokenizer,
                    {.threads = options.threads, .with_token_bytes = options.with_token_bytes});
  }
  const TokenCache cache(options.cache);
  std::string content;
  std::string key;
  if (grid.rank() == 0) {
    key = key_of(documents, tokenizer, options.with_token_bytes);
    content = cache.find(key).value_or("");
  }
  if (comm::all_reduce<std::int64_t>(grid.world(), content.empty() ? 0 : 1, comm::ReduceOp::max) == 0) {
    content = encode_together(documents, tokenizer, grid, options);
    if (grid.rank() == 0) {
      cache.put(key, content);
    }
  }
  return unpack(comm::broadcast_text(grid.world(), std::move(content), 0));
}

}  // namespace expedite::train
