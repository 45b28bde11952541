// A mixer as a page of Markdown: equation, paper, when to use it, cost, map, settings.
#pragma once

#include "lab/explain/explain.h"
#include "mixers/mixer.h"

namespace horner {

constexpr int64_t kPageWidth = 1024;  // D of the sizes on a page

// `e`: the fresh mixer, looked at; its map is the picture NAME.svg beside the page.
std::string mixer_page(const MixerType& type, const Explanation& e);
std::string mixer_index();  // README.md of the folder: every mixer in a line

}  // namespace horner
