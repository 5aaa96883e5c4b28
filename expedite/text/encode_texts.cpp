#include "expedite/text/encode_texts.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace expedite::text {
namespace {

EncodedText encode_one(std::string_view text, const Tokenizer& tokenizer, Encoder& encoder, bool with_bytes) {
  EncodedText result;
  encoder.encode(text, result.tokens, nullptr);
  if (says_all(text, result.tokens, tokenizer)) {
    if (with_bytes) {
      std::uint32_t added = tokenizer.adds_space() ? 1 : 0;
      for (const std::int32_t token : result.tokens) {
        const std::string_view part = tokenizer.says(token);
        const std::uint32_t cut = part.starts_with(' ') ? added : 0;
        result.token_bytes.push_back(static_cast<std::uint32_t>(part.size()) - cut);
        added = 0;
      }
    }
    return result;
  }
  result.tokens.clear();
  std::vector<std::uint32_t> bytes;
  encoder.encode(text, result.tokens, &bytes);
  result.loss = find_loss(text, result.tokens, bytes, tokenizer);
  if (with_bytes) {
    result.token_bytes = std::move(bytes);
  }
  return result;
}

/// The texts, taken one by one by whoever is free.
class Work {
 public:
  Work(std::span<const std::string_view> texts, const Tokenizer& tokenizer, bool with_bytes)
      : texts_(texts), tokenizer_(tokenizer), with_bytes_(with_bytes), results_(texts.size()) {}

  void run() {
    const auto encoder = tokenizer_.encoder();
    for (std::size_t i = next_++; i < texts_.size(); i = next_++) {
      try {
        results_[i] = encode_one(texts_[i], tokenizer_, *encoder, with_bytes_);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (i < failed_) {
          failed_ = i;
          error_ = std::current_exception();
        }
        next_ = texts_.size();
      }
      bytes_ += static_cast<std::int64_t>(texts_[i].size());
    }
  }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  [[nodiscard]] std::vector<EncodedText> take() {
    if (error_) {
      std::rethrow_exception(error_);
    }
    return std::move(results_);
  }

 private:
  std::span<const std::string_view> texts_;
  const Tokenizer& tokenizer_;
  bool with_bytes_;
  std::vector<EncodedText> results_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<std::int64_t> bytes_ = 0;
  std::mutex mutex_;
  std::size_t failed_ = SIZE_MAX;
  std::exception_ptr error_;
};

}  // namespace

std::vector<EncodedText> encode_texts(std::span<const std::string_view> texts, const Tokenizer& tokenizer,
                                      const EncodeOptions& options) {
  Work work(texts, tokenizer, options.with_token_bytes);
  const auto count = std::clamp<std::size_t>(static_cast<std::size_t>(std::max(options.threads, 1)), 1,
                                             std::max<std::size_t>(texts.size(), 1));
  std::mutex mutex;
  std::condition_variable ended;
  std::size_t running = count;
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&] {
      work.run();
      const std::lock_guard lock(mutex);
      --running;
      ended.notify_one();
    });
  }
  constexpr auto kInterval = std::chrono::milliseconds(200);
  std::unique_lock lock(mutex);
  while (!ended.wait_for(lock, kInterval, [&] { return running == 0; })) {
    if (options.progress) {
      options.progress(work.bytes());
    }
  }
  lock.unlock();
  threads.clear();
  return work.take();
}

}  // namespace expedite::text
