// The commit that was built; its source is written by cmake/WriteCommit.cmake before every build.
#pragma once

namespace expedite::cli {

/// 12 digits, "-dirty" where files that git knows had changed; "unknown" for a source tree of no known
/// commit.
extern const char* const kBuildCommit;

}  // namespace expedite::cli
