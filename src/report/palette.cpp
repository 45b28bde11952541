#include "report/palette.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "mixers/mixer.h"

namespace horner {

int listed_colour(const std::string& mixer) {
  std::string name = mixer.substr(0, mixer.find_first_of(": ,"));
  for (char& c : name) c = char(std::tolower(static_cast<unsigned char>(c)));  // papers write GLA
  const auto& list = mixers();
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].name == name) return int(i) % kColours;
  }
  return kGrey;
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
