// What `reproduce` found, as text, Markdown and a picture per claim.
#pragma once

#include "lab/reproduce/reproduce.h"
#include "report/svg.h"

namespace horner {

std::string text(const Reproduction&, size_t width);  // for a terminal of that width; 0: any
std::string markdown(const Reproduction&);            // for docs/results
std::string picture(const Reproduction&);  // an SVG file: arms with their intervals; empty: none
std::string page(const Reproduction&, const std::string& command);  // HTML

}  // namespace horner
