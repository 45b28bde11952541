// One colour per mixer in all pages: a table of names gives its slot of the palette (picture.css).
#pragma once

#include <string>
#include <vector>

namespace horner {

constexpr int kColours = 24;  // slots; slot + 24 n is the n-th tint of a slot
constexpr int kTints = 3;
constexpr int kGrey = -2;  // what no mixer made: baselines, a cache to compare with

// Of "gla", "gla:heads=2" or "conv gla", the last of a pattern.
int mixer_colour(const std::string& mixer);
int listed_colour(const std::string& label
);  // of the mixer it begins with, "Norm attention K=4"; kGrey: none
// Of mixers in one picture: the second and third of one slot get a tint of it.
std::vector<int> mixer_colours(const std::vector<std::string>& mixers);

std::string colour_class(int colour);  // "s3", "s3 t1", "grey"

}  // namespace horner
