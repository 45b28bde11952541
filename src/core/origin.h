// Where numbers come from: what every page says at its end.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace horner {

using Origin = std::vector<std::pair<std::string, std::string>>;

// `words` follow "horner" on the command line; the commit and the date are added.
Origin origin(
    const std::vector<std::string>& words,
    const std::string& seeds,
    const std::string& device,
    const std::string& dtype
);

std::string shell_line(const std::vector<std::string>& words);  // ./horner words, quoted
std::string now();                                              // 2026-05-04 17:01 UTC

}  // namespace horner
