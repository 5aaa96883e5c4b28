#include "expedite/plan/csv.h"

#include <algorithm>
#include <set>

#include "expedite/base/error.h"

namespace expedite::plan {
namespace {

class Reader {
 public:
  Reader(std::string_view text, const std::string& where) : text_(text), where_(where) {
    if (text_.starts_with("\xEF\xBB\xBF")) {
      text_.remove_prefix(3);
    }
  }

  [[nodiscard]] bool done() const { return at_ >= text_.size(); }

  CsvTable::Row row() {
    CsvTable::Row row;
    row.line = line_;
    do {
      row.cells.push_back(cell());
    } while (take(','));
    (void)take('\r');
    require(done() || take('\n'), "{}:{}: text follows a closing quote; quote the whole cell", where_, line_);
    ++line_;
    return row;
  }

 private:
  bool take(char c) {
    if (!done() && text_[at_] == c) {
      ++at_;
      return true;
    }
    return false;
  }

  std::string cell() {
    if (!take('"')) {
      const std::size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
      std::string plain(text_.substr(at_, end - at_));
      at_ = end;
      return plain;
    }
    const int first_line = line_;
    std::string quoted;
    while (true) {
      require(!done(), "{}:{}: a quote opens here and never closes", where_, first_line);
      const char c = text_[at_++];
      if (c == '"' && !take('"')) {
        return quoted;
      }
      line_ += c == '\n' ? 1 : 0;
      quoted += c;
    }
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

CsvTable parse_csv(std::string_view text, const std::string& where) {
  Reader reader(text, where);
  CsvTable table;
  while (!reader.done()) {
    CsvTable::Row row = reader.row();
    if (row.cells.size() == 1 && row.cells[0].empty()) {
      continue;
    }
    if (table.columns.empty()) {
      table.columns = std::move(row.cells);
      std::set<std::string_view> seen;
      for (const std::string& column : table.columns) {
        require(seen.insert(column).second, "{}: the column {} is there twice; keep one", where, column);
      }
      continue;
    }
    require(row.cells.size() == table.columns.size(), "{}:{}: {} cells where the header has {}", where,
            row.line, row.cells.size(), table.columns.size());
    table.rows.push_back(std::move(row));
  }
  require(!table.columns.empty(), "{}: empty; the first line must name the columns", where);
  return table;
}

}  // namespace expedite::plan
