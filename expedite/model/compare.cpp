#include "expedite/model/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "expedite/base/log.h"
#include "expedite/comm/collectives.h"
#include "expedite/kernels/cross_entropy.h"
#include "expedite/model/checkpoint_io.h"
#include "expedite/model/engine.h"

namespace expedite::model {
namespace {

/// The sequences of the file. Token (row, column) of the file is a token here unless it is padding.
struct Sequences {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::int32_t> tokens;  // [rows, columns]
  std::vector<char> real;            // [rows, columns]; 0: padding

  explicit Sequences(const hf::SafetensorsFile& file, std::int64_t vocab_size) {
    const hf::StoredTensor& ids = file.tensor("input_ids");
    require(ids.shape.size() == 2, "{}: 'input_ids' has {} dimensions; [batch, sequence] is needed",
            file.path().string(), ids.shape.size());
    rows = ids.shape[0];
    columns = ids.shape[1];
    for (const std::int64_t id : file.read_i64("input_ids")) {
      require(id >= 0 && id < vocab_size, "{}: 'input_ids' holds {}, but the model's vocabulary is {}",
              file.path().string(), id, vocab_size);
      tokens.push_back(static_cast<std::int32_t>(id));
    }
    real.assign(tokens.size(), 1);
    if (file.contains("attention_mask")) {
      const std::vector<std::int64_t> mask = file.read_i64("attention_mask");
      require(mask.size() == real.size(), "{}: 'attention_mask' and 'input_ids' differ in shape",
              file.path().string());
      std::transform(mask.begin(), mask.end(), real.begin(), [](std::int64_t m) { return m != 0 ? 1 : 0; });
    }
  }

  /// Rows [first, last) as a micro-batch; `places` gets each token's row * columns + column.
  [[nodiscard]] MicroBatch micro_batch(std::int64_t first, std::int64_t last,
                                       std::vector<std::int64_t>& places) const {
    MicroBatch batch;
    for (std::int64_t row = first; row < last; ++row) {
      std::vector<std::int32_t> sequence;
      for (std::int64_t place = row * columns; place < (row + 1) * columns; ++place) {
        if (real[static_cast<std::size_t>(place)] != 0) {
          sequence.push_back(tokens[static_cast<std::size_t>(place)]);
          places.push_back(place);
        }
      }
      std::vector<std::int32_t> targets(sequence.begin() + (sequence.empty() ? 0 : 1), sequence.end());
      targets.resize(sequence.size(), kernels::kIgnoredTarget);
      batch.append(sequence, targets);
    }
    return batch;
  }
};

/// Values of one token each, and which token it is.
using Values = std::map<std::string, std::vector<float>>;

class Comparison {
 public:
  Comparison(const CompareOptions& options, const comm::ProcessGrid& grid)
      : grid_(grid),
        file_(options.expected),
        config_(architecture::read_model_config(options.model_dir / "config.json")),
        parameters_(config_, options.dtype, expert_shard(config_, grid), State::gradients, pool_),
        sequences_(file_, config_.vocab_size),
        engine_(parameters_, grid, pool_, {.threads = options.threads}) {
    if (grid.rank() == 0) {
      std::ranges::for_each(config_.notes, warn_once);
    }
    architecture::require_trainable(config_, (options.model_dir / "config.json").string());
    load_weights(parameters_, hf::SafetensorsFolder(options.model_dir));
    for (const hf::StoredTensor& tensor : file_.tensors()) {
      if (tensor.name != "input_ids" && tensor.name != "attention_mask") {
        pending_.emplace(tensor.name, &tensor);
      }
    }
  }

  std::vector<TensorError> run() {
    const std::int64_t ranks = grid_.size();
    batches_ = {sequences_.micro_batch(sequences_.rows * grid_.rank() / ranks,
                                       sequences_.rows * (grid_.rank() + 1) / ranks, places_)};
    engine_.set_observer([this](const std::string& name, int, ConstTensorView value) { keep(name, value); });
    const StepResult result = step(1.0, 0.0);
    engine_.set_observer(nullptr);
    compare_values();
    compare_scalar("loss", result.loss);
    compare_scalar("aux_loss", result.aux_loss);
    compare_gradients("grad.");
    if (std::any_of(pending_.begin(), pending_.end(),
                    [](const auto& entry) { return entry.first.starts_with("grad_aux."); })) {
      parameters_.zero_gradients();
      static_cast<void>(step(0.0, 1.0));
      compare_gradients("grad_aux.");
    }
    require(pending_.empty(),
            "{}: '{}' is not a tensor of this model (see expedite compare --help for the names)",
            file_.path().string(), pending_.empty() ? "" : pending_.begin()->first);
    return std::move(errors_);
  }

 private:
  StepResult step(double loss_scale, double aux_coefficient) {
    std::int64_t targets = 0;
    for (const std::int32_t target : batches_[0].targets) {
      targets += target != kernels::kIgnoredTarget ? 1 : 0;
    }
    const std::int64_t tokens = comm::all_reduce(grid_.world(), batches_[0].size(), comm::ReduceOp::sum);
    StepOptions options;
    options.balance = {.aux_loss = AuxLoss::batch, .aux_coefficient = aux_coefficient};
    options.loss_scale = loss_scale;
    return engine_.run(
        {.update = false, .batch_aux_loss = true, .tokens = batches_[0].size()},
        {batches_, tokens, comm::all_reduce(grid_.world(), targets, comm::ReduceOp::sum), {tokens}}, options);
  }

  void keep(const std::string& name, ConstTensorView value) {
    std::vector<float>& kept = kept_[name];
    for (std::int64_t row = 0; row < value.rows(); ++row) {
      for (std::int64_t column = 0; column < value.columns(); ++column) {
        kept.push_back(value.dtype() == DType::f32 ? value.row<float>(row)[column]
                                                   : static_cast<float>(value.row<bf16>(row)[column]));
      }
    }
  }

  /// Takes a tensor off the list; nothing if the file does not hold it.
  std::optional<hf::StoredTensor> take(const std::string& name) {
    const auto entry = pending_.find(name);
    if (entry == pending_.end()) {
      return std::nullopt;
    }
    const hf::StoredTensor tensor = *entry->second;
    pending_.erase(entry);
    return tensor;
  }

  void require_elements(const hf::StoredTensor& tensor, std::int64_t ours) const {
    require(tensor.elements() == ours, "{}: '{}' has shape [{}], {} elements; the model has {}",
            file_.path().string(), tensor.name, fmt::join(tensor.shape, ", "), tensor.elements(), ours);
  }

  void add_error(const hf::StoredTensor& tensor, std::span<const double> ours,
                 std::span<const double> expected) {
    TensorError error = {.name = tensor.name, .shape = tensor.shape};
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double difference = std::abs(ours[i] - expected[i]);
      // Not std::max: a NaN must stay.
      error.max_error = difference <= error.max_error ? error.max_error : difference;
      error.max_expected = std::max(error.max_expected, std::abs(expected[i]));
    }
    errors_.push_back(std::move(error));
  }

  void compare_values() {
    for (const auto& [name, values] : kept_) {
      const std::optional<hf::StoredTensor> tensor = take(name);
      if (!tensor) {
        continue;
      }
      const auto all_values = comm::gather_bytes(grid_.world(), std::as_bytes(std::span(values)), 0);
      const auto all_places = comm::gather_bytes(grid_.world(), std::as_bytes(std::span(places_)), 0);
      const std::int64_t width = width_of(name);
      require_elements(*tensor, sequences_.rows * sequences_.columns * width);
      if (grid_.rank() != 0) {
        continue;
      }
      std::vector<double> expected = file_.read_f64(name);
      std::vector<double> ours = expected;  // padding is compared nowhere
      for (std::size_t rank = 0; rank < all_values.size(); ++rank) {
        for (std::size_t i = 0; i < all_places[rank].size() / sizeof(std::int64_t); ++i) {
          std::int64_t place = 0;
          std::memcpy(&place, all_places[rank].data() + i * sizeof(place), sizeof(place));
          for (std::int64_t column = 0; column < width; ++column) {
            float value = 0.0F;
            std::memcpy(
                &value,
                all_values[rank].data() +
                    (i * static_cast<std::size_t>(width) + static_cast<std::size_t>(column)) * sizeof(value),
                sizeof(value));
            ours[static_cast<std::size_t>(place * width + column)] = static_cast<double>(value);
          }
        }
      }
      add_error(*tensor, ours, expected);
    }
  }

  [[nodiscard]] std::int64_t width_of(const std::string& name) const {
    return name == "logits"                     ? config_.vocab_size
           : name.starts_with("router_logits.") ? config_.experts
                                                : config_.hidden_size;
  }

  void compare_scalar(const std::string& name, double ours) {
    if (const std::optional<hf::StoredTensor> tensor = take(name)) {
      require_elements(*tensor, 1);
      if (grid_.rank() == 0) {
        add_error(*tensor, std::span(&ours, 1), file_.read_f64(name));
      }
    }
  }

  void compare_gradients(const std::string& prefix) {
    for (const CheckpointTensor& mine : parameters_.tensors()) {
      const std::optional<hf::StoredTensor> tensor =
          mine.bias == nullptr ? take(prefix + mine.name) : std::nullopt;
      if (!tensor) {
        continue;
      }
      require_elements(*tensor, mine.shape.elements());
      const std::vector<std::byte> bytes = gather_tensor(mine, StateTensor::gradient, DType::f32, grid_);
      if (grid_.rank() == 0) {
        std::vector<float> values(static_cast<std::size_t>(mine.shape.elements()));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        add_error(*tensor, std::vector<double>(values.begin(), values.end()), file_.read_f64(tensor->name));
      }
    }
  }

  const comm::ProcessGrid& grid_;
  hf::SafetensorsFile file_;
  ModelConfig config_;
  MemoryPool pool_;
  Parameters parameters_;
  Sequences sequences_;
  Engine engine_;
  std::map<std::string, const hf::StoredTensor*> pending_;  // tensors of the file still to be compared
  std::vector<MicroBatch> batches_;
  std::vector<std::int64_t> places_;
  Values kept_;
  std::vector<TensorError> errors_;
};

}  // namespace

double TensorError::measure() const {
  if (max_expected == 0.0) {
    return max_error;
  }
  return max_error / std::min(1.0, max_expected);
}

std::vector<TensorError> compare(const CompareOptions& options, const comm::ProcessGrid& grid) {
  return Comparison(options, grid).run();
}

}  // namespace expedite::model
