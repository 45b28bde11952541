#include "report/palette.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace horner {

namespace {

struct Slot {
  std::string_view mixer;
  int colour;
};
// A mixer keeps its slot for ever: published pictures show it. A new mixer takes a free one.
constexpr Slot kSlots[] = {
    {"softmax", 0},  {"taylor", 1},  {"window", 2},         {"linear", 3},
    {"deltanet", 4}, {"gla", 5},     {"mlstm", 7},          {"hybrid", 17},
    {"mamba2", 9},   {"retnet", 10}, {"gated_deltanet", 6}, {"centres", 11},
    {"kda", 12},     {"metala", 13}, {"luna", 14},          {"norm_attention", 15},
    {"s6", 16},      {"rg_lru", 8},  {"qlstm", 18},         {"two_mamba", 19},
    {"inline", 20},  {"conv", 21},   {"order", 1},  // "order 4": a series, taylor
};

// "Norm attention K=4" as a name of the list is written: "norm_attention_k=4".
std::string as_name(const std::string& text) {
  std::string name;
  for (const char c : text)  // papers write GLA
    name += c == ' ' ? '_' : char(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

bool begins_with_word(const std::string& text, std::string_view word) {
  return text.starts_with(word) &&
         (text.size() == word.size() ||
          std::string_view("_:,").find(text[word.size()]) != std::string_view::npos);
}

}  // namespace

int listed_colour(const std::string& label) {
  const std::string name = as_name(label);
  int colour = kGrey;
  size_t longest = 0;
  for (const Slot& slot : kSlots) {
    if (slot.mixer.size() <= longest || !begins_with_word(name, slot.mixer)) continue;
    longest = slot.mixer.size();
    colour = slot.colour;
  }
  return colour;
}

int mixer_colour(const std::string& mixer) {
  const std::string last = mixer.substr(mixer.rfind(' ') + 1);  // npos + 1 is 0
  if (const int colour = listed_colour(last); colour != kGrey) return colour;
  unsigned sum = 0;  // a mixer of another version: any colour, always the same
  for (const char c : last) sum = 31 * sum + static_cast<unsigned char>(c);
  return int(sum % kColours);
}

std::vector<int> mixer_colours(const std::vector<std::string>& names) {
  std::vector<int> colours;
  for (const std::string& name : names) {
    int colour = mixer_colour(name);
    const auto used = std::count_if(colours.begin(), colours.end(), [&](int other) {
      return other % kColours == colour;
    });
    colour += kColours * int(used % kTints);
    colours.push_back(colour);
  }
  return colours;
}

std::string colour_class(int colour) {
  if (colour == kGrey) return "grey";
  const int tint = colour / kColours % kTints;
  return fmt::format("s{}{}", colour % kColours, tint > 0 ? fmt::format(" t{}", tint) : "");
}

}  // namespace horner
