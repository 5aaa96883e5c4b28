#include "bench/layer.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>

#include "bench/expert_products.h"
#include "bench/exposed_bound.h"
#include "bench/layer_report.h"
#include "bench/routing_count.h"
#include "bench/yardstick.h"
#include "bench/zipf_tokens.h"
#include "expedite/base/error.h"
#include "expedite/comm/collectives.h"
#include "expedite/comm/link_probe.h"
#include "expedite/kernels/product.h"
#include "expedite/model/engine.h"
#include "expedite/model/moe_layer.h"
#include "expedite/model/quick_cluster.h"
#include "expedite/runtime/write_trace.h"

namespace expedite::bench {
namespace {

constexpr std::uint64_t kSeed = 1;

nlohmann::json hugging_face_config(const LayerBenchOptions& options) {
  return {{"model_type", "qwen3_moe"},
          {"vocab_size", 2},
          {"hidden_size", options.hidden},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 1},
          {"num_key_value_heads", 1},
          {"head_dim", 2},
          {"intermediate_size", options.ffn},
          {"moe_intermediate_size", options.ffn},
          {"num_experts", options.experts},
          {"num_experts_per_tok", options.topk},
          {"norm_topk_prob", true},
          {"max_position_embeddings", std::max<std::int64_t>(options.tokens, 1)}};
}

/// The link that bounds the exchanges, and what it carries at best.
struct Wire {
  comm::LinkLevel level = comm::LinkLevel::intra_node;
  double bytes_per_s = 0.0;  // of one rank while all are at work; 0: there is no link
};

Wire measure_wire(const comm::ProcessGrid& grid) {
  std::vector<int> node_of;
  for (int rank = 0; rank < grid.size(); ++rank) {
    node_of.push_back(grid.node_of(rank));
  }
  Wire wire{.level = grid.nodes() > 1 ? comm::LinkLevel::inter_node : comm::LinkLevel::intra_node};
  if (const auto rates = comm::probe_link(grid.world(), node_of, wire.level)) {
    for (const comm::SizedBandwidth& point : rates->by_size) {
      wire.bytes_per_s = std::max(wire.bytes_per_s, point.bytes_per_s);
    }
  }
  return wire;
}

/// One MoE layer with its input, the same for all contenders.
class Layer {
 public:
  Layer(const LayerBenchOptions& options, const comm::ProcessGrid& grid)
      : options_(options),
        grid_(grid),
        config_(architecture::parse_model_config(hugging_face_config(options), "bench layer")),
        parameters_(config_, options.dtype, model::expert_shard(config_, grid), model::State::gradients,
                    pool_) {
    parameters_.initialize(kSeed);
    model::Parameter& router = *parameters_.layer(0).moe.router;
    for (std::int64_t expert = 0; expert < options.experts; ++expert) {  // see fill_zipf_tokens
      float* const row = router.weight.row<float>(expert);
      std::fill(row, row + options.hidden, 0.0F);
      row[expert] = 1.0F;
    }
    input_ = rows();
    output_ = rows();
    grad_output_ = rows();
    grad_input_ = rows();
    fill_zipf_tokens(options.experts, options.zipf, kSeed, grid.rank(), input_);
    fill_zipf_tokens(0, 0.0, kSeed + 1, grid.rank(), grad_output_);
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(options.tokens), 0);
    batches_.emplace_back().append(ids, ids);
  }

  [[nodiscard]] std::unique_ptr<model::Engine> engine(const schedule::EpPlan& plan) {
    return std::make_unique<model::Engine>(parameters_, grid_, pool_,
                                           model::EngineOptions{.threads = options_.threads,
                                                                .ep_plan = plan,
                                                                .layer_builder = options_.builder,
                                                                .traced_steps = 1});
  }

  void run(model::Engine& engine) {
    const std::int64_t total = options_.tokens * grid_.size();
    engine.run_moe_layer({.training = options_.training, .update = false, .tokens = options_.tokens},
                         {batches_, total, total, {total}}, {}, {input_, output_, grad_output_, grad_input_});
  }

  /// What the layer's router chooses, on all ranks.
  [[nodiscard]] RoutedTokens routed_tokens() {
    Arena size;
    static_cast<void>(model::RouterActivations(size, config_, options_.tokens, options_.dtype));
    Buffer buffer = pool_.allocate(size.used(), MemoryCategory::workspace);
    Arena arena(buffer);
    model::RouterActivations routed(arena, config_, options_.tokens, options_.dtype);
    model::router_forward(config_, parameters_.layer(0), input_, routed, pool_);

    RoutedTokens tokens{.topk = options_.topk};
    const std::vector<std::int64_t>& first_expert = parameters_.shard().first_expert;
    for (int rank = 0; rank < grid_.size(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      tokens.node_of.push_back(grid_.node_of(rank));
      tokens.owner_of.resize(static_cast<std::size_t>(first_expert[r + 1]), rank);
    }
    const auto mine = routed.experts.span<std::int32_t>();
    std::vector<std::int32_t> all(mine.size() * tokens.node_of.size());
    comm::all_gather_bytes(grid_.world(), std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
    for (auto begin = all.cbegin(); tokens.chosen.size() < tokens.node_of.size();
         begin += static_cast<std::ptrdiff_t>(mine.size())) {
      tokens.chosen.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(mine.size()));
    }
    return tokens;
  }
  /// Of this rank's experts.
  [[nodiscard]] ExpertProducts products(const RoutedTokens& tokens) const {
    const std::vector<std::int64_t> counts = tokens.expert_counts();
    const model::ExpertShard& shard = parameters_.shard();
    return {{options_.hidden, options_.ffn, options_.dtype},
            std::span(counts).subspan(static_cast<std::size_t>(shard.begin()),
                                      static_cast<std::size_t>(shard.local())),
            options_.training};
  }

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] MemoryPool& pool() { return pool_; }

 private:
  TensorView rows() {
    const Shape shape{options_.tokens, options_.hidden};
    const Buffer& buffer = buffers_.emplace_back(
        pool_.allocate(shape.elements() * size_of(options_.dtype), MemoryCategory::workspace));
    return buffer.view(options_.dtype, shape);
  }

  const LayerBenchOptions& options_;
  const comm::ProcessGrid& grid_;
  MemoryPool pool_;
  ModelConfig config_;
  model::Parameters parameters_;
  std::vector<Buffer> buffers_;
  TensorView input_;
  TensorView output_;
  TensorView grad_output_;
  TensorView grad_input_;
  std::vector<model::MicroBatch> batches_;
};

/// One way to run the layer, with what is known of it so far.
class Contender {
 public:
  Contender(Layer& layer, const comm::ProcessGrid& grid, const schedule::EpPlan& plan)
      : layer_(layer), grid_(grid), engine_(layer.engine(plan)), result_{.plan = plan} {}

  void warm_up() { layer_.run(*engine_); }

  void measure(double matmul_floor_s, const Wire& wire) {
    layer_.pool().reset_peaks();
    comm::barrier(grid_.world());
    const double begin = seconds();
    layer_.run(*engine_);
    result_.seconds.push_back(slowest(seconds() - begin));
    result_.matmul_floor_s.push_back(matmul_floor_s);
    const tracing::StepStatistics statistics = engine_->trace().statistics();
    const auto wall = static_cast<double>(std::max<std::int64_t>(statistics.wall, 1));
    result_.exposed_fraction.push_back(slowest(static_cast<double>(statistics.exposed_communication) / wall));
    std::vector<tracing::TraceEvent> events = engine_->trace().events();
    const LayerTimes times = layer_times(events, result_.plan.chunking.chunks, wire.level, wire.bytes_per_s);
    result_.exposed_bound.push_back(slowest(exposed_bound_s(result_.plan, times) * 1e9 / wall));
    count(statistics, events);
    traces_.push_back(std::move(events));
  }

  /// Of the round of median time, into `folder`. Collective.
  void write_trace(const std::filesystem::path& folder) const {
    runtime::write_chrome_trace(folder / (name_of(result_.plan) + ".json"), grid_.world(),
                                traces_[median_round(result_)]);
  }

  [[nodiscard]] LayerResult result(const Wire& wire) const {
    LayerResult result = result_;
    if (wire.bytes_per_s > 0.0) {
      result.wire_floor_s =
          (wire.level == comm::LinkLevel::inter_node ? busiest_inter_ : busiest_intra_) / wire.bytes_per_s;
    }
    return result;
  }

 private:
  [[nodiscard]] double slowest(double value) const {
    return comm::all_reduce(grid_.world(), value, comm::ReduceOp::max);
  }

  void count(const tracing::StepStatistics& statistics, std::span<const tracing::TraceEvent> events) {
    result_.peak_expert_activation_bytes = comm::all_reduce(
        grid_.world(), layer_.pool().peak_bytes(MemoryCategory::expert_activations), comm::ReduceOp::max);
    result_.metadata_exchanges = std::ranges::count(events, schedule::Op::metadata, &tracing::TraceEvent::op);
    // A node's ranks share its link, so a node is as busy as its ranks on average.
    std::vector<double> inter(static_cast<std::size_t>(grid_.nodes()), 0.0);
    std::vector<double> intra(inter.size(), 0.0);
    inter[static_cast<std::size_t>(grid_.node())] =
        static_cast<double>(statistics.rows.inter_node) / grid_.local_size();
    intra[static_cast<std::size_t>(grid_.node())] =
        static_cast<double>(statistics.rows.intra_node) / grid_.local_size();
    comm::all_reduce(grid_.world(), std::span(inter), comm::ReduceOp::sum);
    comm::all_reduce(grid_.world(), std::span(intra), comm::ReduceOp::sum);
    busiest_inter_ = *std::ranges::max_element(inter);
    busiest_intra_ = *std::ranges::max_element(intra);
    result_.bytes_inter_node =
        comm::all_reduce(grid_.world(), statistics.rows.inter_node, comm::ReduceOp::sum);
    result_.bytes_intra_node =
        comm::all_reduce(grid_.world(), statistics.rows.intra_node, comm::ReduceOp::sum);
  }

  Layer& layer_;
  const comm::ProcessGrid& grid_;
  std::unique_ptr<model::Engine> engine_;
  LayerResult result_;
  std::vector<std::vector<tracing::TraceEvent>> traces_;  // by round
  double busiest_inter_ = 0.0;                            // bytes of a rank
  double busiest_intra_ = 0.0;
};

/// Every round measures the products and each contender. Returns the link as measured before or after them,
/// whichever was faster.
Wire take_turns(const LayerBenchOptions& options, const comm::ProcessGrid& grid, ExpertProducts products,
                std::span<const std::unique_ptr<Contender>> contenders) {
  const auto sample_products = [&] {
    comm::barrier(grid.world());
    return comm::all_reduce(grid.world(), products.sample(), comm::ReduceOp::max);
  };
  for (const auto& contender : contenders) {
    contender->warm_up();
  }
  static_cast<void>(sample_products());
  const Wire before = measure_wire(grid);
  for (int round = 0; round < options.rounds; ++round) {
    const double floor = sample_products();
    for (const auto& contender : contenders) {
      contender->measure(floor, before);
    }
  }
  const Wire after = measure_wire(grid);
  return after.bytes_per_s > before.bytes_per_s ? after : before;
}

void print(const LayerBenchOptions& options, const comm::ProcessGrid& grid, const Wire& wire,
           const std::vector<LayerResult>& results) {
  fmt::print("T={} H={} F={} E={} k={} {} zipf={}, {}, {} nodes, {} ranks of {} threads, {} rounds\n",
             options.tokens, options.hidden, options.ffn, options.experts, options.topk,
             name_of(options.dtype), options.zipf, options.training ? "forward and backward" : "forward",
             grid.nodes(), grid.size(), options.threads, options.rounds);
  if (wire.bytes_per_s > 0.0) {
    fmt::print("wire: {} links, {:.4f} GB/s per rank and direction\n", comm::name_of(wire.level),
               wire.bytes_per_s / 1e9);
  }
  fmt::print("{}", layer_table(results));
  fmt::print(
      "floors in ms; floor: the time over the larger of the two; speed: relative to the first line; bound: "
      "what the order of tasks leaves exposed at the least; routed: whether the bytes sent are, to the last "
      "one, those that follow from the routing\n");
}

void write_json(const std::string& path, const std::vector<LayerResult>& results) {
  std::ofstream file(path);
  file << layer_json(results).dump(2) << '\n';
  file.close();
  require(!file.fail(), "{}: cannot write the results; choose another --json path", path);
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  require(!error && std::filesystem::is_directory(path),
          "{}: cannot make a folder for traces ({}); choose another --trace path", path,
          error ? error.message() : "something else has that name");
}

/// The options with what is left to choose chosen, and why, on standard output: the dispatcher for the first
/// number of chunks, the number of chunks for the first of everything else.
LayerBenchOptions with_choices(const LayerBenchOptions& options, const ModelConfig& config,
                               const comm::ProcessGrid& grid) {
  LayerBenchOptions chosen = options;
  if (!options.automatic && !options.automatic_chunks) {
    return chosen;
  }
  cost::Cluster cluster = options.cluster_path.empty() ? model::quick_cluster(grid, options.threads)
                                                       : cost::read_cluster(options.cluster_path);
  const auto say = [&](std::string_view what, const std::string& reason) {
    if (grid.rank() == 0) {
      fmt::print("{} auto is {}\n", what, reason);
    }
  };
  if (options.automatic) {
    const std::int64_t chunks = options.chunks.empty() ? 1 : options.chunks.front();
    const cost::DispatcherChoice choice = cost::choose_dispatcher(
        cluster,
        model::dispatch_case(config, grid.placement(), grid.rank(), options.dtype, options.tokens, chunks));
    chosen.dispatchers.push_back(choice.dispatcher);
    say("dispatcher", choice.reason);
  }
  if (options.automatic_chunks) {
    const cost::ExpertLayer layer =
        model::expert_layer(config, grid.placement(), grid.rank(), options.dtype, options.tokens,
                            {.dispatcher = chosen.dispatchers.front(),
                             .pipeline = options.pipelines.front(),
                             .window = options.windows.front(),
                             .recompute = options.recompute.front()});
    if (options.cluster_path.empty()) {
      model::probe_products(grid, options.threads, options.dtype, cost::products_of(layer), cluster);
    }
    const cost::ChunkChoice choice = cost::choose_chunks(cluster, layer);
    chosen.chunks.push_back(choice.chunks);
    say("chunks", choice.reason);
  }
  return chosen;
}

}  // namespace

std::vector<schedule::EpPlan> contenders(const LayerBenchOptions& options) {
  std::vector<schedule::EpPlan> plans;
  for (const schedule::Dispatcher dispatcher : options.dispatchers) {
    for (const int chunks : options.chunks) {
      for (const schedule::ChunkPipeline pipeline : options.pipelines) {
        for (const int window : options.windows) {
          for (const schedule::MoeRecompute recompute : options.recompute) {
            const bool uses_window = pipeline == schedule::ChunkPipeline::continuous;
            schedule::EpPlan plan{.dispatcher = dispatcher,
                                  .chunking = {.chunks = chunks},
                                  .pipeline = pipeline,
                                  .window = uses_window ? window : options.windows.front(),
                                  .recompute = recompute};
            plan.taper();
            if (std::ranges::find(plans, plan) == plans.end()) {
              plans.push_back(plan);
            }
          }
        }
      }
    }
  }
  return plans;
}

int run_layer_bench(const LayerBenchOptions& options, const comm::ProcessGrid& grid) {
  const kernels::ThreadLimit limit(options.threads);
  const bool traced = !options.trace_folder.empty();
  if (traced && grid.rank() == 0) {
    make_folder(options.trace_folder);
  }
  Layer layer(options, grid);
  const RoutedTokens tokens = layer.routed_tokens();
  std::vector<std::unique_ptr<Contender>> all;
  for (const schedule::EpPlan& plan : contenders(with_choices(options, layer.config(), grid))) {
    all.push_back(std::make_unique<Contender>(layer, grid, plan));
  }
  const Wire wire = take_turns(options, grid, layer.products(tokens), all);

  const RoutingCount routing = count_routing(tokens);
  std::vector<LayerResult> results;
  for (const auto& contender : all) {
    LayerResult& result = results.emplace_back(contender->result(wire));
    result.routing = routing;
    result.row_bytes = options.hidden * size_of(options.dtype);
    result.exchanges = options.training ? 4 : 2;
    if (traced) {
      contender->write_trace(options.trace_folder);
    }
  }
  if (grid.rank() == 0) {
    print(options, grid, wire, results);
    if (!options.json_path.empty()) {
      write_json(options.json_path, results);
    }
  }
  return 0;
}

}  // namespace expedite::bench
