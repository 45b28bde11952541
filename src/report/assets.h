// Files of this folder and of serve/ that the build turns into strings (cmake/embed.cmake), with their hashes.
#pragma once

#include <string>

namespace horner {

struct Asset {
  const char* text;
  const char* sha256;  // 64 hexadecimal digits
};

extern const Asset picture_css, page_css, page_js;
extern const Asset chat_html, chat_css, chat_js;  // of serve/

// 'sha256-BASE64': how a Content-Security-Policy names the one inline script or style it allows.
std::string policy_hash(const Asset&);

}  // namespace horner
