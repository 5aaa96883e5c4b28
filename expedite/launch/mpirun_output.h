// What mpirun writes to standard error, without what Open MPI adds of its own to a job that fails.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace expedite::launch {

/// Takes mpirun's standard error in pieces of any size and hands on whole lines: those of the ranks as they
/// are, and of Open MPI's own what a user can use. How a rank died (signal, exit status) becomes one line;
/// banners that repeat what a rank has said, notes about them, and warnings about hardware that is not there
/// are left out; what is not known here is passed on.
class MpirunOutput {
 public:
  using Sink = std::function<void(std::string_view line)>;  // without the end of the line

  explicit MpirunOutput(Sink sink) : sink_(std::move(sink)) {}

  void add(std::string_view text);
  /// What is left, at the end of the job.
  void finish();

 private:
  void line(const std::string& text);
  void end_block();
  void pass_block();

  Sink sink_;
  std::string partial_;
  std::vector<std::string> block_;  // lines between Open MPI's rulers
  bool in_block_ = false;
  bool told_ = false;  // a rank has said why it ends the job
};

}  // namespace expedite::launch
