#include "expedite/comm/link_probe.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <thread>

#include "expedite/base/error.h"
#include "expedite/base/median.h"
#include "expedite/comm/collectives.h"
#include "expedite/comm/environment.h"
#include "expedite/comm/request.h"

namespace expedite::comm {
namespace {

constexpr int kProbeTag = 5;
constexpr std::int64_t kSmallMessage = 64;
constexpr int kSmallInFlight = 64;
constexpr int kLargeInFlight = 4;

/// How long to measure.
struct Effort {
  double round_s;    // of one round of bulk
  int rounds;        // at least 2
  double latency_s;  // all round trips
  std::vector<std::int64_t> sizes;
};

Effort effort_of(const LinkProbeOptions& options) {
  constexpr std::int64_t kKiB = 1024;
  if (options.quick) {
    return {.round_s = 0.03, .rounds = 5, .latency_s = 0.005, .sizes = {512 * kKiB}};
  }
  return {.round_s = 0.05,
          .rounds = 3,
          .latency_s = 0.05,
          .sizes = {4 * kKiB, 32 * kKiB, 256 * kKiB, 1024 * kKiB, 4096 * kKiB}};
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Waits between looks: gives the core away at first, which costs the least time, and sleeps when nothing
/// moves.
class Patience {
 public:
  void moved() {
    looks_ = 0;
    backoff_.reset();
  }
  void wait() {
    if (++looks_ < kYields) {
      std::this_thread::yield();
    } else {
      backoff_.sleep();
    }
  }

 private:
  static constexpr int kYields = 100;
  int looks_ = 0;
  Backoff backoff_{std::chrono::microseconds(50)};
};

/// Ranks that exchange in a circle.
using Ring = std::vector<int>;

/// The rings of a level that have at least two ranks.
std::vector<Ring> rings_of(std::span<const int> node_of, LinkLevel level) {
  std::map<int, Ring> nodes;
  for (std::size_t rank = 0; rank < node_of.size(); ++rank) {
    nodes[node_of[rank]].push_back(static_cast<int>(rank));
  }
  std::vector<Ring> rings;
  for (const auto& [node, ranks] : nodes) {
    if (level == LinkLevel::intra_node) {
      rings.push_back(ranks);
      continue;
    }
    rings.resize(std::max(rings.size(), ranks.size()));
    for (std::size_t place = 0; place < ranks.size(); ++place) {
      rings[place].push_back(ranks[place]);
    }
  }
  std::erase_if(rings, [](const Ring& ring) { return ring.size() < 2; });
  return rings;
}

/// Whom this rank sends to and receives from; -1: it sits out.
struct Neighbours {
  int next = -1;
  int previous = -1;
};

Neighbours neighbours_in(const std::vector<Ring>& rings, int rank) {
  for (const Ring& ring : rings) {
    const auto found = std::ranges::find(ring, rank);
    if (found != ring.end()) {
      const auto place = static_cast<std::size_t>(found - ring.begin());
      return {ring[(place + 1) % ring.size()], ring[(place + ring.size() - 1) % ring.size()]};
    }
  }
  return {};
}

class LinkProbe {
 public:
  LinkProbe(const Communicator& communicator, std::vector<Ring> rings, Effort effort, std::string where)
      : communicator_(communicator),
        rings_(std::move(rings)),
        effort_(std::move(effort)),
        where_(std::move(where)),
        src_(static_cast<std::size_t>(effort_.sizes.back() * kLargeInFlight), std::byte{1}),
        dst_(src_.size(), std::byte{0}) {}

  LinkRates measure() {
    LinkRates rates{.latency_s = latency()};
    const Neighbours all = neighbours_in(rings_, communicator_.rank());
    rates.message_rate_per_s =
        calibrated_rate(all, kSmallMessage, kSmallInFlight) / static_cast<double>(kSmallMessage);
    double rate = calibrated_rate(all, effort_.sizes.front(), kLargeInFlight);
    for (const std::int64_t size : effort_.sizes) {
      if (static_cast<double>(size) > 2.0 * effort_.round_s * rate && !rates.by_size.empty()) {
        break;  // a link this slow needs no larger messages
      }
      rate = steady_rate(all, size, rate);
      rates.by_size.push_back({size, rate});
    }
    rates.bandwidth_bytes_per_s = rate;
    const Ring first_pair(rings_.front().begin(), rings_.front().begin() + 2);
    const Neighbours pair = neighbours_in({first_pair}, communicator_.rank());
    rates.pair_bandwidth_bytes_per_s = steady_rate(pair, rates.by_size.back().message_bytes, rate);
    return rates;
  }

 private:
  /// Half of the median round trip, over all pairs of neighbours at once; of the pairs, the median.
  double latency() {
    constexpr int kWarmUp = 5;
    constexpr double kFewest = 10.0;
    constexpr double kMost = 2000.0;
    const int partner = ping_pong_partner();
    const double estimate = all_reduce(communicator_, median(round_trips(partner, kWarmUp)), ReduceOp::max);
    const auto trips =
        static_cast<int>(std::clamp(effort_.latency_s / std::max(estimate, 1e-9), kFewest, kMost));
    std::vector<double> of_pairs = all_gather(communicator_, median(round_trips(partner, trips)));
    std::erase(of_pairs, 0.0);  // of ranks without a partner
    return median(of_pairs) / 2.0;
  }

  /// The rank to play ping-pong with: first and second of a ring, third and fourth, and so on. -1: none.
  [[nodiscard]] int ping_pong_partner() const {
    for (const Ring& ring : rings_) {
      const auto found = std::ranges::find(ring, communicator_.rank());
      const auto partner = static_cast<std::size_t>(found - ring.begin()) ^ 1U;
      if (found != ring.end() && partner < ring.size()) {
        return ring[partner];
      }
    }
    return -1;
  }

  /// Seconds of each round trip; a rank without a partner takes none.
  std::vector<double> round_trips(int partner, int trips) {
    meet();
    std::vector<double> seconds(static_cast<std::size_t>(trips), 0.0);
    constexpr int kBytes = 8;
    const bool serves = communicator_.rank() < partner;
    for (double& each : seconds) {
      if (partner < 0) {
        break;
      }
      const double begin = now();
      for (const bool sends : {serves, !serves}) {
        MPI_Request request = MPI_REQUEST_NULL;
        if (sends) {
          check(
              MPI_Isend(src_.data(), kBytes, MPI_BYTE, partner, kProbeTag, communicator_.handle(), &request),
              "MPI_Isend", where_);
        } else {
          check(
              MPI_Irecv(dst_.data(), kBytes, MPI_BYTE, partner, kProbeTag, communicator_.handle(), &request),
              "MPI_Irecv", where_);
        }
        finish(Request(request, where_));
      }
      each = std::max(now() - begin, 1e-9);
    }
    return seconds;
  }

  /// Bytes per second of rounds that grow until one takes a good part of a round's time.
  double calibrated_rate(Neighbours neighbours, std::int64_t size, int in_flight) {
    std::int64_t messages = in_flight;
    while (true) {
      const double seconds = exchange_seconds(neighbours, size, messages, in_flight);
      if (seconds > effort_.round_s / 3.0) {
        return static_cast<double>(size * messages) / seconds;
      }
      messages *= 2;
    }
  }

  /// Bytes per second, of rounds whose length is right if the rate is about `expected`. The second best of
  /// the rounds: the best may have had a burst for nothing, others a lost packet that TCP waits long for.
  double steady_rate(Neighbours neighbours, std::int64_t size, double expected) {
    // Fewer messages than fit under way would take turns: one way first, then the other.
    const auto messages = std::max<std::int64_t>(
        kLargeInFlight,
        static_cast<std::int64_t>(std::ceil(effort_.round_s * expected / static_cast<double>(size))));
    std::vector<double> rates;
    for (int round = 0; round < effort_.rounds; ++round) {
      const double seconds = exchange_seconds(neighbours, size, messages, kLargeInFlight);
      rates.push_back(static_cast<double>(size * messages) / seconds);
    }
    std::ranges::nth_element(rates, rates.begin() + 1, std::greater<>());
    return rates[1];
  }

  /// Every rank sends `messages` to its next neighbour and receives as many from its previous one. The
  /// slowest rank's seconds.
  double exchange_seconds(Neighbours neighbours, std::int64_t size, std::int64_t messages, int in_flight) {
    meet();
    const double begin = now();
    if (neighbours.next >= 0) {
      exchange(neighbours, size, messages, in_flight);
    }
    return all_reduce(communicator_, std::max(now() - begin, 1e-9), ReduceOp::max);
  }

  void exchange(Neighbours neighbours, std::int64_t size, std::int64_t messages, int in_flight) {
    const auto slots = static_cast<std::size_t>(std::min<std::int64_t>(in_flight, messages));
    // The first half receive, the second half send. A slot that is done takes the next message.
    std::vector<MPI_Request> requests(2 * slots, MPI_REQUEST_NULL);
    std::vector<std::int64_t> left = {messages, messages};  // to receive, to send
    const auto start = [&](std::size_t request) {
      const bool sends = request >= slots;
      if (left[sends ? 1 : 0]-- <= 0) {
        return;
      }
      const std::size_t offset = request % slots * static_cast<std::size_t>(size);
      if (sends) {
        check(MPI_Isend(src_.data() + offset, static_cast<int>(size), MPI_BYTE, neighbours.next, kProbeTag,
                        communicator_.handle(), &requests[request]),
              "MPI_Isend", where_);
      } else {
        check(MPI_Irecv(dst_.data() + offset, static_cast<int>(size), MPI_BYTE, neighbours.previous,
                        kProbeTag, communicator_.handle(), &requests[request]),
              "MPI_Irecv", where_);
      }
    };
    for (std::size_t request = 0; request < requests.size(); ++request) {
      start(request);
    }
    std::vector<int> done(requests.size());
    Patience patience;
    while (true) {
      int count = 0;
      check(MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count, done.data(),
                         MPI_STATUSES_IGNORE),
            "MPI_Testsome", where_);
      if (count == MPI_UNDEFINED) {
        return;  // nothing is under way any more
      }
      for (int i = 0; i < count; ++i) {
        start(static_cast<std::size_t>(done[static_cast<std::size_t>(i)]));
      }
      if (count > 0) {
        patience.moved();
      } else {
        patience.wait();
      }
    }
  }

  /// A barrier that ranks leave at nearly the same time.
  void meet() {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibarrier(communicator_.handle(), &request), "MPI_Ibarrier", where_);
    finish(Request(request, where_));
  }

  static void finish(Request request) {
    for (Patience patience; !request.test();) {
      patience.wait();
    }
  }

  const Communicator& communicator_;
  std::vector<Ring> rings_;
  Effort effort_;
  std::string where_;
  std::vector<std::byte> src_;
  std::vector<std::byte> dst_;
};

}  // namespace

std::string_view name_of(LinkLevel level) {
  return level == LinkLevel::intra_node ? "intra_node" : "inter_node";
}

std::optional<LinkRates> probe_link(const Communicator& communicator, std::span<const int> node_of,
                                    LinkLevel level, const LinkProbeOptions& options) {
  require(node_of.size() == static_cast<std::size_t>(communicator.size()),
          "{} nodes given for the {} ranks of group {}", node_of.size(), communicator.size(),
          communicator.name());
  std::vector<Ring> rings = rings_of(node_of, level);
  if (rings.empty()) {
    return std::nullopt;
  }
  return LinkProbe(communicator, std::move(rings), effort_of(options),
                   fmt::format("the probe of {} links of group {}", name_of(level), communicator.name()))
      .measure();
}

}  // namespace expedite::comm
