// Equations as mixers write them, in ASCII, typeset: as MathML that a browser shows without a script, or as TeX for Markdown.
//
//   S_t = a S_{t-1} + k_t^T v_t, o_t = q_t S_t / eta(x_t)
//
//   _ and ^ take a word, a number or {..}; "a / b" with spaces is a fraction, "a/b" is not; "." between
//   names is a product; a comma outside of brackets starts a new line; other words are words.
#pragma once

#include <string>

namespace horner {

std::string maths(const std::string& equation);  // HTML: a block with a line per equation
std::string tex(const std::string& equation);    // TeX: lines joined by a comma and a space

}  // namespace horner
