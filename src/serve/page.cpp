#include "serve/page.h"

#include "report/assets.h"

namespace horner {

std::optional<ApiReply> page_reply(const std::string& path) {
  const Asset* asset = path == "/"           ? &chat_html
                       : path == "/chat.css" ? &chat_css
                       : path == "/chat.js"  ? &chat_js
                                             : nullptr;
  if (!asset) return {};
  ApiReply reply;
  reply.body = asset->text;
  reply.type = asset == &chat_html  ? "text/html; charset=utf-8"
               : asset == &chat_css ? "text/css; charset=utf-8"
                                    : "text/javascript; charset=utf-8";
  reply.headers = {
      {"Cache-Control", "no-cache"},
      {"Referrer-Policy", "no-referrer"},
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
       "data:; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}};
  return reply;
}

}  // namespace horner
