// How an MoE layer hides and shrinks its communication: dispatcher, chunks, and their pipeline.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "expedite/schedule/dispatcher.h"

namespace expedite::schedule {

/// The order in which the chunks of a layer's tokens go through dispatch, experts and combine.
enum class ChunkPipeline : std::uint8_t {
  continuous,  // up to `window` chunks are under way; the next is dispatched as soon as one leaves its
               // experts
  pairwise,    // two by two, each hiding the other's communication, as MindSpeed's Chunk MoE does
  none,        // one after the other, hiding nothing
};
[[nodiscard]] std::string_view name_of(ChunkPipeline pipeline);

/// What experts compute again in backward instead of keeping it: nothing; the activation, which is cheap; or
/// gate/up too, which is a product.
enum class MoeRecompute : std::uint8_t { none, activation, full };
[[nodiscard]] std::string_view name_of(MoeRecompute recompute);

/// How the tokens of a rank are cut into chunks. Every rank of a group has the same number of chunks, empty
/// ones where it has few tokens.
struct Chunking {
  int chunks = 1;               // N
  std::int64_t chunk_size = 0;  // tokens; 0: ceil(T / N)
  bool tapered = false;  // the first and last chunk half as large: theirs is the communication left exposed

  bool operator==(const Chunking&) const = default;
};
/// N + 1 bounds: chunk c is tokens [bounds[c], bounds[c + 1]).
[[nodiscard]] std::vector<std::int64_t> chunk_bounds(std::int64_t tokens, const Chunking& chunking);

struct EpPlan {
  Dispatcher dispatcher = Dispatcher::alltoall;
  Chunking chunking;
  ChunkPipeline pipeline = ChunkPipeline::continuous;
  int window = 2;
  MoeRecompute recompute = MoeRecompute::none;

  /// The first and last chunk half as large where that shortens what stays exposed and costs no memory that
  /// the plan means to save.
  void taper();
  /// How many chunks a layer has unpacked before the work that covers the last one's way back.
  [[nodiscard]] int unpacked_early() const;

  bool operator==(const EpPlan&) const = default;
};

}  // namespace expedite::schedule
