#include "bench/collective_times.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "expedite/base/cores.h"
#include "expedite/base/median.h"
#include "expedite/comm/block_gather.h"
#include "expedite/comm/clock.h"
#include "expedite/comm/collectives.h"
#include "expedite/comm/metadata_gather.h"
#include "expedite/comm/reduce.h"
#include "expedite/comm/request.h"
#include "expedite/comm/row_exchange.h"
#include "expedite/kernels/matmul.h"
#include "expedite/kernels/product.h"
#include "expedite/model/engine.h"
#include "expedite/model/quick_cluster.h"
#include "expedite/runtime/executor.h"

namespace expedite::bench {
namespace {

using schedule::Collective;
using schedule::Op;
using schedule::Stream;
using schedule::Task;
using schedule::TaskId;

/// Of the groups that communicate: so many ranks of each of so many nodes.
struct GroupShape {
  int nodes = 1;
  int ranks_per_node = 1;
};

std::vector<int> divisors(int number) {
  std::vector<int> result;
  for (int i = 1; i <= number; ++i) {
    if (number % i == 0) {
      result.push_back(i);
    }
  }
  return result;
}

/// A product of a size that layers have, and that takes a fraction of a millisecond.
class BusyProduct {
 public:
  BusyProduct() {
    for (const auto& [rows, columns] : {std::pair(kRows, kWidth), {kWidth, kWidth}, {kRows, kWidth}}) {
      buffers_.push_back(pool_.allocate(rows * columns * 2, MemoryCategory::workspace));
      std::memset(buffers_.back().data(), 0x3C, static_cast<std::size_t>(buffers_.back().bytes()));
    }
  }
  void run() const {
    kernels::matmul(buffers_[0].view(DType::bf16, {kRows, kWidth}),
                    buffers_[1].view(DType::bf16, {kWidth, kWidth}),
                    buffers_[2].view(DType::bf16, {kRows, kWidth}), {.transpose_b = true});
  }

 private:
  static constexpr std::int64_t kRows = 128;
  static constexpr std::int64_t kWidth = 256;
  MemoryPool pool_;
  std::vector<Buffer> buffers_;
};

/// The collective that is measured.
struct Exchange {
  Collective collective = Collective::all_to_all;
  std::int64_t bytes = 0;
};

/// A communication that tells when it is done.
class Watched final : public runtime::PendingCommunication {
 public:
  Watched(std::unique_ptr<runtime::PendingCommunication> inner, std::atomic<bool>& done)
      : inner_(std::move(inner)), done_(done) {}
  [[nodiscard]] bool test() override {
    const bool done = inner_->test();
    if (done) {
      done_ = true;
    }
    return done;
  }

 private:
  std::unique_ptr<runtime::PendingCommunication> inner_;
  std::atomic<bool>& done_;
};

/// Tasks of op `experts` are products until the exchange is done, of `attention` a few products, of
/// `optimizer` one, of `statistics` meetings of all ranks, of `dispatch` and `combine` the exchange.
class ProbeRunner final : public runtime::TaskRunner {
 public:
  ProbeRunner(const comm::ProcessGrid& grid, std::int64_t most_bytes, int threads)
      : threads_(threads),
        world_(grid.world().duplicate("world")),
        most_bytes_(static_cast<std::size_t>(most_bytes)),
        src_(kPlaces * most_bytes_, std::byte{0}),
        dst_(src_.size() + 2 * kRow, std::byte{0}) {}

  /// node_of: of each rank of the group.
  void set_exchange(const comm::Communicator& group, std::vector<int> node_of, const Exchange& exchange) {
    group_ = &group;
    node_of_ = std::move(node_of);
    exchange_ = exchange;
  }

  [[nodiscard]] std::int64_t bytes(const schedule::LogicalBuffer&) override { return 0; }
  void run(const Task& task, runtime::BufferTable&) override {
    if (task.op == Op::attention) {
      const auto wall = comm::steady_nanoseconds();
      const double cpu = thread_cpu_seconds();
      for (int i = 0; i < kAlone; ++i) {
        product_.run();
      }
      product_nanoseconds_ = (threads_ == 1 ? 1e9 * (thread_cpu_seconds() - cpu)
                                            : static_cast<double>(comm::steady_nanoseconds() - wall)) /
                             kAlone;
    }
    if (task.op == Op::optimizer) {
      product_.run();
    }
    if (task.op == Op::experts) {
      // One long task, as layers have: the end of a task would wake the communication thread.
      product_ends_ = {comm::steady_nanoseconds()};
      while (!done_) {
        product_.run();
        product_ends_.push_back(comm::steady_nanoseconds());
      }
    }
  }
  /// Of a product, on a core of its own: what the last task `attention` found.
  [[nodiscard]] double product_nanoseconds() const { return product_nanoseconds_; }
  /// When the first product of the last task `experts` began, and when each ended: nanoseconds.
  [[nodiscard]] const std::vector<std::int64_t>& product_ends() const { return product_ends_; }
  [[nodiscard]] std::unique_ptr<runtime::PendingCommunication> start(const Task& task,
                                                                     runtime::BufferTable&) override {
    if (task.op == Op::statistics) {
      const std::int64_t nothing = 0;
      met_.resize(static_cast<std::size_t>(world_.size()));
      return runtime::make_pending(comm::MetadataGather(world_, std::span(&nothing, 1), met_));
    }
    done_ = false;
    return std::make_unique<Watched>(start_exchange(), done_);
  }
  /// Before a run.
  void expect_exchange() { done_ = false; }

 private:
  static constexpr std::int64_t kRow = 256;
  static constexpr std::size_t kPlaces = 6;
  static constexpr int kAlone = 20;  // products of a task `attention`

  std::unique_ptr<runtime::PendingCommunication> start_exchange() {
    const auto ranks = static_cast<std::size_t>(group_->size());
    // Rows that are sent do not lie in the caches of the core that sends them.
    const std::size_t place = place_++ % kPlaces * most_bytes_;
    constexpr std::int64_t kFewBytes = 1024;
    if (exchange_.collective == Collective::all_gather && exchange_.bytes > kFewBytes) {
      return runtime::make_pending(
          comm::BlockGather(*group_, std::span(src_).first(static_cast<std::size_t>(exchange_.bytes))));
    }
    if (exchange_.collective == Collective::all_gather) {
      const auto words = static_cast<std::size_t>(std::max<std::int64_t>(exchange_.bytes / 8, 1));
      mine_.resize(words);
      all_.resize(words * ranks);
      return runtime::make_pending(comm::MetadataGather(*group_, mine_, all_));
    }
    if (exchange_.collective == Collective::all_reduce) {
      auto* const values = reinterpret_cast<float*>(src_.data() + place);
      return runtime::make_pending(
          comm::SumReduction(*group_, std::span(values, static_cast<std::size_t>(exchange_.bytes / 4))));
    }
    const std::int64_t peers = std::max(group_->size() - 1, 1);
    rows_.assign(ranks, std::max<std::int64_t>(exchange_.bytes / peers / kRow, 1));
    rows_[static_cast<std::size_t>(group_->rank())] = 0;
    return runtime::make_pending(comm::RowExchange(*group_, {.src = src_.data() + place,
                                                             .src_rows = rows_,
                                                             .dst = dst_.data() + place,
                                                             .dst_rows = rows_,
                                                             .row_bytes = kRow,
                                                             .node = node_of_}));
  }

  BusyProduct product_;
  int threads_;
  double product_nanoseconds_ = 0.0;
  comm::Communicator world_;
  std::size_t most_bytes_;
  std::size_t place_ = 0;
  std::vector<std::byte> src_;
  std::vector<std::byte> dst_;
  std::vector<std::int64_t> met_, mine_, all_, rows_;
  const comm::Communicator* group_ = nullptr;
  std::vector<int> node_of_;
  Exchange exchange_;
  std::atomic<bool> done_ = false;
  std::vector<std::int64_t> product_ends_;
};

class ExecutionProbe {
 public:
  ExecutionProbe(const comm::ProcessGrid& grid, const CollectiveProbeOptions& options)
      : grid_(grid),
        options_(options),
        runner_(grid, sizes(Collective::all_to_all).back(), options.threads),
        trace_(1),
        executor_(pool_,
                  {.compute_thread_setup = [threads = options.threads] { omp_set_num_threads(threads); },
                   .urgent_communication = model::own_cores(grid, options.threads),
                   .trace = &trace_}) {
    schedule_.rank = grid.rank();
    schedule_.groups = {{"world", grid.layout().world_ranks()}};
    clock_offset_ = comm::estimate_clock_offset(grid.world());
  }

  /// What the executor adds to a task of a fraction of a millisecond.
  double task_seconds() {
    const int rounds = options_.quick ? 1 : 5;
    constexpr int kTasks = 100;
    std::vector<double> seconds;
    for (int round = 0; round < rounds; ++round) {
      begin_schedule();
      add_compute(Op::attention, {add_communication(Op::statistics, {})});
      for (int i = 0; i < kTasks; ++i) {
        add_compute(Op::optimizer);
      }
      run();
      const auto events = of(Op::optimizer);
      const auto wall = static_cast<double>(events.back().end - events.front().begin);
      seconds.push_back(1e-9 *
                        (wall / kTasks / sharing_.node / sharing_.cluster - runner_.product_nanoseconds()));
    }
    return std::max(model::agree(grid_.world(), median(std::move(seconds))), 1e-9);
  }

  cost::CoreSharing sharing() {
    const int rounds = options_.quick ? 1 : 5;
    std::vector<double> all;
    std::vector<double> one_per_node;
    for (int round = 0; round < rounds; ++round) {
      all.push_back(turns(true));
      one_per_node.push_back(turns(grid_.local_rank() == 0));
    }
    const double nodes = grid_.nodes() > 1 ? std::max(median(one_per_node), 1.0) : 1.0;
    const double ranks = grid_.local_size() > 1 ? std::max(median(all) / nodes, 1.0) : 1.0;
    // What is nearly 1 is another program's, or the clocks'.
    constexpr double kNone = 1.15;
    sharing_ = {.node = ranks < kNone ? 1.0 : model::agree(grid_.world(), ranks),
                .cluster = nodes < kNone ? 1.0 : model::agree(grid_.world(), nodes)};
    return sharing_;
  }

  cost::CollectiveTimes measure(Collective collective, const GroupShape& shape) {
    const int color =
        grid_.node() / shape.nodes * grid_.local_size() + grid_.local_rank() / shape.ranks_per_node;
    // Of several ranks of a node, those of a group lie side by side.
    const comm::Communicator group = grid_.world().split(color, grid_.rank(), "probe");
    cost::CollectiveTimes result{
        .collective = collective, .nodes = shape.nodes, .ranks_per_node = shape.ranks_per_node};
    const std::vector<int> node_of = comm::all_gather(group, grid_.node());
    for (const std::int64_t bytes : sizes(collective)) {
      runner_.set_exchange(group, node_of, {collective, bytes});
      result.times.push_back(measure(bytes));
      if (result.times.back().seconds > kLongest) {
        break;  // what is larger takes longer in proportion
      }
    }
    // Fewer bytes take no longer: what says so is a disturbance.
    for (std::size_t i = result.times.size() - 1; i-- > 0;) {
      cost::CollectiveTime& time = result.times[i];
      time.seconds = std::min(time.seconds, result.times[i + 1].seconds);
      time.busy_seconds = std::min(time.busy_seconds, result.times[i + 1].busy_seconds);
      time.repeated_seconds = std::min(time.repeated_seconds, result.times[i + 1].repeated_seconds);
    }
    return result;
  }

 private:
  static constexpr double kLongest = 0.06;
  static constexpr int kMostSkew = 16;  // products

  [[nodiscard]] std::vector<std::int64_t> sizes(Collective collective) const {
    constexpr std::int64_t kKiB = 1024;
    if (collective == Collective::all_gather) {
      return {8, 4 * kKiB, 64 * kKiB};
    }
    if (options_.quick) {
      return {4 * kKiB, 1024 * kKiB};
    }
    return {kKiB, 16 * kKiB, 128 * kKiB, 512 * kKiB, 2048 * kKiB, 8192 * kKiB};
  }

  // ---- Schedules

  void begin_schedule() { schedule_.tasks.clear(); }
  TaskId add(Task task) {
    schedule_.tasks.push_back(std::move(task));
    return static_cast<TaskId>(schedule_.tasks.size()) - 1;
  }
  TaskId add_compute(Op op, std::vector<TaskId> after = {}) {
    return add({.op = op, .after = std::move(after)});
  }
  TaskId add_communication(Op op, std::vector<TaskId> after) {
    return add({.op = op,
                .stream = Stream::inter,
                .after = std::move(after),
                .communication = schedule::Communication{}});
  }
  void run() {
    comm::barrier(grid_.world());
    executor_.run(schedule_, runner_);
  }
  [[nodiscard]] std::vector<tracing::TraceEvent> of(Op op) const {
    std::vector<tracing::TraceEvent> events = trace_.events();
    std::erase_if(events, [op](const tracing::TraceEvent& event) { return event.op != op; });
    return events;
  }

  // ---- Measurements

  /// Of the ranks that take part the median of how long they compute for a second on a core.
  double turns(bool takes_part) {
    using Clock = std::chrono::steady_clock;
    const double least = options_.quick ? 0.02 : 0.1;  // many turns
    const kernels::ThreadLimit limit(options_.threads);
    comm::barrier(grid_.world());
    double turns = 0.0;
    if (takes_part) {
      const auto begin = Clock::now();
      const double cpu_begin = thread_cpu_seconds();
      double wall = 0.0;
      do {
        product_.run();
        wall = std::chrono::duration<double>(Clock::now() - begin).count();
      } while (wall < least);
      turns = wall / std::max(thread_cpu_seconds() - cpu_begin, 1e-9);
    }
    comm::barrier(grid_.world());
    std::vector<double> of_ranks = comm::all_gather(grid_.world(), turns);
    std::erase(of_ranks, 0.0);
    return median(std::move(of_ranks));
  }

  cost::CollectiveTime measure(std::int64_t bytes) {
    constexpr double kSeconds = 0.3;  // to spend on a size
    constexpr int kFewest = 4;
    constexpr int kMost = 24;
    std::vector<double> idle;
    std::vector<double> repeated;
    std::vector<double> busy;
    std::vector<double> share;
    std::vector<double> start;
    int rounds = 1;
    for (int round = 0; round < rounds; ++round) {
      const Idle alone = idle_seconds();
      idle.push_back(alone.seconds);
      repeated.push_back(alone.repeated_seconds);
      const Busy beside = busy_seconds(round);
      busy.push_back(beside.seconds);
      share.push_back(beside.compute_share);
      start.push_back(beside.start_seconds);
      if (round == 0 && !options_.quick) {
        rounds = std::clamp(static_cast<int>(kSeconds / (idle.front() + busy.front())), kFewest, kMost);
        rounds = static_cast<int>(comm::all_reduce<std::int64_t>(grid_.world(), rounds, comm::ReduceOp::min));
      }
    }
    cost::CollectiveTime time{.bytes = bytes};
    time.seconds = model::agree(grid_.world(), middle_mean(std::move(idle)));
    time.repeated_seconds =
        std::max(model::agree(grid_.world(), middle_mean(std::move(repeated))), time.seconds);
    time.busy_seconds = std::max(model::agree(grid_.world(), middle_mean(std::move(busy))), time.seconds);
    constexpr double kLeast = 0.05;
    time.compute_share = std::clamp(model::agree(grid_.world(), median(std::move(share))), kLeast, 1.0);
    time.busy_start_seconds = model::agree(grid_.world(), std::max(middle_mean(std::move(start)), 1e-9));
    return time;
  }

  /// From when the last rank of all has begun it to when this rank's is done; the mean of the ranks.
  [[nodiscard]] double exchange_seconds(Op op) const {
    const tracing::TraceEvent event = of(op).front();
    const std::int64_t begun =
        comm::all_reduce(grid_.world(), event.begin + clock_offset_, comm::ReduceOp::max);
    const double seconds = 1e-9 * static_cast<double>(event.end + clock_offset_ - begun);
    return std::max(comm::all_reduce(grid_.world(), seconds, comm::ReduceOp::sum) / grid_.size(), 1e-9);
  }

  struct Idle {
    double seconds;
    double repeated_seconds;
  };

  Idle idle_seconds() {
    begin_schedule();
    runner_.expect_exchange();
    add_communication(Op::dispatch, {add_communication(Op::statistics, {})});
    add_communication(Op::combine, {});
    run();
    return {exchange_seconds(Op::dispatch), exchange_seconds(Op::combine)};
  }

  struct Busy {
    double seconds;
    double compute_share;
    double start_seconds;  // of this rank, from the end of the task before
  };

  Busy busy_seconds(int round) {
    begin_schedule();
    runner_.expect_exchange();
    const TaskId alone = add_compute(Op::attention, {add_communication(Op::statistics, {})});
    const TaskId met = add_communication(Op::statistics, {alone});
    // Ranks never come to an exchange at one time.
    TaskId last = met;
    std::vector<TaskId> after = {met};
    for (int i = (grid_.rank() * 5 + round * 3) % kMostSkew; i >= 0; --i) {
      last = add_compute(Op::optimizer, std::exchange(after, {}));
    }
    add_compute(Op::experts, {last});
    add_communication(Op::dispatch, {last});
    run();
    const tracing::TraceEvent exchange = of(Op::dispatch).front();
    const double product = runner_.product_nanoseconds() * sharing_.node * sharing_.cluster;
    double done = 0.0;  // products while the exchange was under way
    const std::vector<std::int64_t>& ends = runner_.product_ends();
    for (std::size_t i = 1; i < ends.size(); ++i) {
      const std::int64_t overlap = std::min(ends[i], exchange.end) - std::max(ends[i - 1], exchange.begin);
      done += static_cast<double>(std::max<std::int64_t>(overlap, 0)) /
              static_cast<double>(std::max<std::int64_t>(ends[i] - ends[i - 1], 1));
    }
    const auto window = static_cast<double>(std::max<std::int64_t>(exchange.end - exchange.begin, 1));
    const std::int64_t ready = of(Op::optimizer).back().end;
    return {exchange_seconds(Op::dispatch), done * product / window,
            1e-9 * static_cast<double>(exchange.begin - ready)};
  }

  const comm::ProcessGrid& grid_;
  CollectiveProbeOptions options_;
  BusyProduct product_;
  ProbeRunner runner_;
  MemoryPool pool_;
  tracing::TraceRecorder trace_;
  runtime::Executor executor_;
  schedule::Schedule schedule_;
  std::int64_t clock_offset_ = 0;
  cost::CoreSharing sharing_;
};

}  // namespace

void measure_execution(const comm::ProcessGrid& grid, const CollectiveProbeOptions& options,
                       const std::function<void(std::string_view)>& say, cost::Cluster& cluster) {
  ExecutionProbe probe(grid, options);
  if (grid.size() > 1) {
    say("ranks that share cores");
    cluster.sharing = probe.sharing();
  }
  say("tasks");
  cluster.task_seconds = probe.task_seconds();
  if (grid.size() == 1) {
    return;
  }
  const auto per_node = static_cast<int>(cluster.ranks_per_node);
  std::vector<GroupShape> shapes;
  for (const int ranks : divisors(per_node)) {
    shapes.push_back({1, ranks});
  }
  for (const int nodes : divisors(grid.nodes())) {
    if (nodes > 1) {
      shapes.push_back({nodes, 1});
      shapes.push_back({nodes, per_node});
    }
  }
  std::erase_if(shapes, [](const GroupShape& shape) { return shape.nodes * shape.ranks_per_node == 1; });
  const auto repeated = std::ranges::unique(shapes, [](const GroupShape& a, const GroupShape& b) {
    return a.nodes == b.nodes && a.ranks_per_node == b.ranks_per_node;
  });
  shapes.erase(repeated.begin(), repeated.end());
  for (const GroupShape& shape : shapes) {
    for (const Collective collective :
         {Collective::all_gather, Collective::all_to_all, Collective::all_reduce}) {
      say(fmt::format("{} of groups of {} ranks on {} nodes", name_of(collective),
                      shape.nodes * shape.ranks_per_node, shape.nodes));
      cluster.collectives.push_back(probe.measure(collective, shape));
    }
  }
}

}  // namespace expedite::bench
