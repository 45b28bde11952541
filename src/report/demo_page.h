// The page of `horner demo`: losses, texts side by side, state and speed by the length of the context.
#pragma once

#include "lab/demo/demo.h"
#include "report/html.h"

namespace horner {

Page demo_page(const DemoResult& result);
std::string demo_verdict(const DemoResult& result);            // two sentences with the numbers
std::vector<std::string> demo_next(const DemoResult& result);  // commands to try

}  // namespace horner
