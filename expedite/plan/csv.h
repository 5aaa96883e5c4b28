// Comma-separated tables with a header (RFC 4180).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace expedite::plan {

struct CsvTable {
  std::vector<std::string> columns;
  struct Row {
    std::vector<std::string> cells;  // one per column
    int line = 0;                    // where it begins, from 1
  };
  std::vector<Row> rows;
};

/// Throws Error naming `where` and the line when a quote does not end, a row has another number of cells than
/// the header, or a column's name comes twice. Empty lines are skipped.
[[nodiscard]] CsvTable parse_csv(std::string_view text, const std::string& where);

}  // namespace expedite::plan
