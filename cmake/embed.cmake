# Run as a script: writes OUTPUT, a C++ file with the text of FILES and their SHA-256, for report/assets.h.
#
#   page.css -> const Asset kPageCss{R"(...)", "e3b0c4..."}
set(text "#include \"report/assets.h\"\nnamespace horner {\n")
foreach(path IN LISTS FILES)
  file(READ "${path}" content)
  file(SHA256 "${path}" hash)
  if(content MATCHES "\\)asset\"")
    message(FATAL_ERROR "${path} holds )asset\", which ends the C++ string that it becomes")
  endif()
  get_filename_component(name "${path}" NAME)
  string(REGEX REPLACE "[^A-Za-z0-9]" "_" name "${name}")
  string(APPEND text "const Asset ${name}{R\"asset(${content})asset\", \"${hash}\"};\n")
endforeach()
string(APPEND text "}  // namespace horner\n")
file(WRITE "${OUTPUT}" "${text}")
