// The files of a comparison; compare.json is what all others can be made from again.
#pragma once

#include "cli/command.h"
#include "core/file.h"
#include "core/origin.h"
#include "report/compare_page.h"
#include "report/compare_table.h"

namespace horner {

// Adds where the numbers come from: the command line of now.
inline void set_origin(CompareResult& r) {
  const int64_t first = r.options.seed, seeds = r.options.seeds;
  const std::string range =
      seeds == 1 ? std::to_string(first) : fmt::format("{} .. {}", first, first + seeds - 1);
  r.origin = origin(command_line(), range, r.device, r.precision);
}

inline void write_compare(const CompareResult& r, const std::string& folder) {
  make_folder(folder + "/plots");
  write_file(folder + "/compare.json", r.json().dump(1) + "\n");
  write_file(folder + "/compare.csv", compare_csv(r));
  for (const auto& [name, picture] : compare_pictures(r))
    write_file(folder + "/plots/" + name + ".svg", svg_file(picture));
  write_file(folder + "/report.html", html(compare_page(r)));
}

}  // namespace horner
