// A model in training: its weights and the steps on them, without the files that a run keeps.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "expedite/comm/process_grid.h"
#include "expedite/hf/safetensors_folder.h"
#include "expedite/model/engine.h"
#include "expedite/train/config.h"
#include "expedite/train/sampler.h"
#include "expedite/train/text_corpus.h"
#include "expedite/train/tokenizer_copy.h"

namespace expedite::train {

/// A run's text as tokens.
struct TrainingText {
  /// Throws Error as read_corpus, tokenizer_choice and make_tokenizer do, when the model has no room for the
  /// tokenizer's ids, and when the tokenizer loses more of the text than `data.max_lost_fraction`. Encoded
  /// text is kept in output_dir/token-cache. Collective.
  TrainingText(const TrainConfig& config, const comm::ProcessGrid& grid);

  /// What is lost of training and validation text together.
  [[nodiscard]] CorpusLoss loss() const;
  /// Whether so much of the validation text is lost that bits per byte of what is left are no measure beside
  /// those of the whole text.
  [[nodiscard]] bool loses_validation() const;

  std::string tokenizer_name;  // for make_tokenizer
  std::unique_ptr<text::Tokenizer> tokenizer;
  TokenizerCopy tokenizer_copy;  // for checkpoints; on rank 0
  Corpus corpus;
  TokenStream train;
  TokenStream validation;
};

/// Which files weights came from, and how much that is, in words.
[[nodiscard]] std::string describe_weights(const hf::SafetensorsFolder& folder,
                                           model::Parameters& parameters);

[[nodiscard]] model::BalanceOptions balance_options(const TrainConfig::Moe& moe);

/// What one optimizer step did.
struct StepReport {
  model::StepResult result;            // over all ranks, the same on all
  tracing::StepStatistics statistics;  // of this rank
  std::int64_t tokens = 0;             // of all ranks
  double seconds = 0.0;                // on this rank, choosing the sequences included
  double learning_rate = 0.0;

  /// Fraction of the step in which this rank waited for communication.
  [[nodiscard]] double exposed_communication() const;
};

/// A model's loss on text that it was not trained on.
struct Validation {
  double loss = 0.0;  // mean cross-entropy of a token, nats
  double bits_per_byte = 0.0;
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;
};

class Training {
 public:
  /// Collective over the grid's world. The weights have no values yet. All arguments must outlive it. With
  /// State::weights it can evaluate and no more.
  Training(const TrainConfig& config, const TrainingText& text, const comm::ProcessGrid& grid,
           model::State state = model::State::training);

  /// The weights that a run starts with: random, or those of `model.path`. Returns where they come from, in
  /// words.
  std::string initialize();

  /// Step `step`, from 0, of the run. `stop` is this rank's wish; any rank's is in the result of all.
  /// Collective. Throws Error when it fails here; the others then wait, so the caller must end the job.
  StepReport step(std::int64_t step, bool stop);

  /// On at most `limit` validation sequences; 0: on the whole text. Nothing without one. Collective.
  [[nodiscard]] std::optional<Validation> evaluate(std::int64_t limit);

  /// Prints why on every rank, and ends the job.
  [[noreturn]] void fail_job(std::string_view reason) { engine_.fail_job(reason); }

  [[nodiscard]] const ModelConfig& model() const { return model_; }
  [[nodiscard]] model::Parameters& parameters() { return parameters_; }
  [[nodiscard]] const model::Parameters& parameters() const { return parameters_; }
  [[nodiscard]] const schedule::EpPlan& ep_plan() const { return ep_plan_; }
  [[nodiscard]] int threads() const { return threads_; }
  [[nodiscard]] std::int64_t peak_bytes() const { return pool_.peak_bytes(); }
  [[nodiscard]] double epochs() const { return sampler_->epochs_after(config_.train.steps - 1); }
  [[nodiscard]] const tracing::TraceRecorder& trace() { return engine_.trace(); }

 private:
  [[nodiscard]] model::StepOptions step_options(std::int64_t step) const;

  const TrainConfig& config_;
  const TrainingText& text_;
  const comm::ProcessGrid& grid_;
  MemoryPool pool_;
  std::optional<TrainSampler> sampler_;  // to train
  ModelConfig model_;
  model::Parameters parameters_;
  int threads_;
  schedule::EpPlan ep_plan_;
  model::Engine engine_;
};

}  // namespace expedite::train
