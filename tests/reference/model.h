// A whole language model, dense or with experts, in double precision: slow, written for reading, and
// independent of the library's kernels. Fast implementations are held against it, and it against Hugging
// Face's own numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "expedite/architecture/model_config.h"
#include "tests/reference/matrix.h"
#include "tests/reference/parameters.h"

namespace expedite::reference {

/// Which gradients to work out; each costs one backward pass. The losses themselves always are.
struct Options {
  bool gradients = true;                // of loss
  bool aux_gradients = true;            // of aux_loss
  bool z_gradients = false;             // of z_loss
  bool sequence_aux_gradients = false;  // of sequence_aux_loss

  [[nodiscard]] static Options forward_only() { return {false, false, false, false}; }
};

/// T is the number of tokens of all sequences, which lie one behind the other. See loss.h for the losses.
struct Result {
  std::vector<Matrix> hidden_states;                            // [L] of [T, H]: each layer's output
  Matrix final_hidden_state;                                    // [T, H], after the final norm
  Matrix logits;                                                // [T, V]
  std::vector<Matrix> router_logits;                            // [L] of [T, E]; empty for a dense layer
  std::vector<std::vector<std::vector<std::int64_t>>> experts;  // [L][T][k]; empty for a dense layer
  std::vector<std::vector<std::int64_t>> tokens_per_expert;     // [L][E]; empty for a dense layer
  double loss = 0.0;
  double aux_loss = 0.0;  // before its coefficient, as are the others
  double z_loss = 0.0;
  double sequence_aux_loss = 0.0;
  Gradients grads;      // d loss / d parameter, without the other losses
  Gradients grads_aux;  // d aux_loss / d parameter
  Gradients grads_z;
  Gradients grads_sequence_aux;
};

/// Sequences may have different lengths, also 0 and 1. A tied head's gradient is part of the embedding's.
[[nodiscard]] Result run(const ModelConfig& config, const Parameters& parameters,
                         const std::vector<std::vector<int>>& sequences, const Options& options = {});

}  // namespace expedite::reference
