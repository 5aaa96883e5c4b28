#include "expedite/train/yardstick.h"

#include <zlib.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "expedite/base/error.h"

namespace expedite::train {
namespace {

constexpr std::size_t kSymbols = 256;
constexpr std::size_t kOrders = 3;

/// How often each byte follows each context of `order` bytes.
class ContextCounts {
 public:
  explicit ContextCounts(std::size_t order) : counts_(power(order) * kSymbols, 0), totals_(power(order), 0) {}

  void add(std::size_t context, unsigned char symbol) {
    ++counts_[context * kSymbols + symbol];
    ++totals_[context];
  }
  [[nodiscard]] std::size_t contexts() const { return totals_.size(); }
  [[nodiscard]] double count(std::size_t context, std::size_t symbol) const {
    return static_cast<double>(counts_[context * kSymbols + symbol]);
  }
  [[nodiscard]] double total(std::size_t context) const { return static_cast<double>(totals_[context]); }

 private:
  static std::size_t power(std::size_t order) {
    std::size_t contexts = 1;
    for (std::size_t i = 0; i < order; ++i) {
      contexts *= kSymbols;
    }
    return contexts;
  }

  std::vector<std::uint32_t> counts_;
  std::vector<std::uint64_t> totals_;
};

/// Calls visit(order, context, symbol) for each byte of `text`, with the longest context, up to two bytes, it
/// has.
template <typename Visit>
void for_each_byte(std::string_view text, const Visit& visit) {
  std::size_t context = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto symbol = static_cast<unsigned char>(text[i]);
    visit(std::min(i, kOrders - 1), context, symbol);
    context = (context * kSymbols + symbol) % (kSymbols * kSymbols);
  }
}

class Markov2 {
 public:
  explicit Markov2(std::span<const Document> train) {
    for (const Document& document : train) {
      for_each_byte(document.text, [&](std::size_t longest, std::size_t context, unsigned char symbol) {
        for (std::size_t order = 0; order <= longest; ++order) {
          counts_[order].add(shorten(context, order), symbol);
        }
      });
    }
    for (std::size_t order = 0; order < kOrders; ++order) {
      concentration_[order] = best_concentration(order);
    }
  }

  /// p_order(symbol | the last `order` bytes of context).
  [[nodiscard]] double probability(std::size_t order, std::size_t context, std::size_t symbol) const {
    double p = 1.0 / static_cast<double>(kSymbols);
    for (std::size_t k = 0; k <= order; ++k) {
      const std::size_t shorter = shorten(context, k);
      const double d = concentration_[k];
      p = (counts_[k].count(shorter, symbol) + d * p) / (counts_[k].total(shorter) + d);
    }
    return p;
  }

 private:
  static std::size_t shorten(std::size_t context, std::size_t order) {
    return order == 0 ? 0 : order == 1 ? context % kSymbols : context;
  }

  /// The d_order with the shortest code of the training text when each byte in turn is left out of its own
  /// counts. The code length is smooth in log d with one minimum in practice: a golden-section search.
  [[nodiscard]] double best_concentration(std::size_t order) const {
    const auto cases = leave_one_out_cases(order);
    const auto nats = [&](double log_d) {
      const double d = std::exp(log_d);
      double sum = 0.0;
      for (const Case& c : cases) {
        sum -= c.count * std::log((c.count - 1.0 + d * c.lower) / (c.total - 1.0 + d));
      }
      return sum;
    };
    constexpr double kGolden = 0.6180339887498949;
    constexpr int kIterations = 24;
    double low = std::log(1e-3);
    double high = std::log(1e5);
    double left = high - kGolden * (high - low);
    double right = low + kGolden * (high - low);
    double nats_left = nats(left);
    double nats_right = nats(right);
    for (int i = 0; i < kIterations; ++i) {
      if (nats_left < nats_right) {
        high = right;
        right = left;
        nats_right = nats_left;
        left = high - kGolden * (high - low);
        nats_left = nats(left);
      } else {
        low = left;
        left = right;
        nats_left = nats_right;
        right = low + kGolden * (high - low);
        nats_right = nats(right);
      }
    }
    return std::exp(0.5 * (low + high));
  }

  struct Case {
    double count;  // of a byte after a context
    double total;  // of the context
    double lower;  // the byte's probability under the order below
  };

  [[nodiscard]] std::vector<Case> leave_one_out_cases(std::size_t order) const {
    std::vector<Case> cases;
    const ContextCounts& counts = counts_[order];
    for (std::size_t context = 0; context < counts.contexts(); ++context) {
      if (counts.total(context) == 0.0) {
        continue;
      }
      for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
        if (const double count = counts.count(context, symbol); count > 0.0) {
          const double lower =
              order == 0 ? 1.0 / static_cast<double>(kSymbols) : probability(order - 1, context, symbol);
          cases.push_back({count, counts.total(context), lower});
        }
      }
    }
    return cases;
  }

  std::array<ContextCounts, kOrders> counts_ = {ContextCounts(0), ContextCounts(1), ContextCounts(2)};
  std::array<double, kOrders> concentration_ = {1.0, 1.0, 1.0};
};

/// A deflate stream with gzip's wrapper whose output is only counted.
class GzipCounter {
 public:
  GzipCounter() {
    constexpr int kLargestWindow = 15;
    constexpr int kGzipWrapper = 16;
    constexpr int kMemoryLevel = 8;  // gzip's own
    const int status = deflateInit2(&stream_, Z_BEST_COMPRESSION, Z_DEFLATED, kLargestWindow + kGzipWrapper,
                                    kMemoryLevel, Z_DEFAULT_STRATEGY);
    require(status == Z_OK, "zlib cannot start compressing (status {})", status);
  }
  ~GzipCounter() { deflateEnd(&stream_); }
  GzipCounter(const GzipCounter&) = delete;
  GzipCounter& operator=(const GzipCounter&) = delete;

  void add(std::string_view text) {
    constexpr std::size_t kLargestInput = std::numeric_limits<uInt>::max();
    while (!text.empty()) {
      const std::string_view part = text.substr(0, kLargestInput);
      run(part, Z_NO_FLUSH);
      text.remove_prefix(part.size());
    }
  }

  [[nodiscard]] double finish() {
    run({}, Z_FINISH);
    return bytes_;
  }

 private:
  void run(std::string_view part, int flush) {
    std::array<Bytef, 65536> out;
    // zlib's interface has no const, and does not write to its input.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
    stream_.avail_in = static_cast<uInt>(part.size());
    do {
      stream_.next_out = out.data();
      stream_.avail_out = static_cast<uInt>(out.size());
      const int status = deflate(&stream_, flush);
      require(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR,
              "zlib failed to compress (status {})", status);
      bytes_ += static_cast<double>(out.size() - stream_.avail_out);
    } while (stream_.avail_out == 0);
  }

  z_stream stream_ = {};
  double bytes_ = 0.0;
};

double total_bytes(std::span<const Document> documents) {
  double bytes = 0.0;
  for (const Document& document : documents) {
    bytes += static_cast<double>(document.text.size());
  }
  return bytes;
}

}  // namespace

double markov2_bits_per_byte(std::span<const Document> train, std::span<const Document> validation) {
  require(!validation.empty(), "there is no validation text to measure on: raise data.validation_fraction");
  const Markov2 model(train);
  double bits = 0.0;
  for (const Document& document : validation) {
    for_each_byte(document.text, [&](std::size_t order, std::size_t context, unsigned char symbol) {
      bits -= std::log2(model.probability(order, context, symbol));
    });
  }
  return bits / total_bytes(validation);
}

double gzip9_bits_per_byte(std::span<const Document> documents) {
  require(!documents.empty(), "there is no validation text to measure on: raise data.validation_fraction");
  GzipCounter counter;
  for (const Document& document : documents) {
    counter.add(document.text);
  }
  return 8.0 * counter.finish() / total_bytes(documents);
}

}  // namespace expedite::train
