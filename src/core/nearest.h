// The known name that a mistyped one most likely means, by Damerau-Levenshtein distance.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace horner {

// Insertions, deletions, substitutions and swaps of neighbours that turn a into b.
int edit_distance(std::string_view a, std::string_view b);

// Empty when no candidate is within a third of the name's letters.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// "unknown key 'ordr'; did you mean 'order'?"; if nothing is near, the candidates, if they are few.
std::string unknown(
    std::string_view kind, std::string_view name, const std::vector<std::string>& candidates
);

}  // namespace horner
