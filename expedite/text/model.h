// The `model` of a tokenizer.json: the ids of one piece of text.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace expedite::text {

/// Ids, and when asked for the bytes of the piece that each stands for.
struct Ids {
  std::vector<std::int32_t>& tokens;
  std::vector<std::uint32_t>* bytes = nullptr;

  void add(std::int32_t token, std::size_t length) const {
    tokens.push_back(token);
    if (bytes != nullptr) {
      bytes->push_back(static_cast<std::uint32_t>(length));
    }
  }
};

/// What one thread encodes pieces with: memory that is used again and again, and words it has met.
class ModelWorker {
 public:
  virtual ~ModelWorker() = default;
  ModelWorker() = default;
  ModelWorker(const ModelWorker&) = delete;
  ModelWorker& operator=(const ModelWorker&) = delete;

  /// Appends the ids of `piece`, valid UTF-8 that is not empty. Their bytes add up to at most piece.size();
  /// what is missing stands for characters that have no token and were left out.
  virtual void encode(std::string_view piece, const Ids& out) = 0;
  /// Told of a piece that comes soon, so that memory can be fetched by then.
  virtual void expect(std::string_view /*piece*/) {}
};

class Model {
 public:
  virtual ~Model() = default;
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] virtual std::unique_ptr<ModelWorker> worker() const = 0;
};

}  // namespace expedite::text
