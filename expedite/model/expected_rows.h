// How many rows a rank sends, receives and computes, expected from how often tokens choose each expert.
#pragma once

#include <cstdint>
#include <vector>

#include "expedite/model/step_case.h"

namespace expedite::model {

/// The rows that an expert-parallel group's ranks send, receive and compute, where tokens choose experts as
/// the step's loads say, and ranks have as many tokens each: expected values.
class ExpectedRows {
 public:
  ExpectedRows(const StepCase& step, std::int64_t layer, int rank);

  /// Rows of an expert of this rank, for `tokens` tokens of each rank, padded as RowBlocks pads them.
  [[nodiscard]] std::vector<double> of_experts(double tokens) const;
  [[nodiscard]] double sent(double tokens) const { return tokens * sent_; }
  [[nodiscard]] double arrived(double tokens) const { return tokens * arrived_; }
  /// Own rows that neighbours read, rows and sums that this rank reads from neighbours, and rows that it sums
  /// for them: of the hierarchical dispatchers.
  [[nodiscard]] double shared(double tokens) const { return tokens * shared_; }
  [[nodiscard]] double summed(double tokens) const { return tokens * summed_; }
  /// Rows that are summed for one row that goes back, and for one token.
  [[nodiscard]] double summands_back() const { return summands_back_; }
  [[nodiscard]] double summands_token() const { return summands_token_; }

 private:
  std::vector<double> copies_;  // of a token, by local expert
  int ranks_ = 1;
  double sent_ = 0.0;
  double arrived_ = 0.0;
  double shared_ = 0.0;
  double summed_ = 0.0;
  double summands_back_ = 1.0;
  double summands_token_ = 1.0;
};

}  // namespace expedite::model
