// Runs the tests on every rank of an MPI job; the job fails when a test fails on any rank. Rank 0 prints the
// usual lines, the others only their failures.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "expedite/comm/collectives.h"
#include "expedite/comm/environment.h"

namespace {

class FailurePrinter : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed()) {
      std::fprintf(stderr, "[rank %d] %s:%d: %s\n", rank_, result.file_name(), result.line_number(),
                   result.message());
    }
  }

 private:
  int rank_;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const expedite::comm::MpiEnvironment environment;
  const auto world = expedite::comm::Communicator::world();
  if (world.rank() > 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(world.rank()));
  }
  const std::int64_t failed = RUN_ALL_TESTS();
  return all_reduce(world, failed, expedite::comm::ReduceOp::max) == 0 ? 0 : 1;
}
