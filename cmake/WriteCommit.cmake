# Writes OUTPUT, a C++ source with the commit of SOURCE_DIR, if it differs from what stands there: run before every build,
# it costs a recompilation only after a commit or a first change. Without a repository the commit is the one that
# `git archive` has put into commit.txt.
set(commit "")
find_program(GIT git)
if(GIT)
  # The repository must be that of SOURCE_DIR itself, not one around an unpacked archive; whoever owns it.
  set(git ${GIT} -c safe.directory=* -C ${SOURCE_DIR})
  execute_process(COMMAND ${git} rev-parse --show-cdup OUTPUT_VARIABLE above RESULT_VARIABLE status
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(status EQUAL 0 AND above STREQUAL "")
    execute_process(COMMAND ${git} describe --always --dirty --abbrev=12 --exclude=* OUTPUT_VARIABLE commit
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
if(commit STREQUAL "")
  file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/commit.txt archived LIMIT_COUNT 1)
  if(archived MATCHES "^[0-9a-f]+$")
    string(SUBSTRING ${archived} 0 12 commit)
  else()
    set(commit unknown)
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "expedite/cli/build_commit.h"

namespace expedite::cli {
const char* const kBuildCommit = "@commit@";
}  // namespace expedite::cli
]])
