#include "report/bands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "report/claims.h"
#include "report/palette.h"
#include "report/rich_text.h"

namespace horner {
namespace {

struct Banded {
  std::string setting, statement;  // of "setting: statement: in [low, high]"
  double low = 0, high = 0;
};

bool read(const std::string& text, Banded& b) {
  const size_t band = text.rfind(": in [");
  if (band == std::string::npos ||
      std::sscanf(text.c_str() + band, ": in [%lf, %lf]", &b.low, &b.high) != 2 ||
      !(b.low < b.high))
    return false;
  const std::string all = text.substr(0, band);
  const size_t colon = all.find(": ");
  b.setting = colon == std::string::npos ? "" : all.substr(0, colon);
  b.statement = colon == std::string::npos ? all : all.substr(colon + 2);
  return true;
}

// Blue in the band, red outside, grey across an edge: slots of softmax and taylor, which no such picture shows.
int colour_of(Verdict verdict) {
  return verdict == Verdict::holds ? 0 : verdict == Verdict::does_not_hold ? 1 : kGrey;
}

}  // namespace

std::vector<Bars> band_pictures(const Finding& f) {
  std::vector<Bars> all;
  std::vector<std::string> settings;
  for (const Judgement& j : f.judgements) {
    Banded b;
    if (!read(j.text, b)) return {};
    if (!std::isfinite(b.high - b.low)) continue;  // one edge gives no scale
    auto at = std::find(settings.begin(), settings.end(), b.setting) - settings.begin();
    if (size_t(at) == settings.size()) {
      settings.push_back(b.setting);
      all.push_back(
          {fmt::format(
               "{}, {}{}", f.claim, scale_words(f), b.setting.empty() ? "" : ": " + b.setting
           ),
           {.label = "place in the band that the theory gives: 0 its middle, -1 and 1 its edges",
            .low = -1.5,
            .high = 1.5}}
      );
    }
    const double middle = (b.low + b.high) / 2, half = (b.high - b.low) / 2;
    const auto place = [&](double x) { return std::clamp((x - middle) / half, -1.5, 1.5); };
    all[size_t(at)].bars.push_back(
        {raised(b.statement),
         place(j.value.mean),
         place(j.value.low()),
         place(j.value.high()),
         with_interval(j.value),
         colour_of(j.verdict)}
    );
  }
  return all;
}

}  // namespace horner
