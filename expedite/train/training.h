// A model in training: its weights and the steps on them, without the files that a run keeps.
#pragma once

#include <memory>
#include <optional>

#include "expedite/comm/process_grid.h"
#include "expedite/model/engine.h"
#include "expedite/train/config.h"
#include "expedite/train/sampler.h"
#include "expedite/train/text_corpus.h"

namespace expedite::train {

/// A run's text as tokens.
struct TrainingText {
  /// Throws Error as read_corpus and make_tokenizer do.
  explicit TrainingText(const TrainConfig& config);

  std::unique_ptr<Tokenizer> tokenizer;
  Corpus corpus;
  TokenStream train;
  TokenStream validation;
};

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

class Training {
 public:
  /// Collective over the grid's world. The weights have no values yet. All arguments must outlive it.
  Training(const TrainConfig& config, const TrainingText& text, const comm::ProcessGrid& grid);

  /// The weights that a run starts with: random, or those of `model.path`.
  void initialize();

  /// Step `step`, from 0, of the run. `stop` is this rank's wish; any rank's is in the result of all.
  /// Collective. Throws Error when it fails here; the others then wait, so the caller must end the job.
  StepReport step(std::int64_t step, bool stop);

  /// Bits per byte on at most `limit` validation sequences; 0: on the whole text. Nothing without one.
  /// Collective.
  [[nodiscard]] std::optional<double> evaluate(std::int64_t limit);

  /// Prints why on every rank, and ends the job.
  [[noreturn]] void fail_job(std::string_view reason) { engine_.fail_job(reason); }

  [[nodiscard]] const model::ModelConfig& model() const { return model_; }
  [[nodiscard]] model::Parameters& parameters() { return parameters_; }
  [[nodiscard]] const model::Parameters& parameters() const { return parameters_; }
  [[nodiscard]] const schedule::EpPlan& ep_plan() const { return ep_plan_; }
  [[nodiscard]] int threads() const { return threads_; }
  [[nodiscard]] std::int64_t peak_bytes() const { return pool_.peak_bytes(); }
  [[nodiscard]] double epochs() const { return sampler_.epochs_after(config_.train.steps - 1); }
  [[nodiscard]] const tracing::TraceRecorder& trace() { return engine_.trace(); }

 private:
  [[nodiscard]] model::StepOptions step_options(std::int64_t step) const;

  const TrainConfig& config_;
  const TrainingText& text_;
  const comm::ProcessGrid& grid_;
  MemoryPool pool_;
  TrainSampler sampler_;
  model::ModelConfig model_;
  model::Parameters parameters_;
  int threads_;
  schedule::EpPlan ep_plan_;
  model::Engine engine_;
};

}  // namespace expedite::train
