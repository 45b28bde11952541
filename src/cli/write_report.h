// The files of a comparison; compare.json is what all others are made from.
#pragma once

#include <map>
#include <optional>

#include "cli/command.h"
#include "core/file.h"
#include "core/origin.h"
#include "report/compare_page.h"
#include "report/compare_table.h"

namespace horner {

// Adds where the numbers come from: the command line of now.
inline Json with_origin(Json compare, int64_t seed, int64_t seeds) {
  const std::string range =
      seeds == 1 ? std::to_string(seed) : fmt::format("{} .. {}", seed, seed + seeds - 1);
  compare["origin"] = Json::array();
  for (const auto& [name, value] :
       origin(command_line(), range, compare["device"], compare["precision"]))
    compare["origin"].push_back({name, value});
  return compare;
}

inline void write_compare(const Json& compare, const std::string& folder) {
  make_folder(folder + "/plots");
  write_file(folder + "/compare.json", compare.dump(1) + "\n");
  write_file(folder + "/compare.csv", compare_csv(compare));
  for (const auto& [name, picture] : compare_pictures(compare))
    write_file(folder + "/plots/" + name + ".svg", svg_file(picture));
  Page page = compare_page(compare);
  for (const Json& pair : compare["origin"]) page.origin.emplace_back(pair[0], pair[1]);
  write_file(folder + "/report.html", html(page));
}

}  // namespace horner
