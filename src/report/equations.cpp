#include "report/equations.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/check.h"
#include "mixers/mixer.h"
#include "report/html.h"
#include "report/maths.h"
#include "report/palette.h"

namespace horner {
namespace {

struct Equation {
  std::string text;
  int colour;
  std::vector<std::string> names;
};

// The equation with its settings, that of the list where D does not suit them; empty: no mixer of this version.
std::string equation_of(const NamedMixer& m) {
  std::string text;
  try {
    const MixerSpec spec = MixerSpec::parse(m.spec);
    text = find_mixer(spec.name).equation;
    text = make_mixer(spec, m.D)->equation(text);
  } catch (const UsageError&) {  // what is known so far
  }
  return text;
}

}  // namespace

std::string equations(const std::vector<NamedMixer>& mixers) {
  std::vector<Equation> all;
  for (const NamedMixer& m : mixers) {
    const std::string text = equation_of(m);
    if (text.empty()) continue;
    const int colour = mixer_colour(m.spec);
    auto same = std::find_if(all.begin(), all.end(), [&](const Equation& e) {
      return e.text == text && e.colour == colour;
    });
    if (same == all.end()) same = all.insert(all.end(), {text, colour, {}});
    if (std::find(same->names.begin(), same->names.end(), m.name) == same->names.end())
      same->names.push_back(m.name);
  }
  std::string body;
  for (const Equation& e : all)
    body += fmt::format(
        "<p><i class=\"swatch {}\"></i>{}</p>\n{}",
        colour_class(e.colour),
        escape(fmt::format("{}", fmt::join(e.names, ", "))),
        maths(e.text)
    );
  return body.empty() ? "" : folded("The equations", body);
}

}  // namespace horner
