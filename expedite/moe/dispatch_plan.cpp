#include "expedite/moe/dispatch_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "expedite/base/error.h"
#include "expedite/moe/chunk_planner.h"

namespace expedite::moe {

std::int64_t ChunkPlan::arrived_rows() const {
  return std::reduce(recv_rows.begin(), recv_rows.end(), std::int64_t{0});
}

DispatchPlan::DispatchPlan(const ExpertLayout& layout, ConstTensorView choices,
                           const schedule::Chunking& chunking)
    : layout_(&layout), chunking_(chunking), top_k_(choices.columns()) {
  constexpr std::int64_t kMostExperts = std::int64_t{1} << 16;
  require(layout.experts() <= kMostExperts, "{} experts of a layer; the limit is {}", layout.experts(),
          kMostExperts);
  require(
      choices.elements() <= std::numeric_limits<std::int32_t>::max(),
      "{} rows dispatched by one rank in one micro-batch; the limit is 2^31 - 1: use a smaller micro-batch",
      choices.elements());
  const auto chosen = choices.span<std::int32_t>();
  choices_.assign(chosen.begin(), chosen.end());
  counts_.assign(static_cast<std::size_t>(layout.experts()), 0);
  for (const Choice expert : choices_) {
    ++counts_[expert];
  }
  const std::vector<std::int64_t> bounds = schedule::chunk_bounds(choices.rows(), chunking);
  chunks_.resize(static_cast<std::size_t>(chunking.chunks));
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    chunks_[c].first_token = bounds[c];
    chunks_[c].tokens = bounds[c + 1] - bounds[c];
    plan_sends(chunks_[c]);
  }
}

/// For every other node the rows in the order of its relays, and within one in that of tokens and choices;
/// `token_sums` gets where the answers will be.
void DispatchPlan::plan_sends(ChunkPlan& chunk) const {
  const ExpertLayout& layout = *layout_;
  const auto ranks = static_cast<std::size_t>(layout.ranks());
  const int own_node = layout.node(layout.rank());
  chunk.send_rows.assign(ranks, 0);
  chunk.token_sums.assign(static_cast<std::size_t>(chunk.tokens * top_k_), {});
  std::vector<std::int64_t> last_token(static_cast<std::size_t>(layout.nodes()), -1);
  const auto visit_rows = [&](const auto& visit) {  // visit(relay, token of the chunk, choice or -1)
    std::fill(last_token.begin(), last_token.end(), -1);
    for (std::int64_t t = 0; t < chunk.tokens; ++t) {
      for (std::int64_t j = 0; j < top_k_; ++j) {
        const int node = layout.node(
            layout.owner(choices_[static_cast<std::size_t>((chunk.first_token + t) * top_k_ + j)]));
        auto& last = last_token[static_cast<std::size_t>(node)];
        if (node != own_node && (layout.row_per_copy() || last != t)) {
          visit(layout.relay(layout.rank(), node), t, j);
        }
        last = t;
      }
      for (int node = 0; layout.every_node() && node < layout.nodes(); ++node) {
        if (node != own_node && last_token[static_cast<std::size_t>(node)] != t) {
          visit(layout.relay(layout.rank(), node), t, std::int64_t{-1});
        }
      }
    }
  };
  visit_rows(
      [&](int relay, std::int64_t, std::int64_t) { ++chunk.send_rows[static_cast<std::size_t>(relay)]; });
  std::vector<std::int64_t> next(ranks);
  std::exclusive_scan(chunk.send_rows.begin(), chunk.send_rows.end(), next.begin(), std::int64_t{0});
  chunk.send.resize(static_cast<std::size_t>(next.back() + chunk.send_rows.back()));
  visit_rows([&](int relay, std::int64_t t, std::int64_t j) {
    const std::int64_t row = next[static_cast<std::size_t>(relay)]++;
    chunk.send[static_cast<std::size_t>(row)] = {kTokens, static_cast<std::int32_t>(chunk.first_token + t)};
    if (j >= 0) {
      chunk.token_sums[static_cast<std::size_t>(t * top_k_ + j)] = {kReturned,
                                                                    static_cast<std::int32_t>(row)};
    }
  });
}

void DispatchPlan::complete(std::span<const Choices> routing) {
  require(static_cast<int>(routing.size()) == layout_->ranks(), "routing of {} ranks, where there are {}",
          routing.size(), layout_->ranks());
  std::vector<std::vector<std::int64_t>> bounds;
  for (std::size_t rank = 0; rank < routing.size(); ++rank) {
    const Choices& choices = routing[rank];
    require(top_k_ > 0 && choices.size() % static_cast<std::size_t>(top_k_) == 0,
            "rank {} of the expert-parallel group told {} choices, which are not {} for each token", rank,
            choices.size(), top_k_);
    require(std::all_of(choices.begin(), choices.end(),
                        [this](Choice expert) { return expert < layout_->experts(); }),
            "rank {} of the expert-parallel group chose an expert that does not exist; there are {}", rank,
            layout_->experts());
    bounds.push_back(schedule::chunk_bounds(static_cast<std::int64_t>(choices.size()) / top_k_, chunking_));
  }
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    ChunkPlanner(*layout_, routing, bounds, c, top_k_).complete(chunks_[c]);
  }
}

kernels::RowBlocks DispatchPlan::layer_blocks(int first, int count) const {
  kernels::RowBlocks blocks;
  for (std::size_t e = 0; e < static_cast<std::size_t>(layout_->local_experts()); ++e) {
    std::int64_t begin = blocks.total;
    std::int64_t rows = 0;
    for (int c = 0; c < chunks(); ++c) {
      const std::int64_t chunk_rows = chunk(c).blocks.rows[e];
      begin += c < first ? chunk_rows : 0;
      rows += c >= first && c < first + count ? chunk_rows : 0;
      blocks.total += chunk_rows;
    }
    blocks.begin.push_back(begin);
    blocks.rows.push_back(rows);
  }
  return blocks;
}

}  // namespace expedite::moe
