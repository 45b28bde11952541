# Run as a script: copies HEADERS of SOURCE, and what they include, to OUTPUT/include/horner.
#
#   OUTPUT/include/horner/ops/op.h    its line #include "core/json.h" becomes #include <horner/core/json.h>, so that a
#                                     user's include path gets no folder with a name like "core"
#   OUTPUT/include/horner/horner.h    includes HEADERS
#   OUTPUT/public.map                 a linker script's patterns of the symbols that these headers declare
#   OUTPUT/headers.d                  what was read, for Ninja
#
# A public function is a declaration that begins in column 0: `Result run(...)`. A public type is a struct or class in
# column 0. Names are mangled as in the Itanium ABI: horner::run is _ZN6horner3runE, then its arguments.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${OUTPUT}/include")
set(waiting ${HEADERS})
set(seen "")
set(patterns "")

function(mangle name result)
  string(LENGTH "${name}" length)
  set(${result} "6horner${length}${name}" PARENT_SCOPE)
endfunction()

while(waiting)
  list(POP_FRONT waiting header)
  if(header IN_LIST seen)
    continue()
  endif()
  list(APPEND seen "${header}")
  file(READ "${SOURCE}/${header}" text)
  string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${text}")
  list(TRANSFORM includes REPLACE "#include \"(.+)\"" "\\1")
  list(APPEND waiting ${includes})
  string(REGEX REPLACE "#include \"([^\"]+)\"" "#include <horner/\\1>" text "${text}")
  file(WRITE "${OUTPUT}/include/horner/${header}" "${text}")

  string(REGEX MATCHALL "\n[A-Za-z][A-Za-z0-9_:<>,&* ]*[ &*][a-z][a-z0-9_]*\\(" functions "${text}")
  list(TRANSFORM functions REPLACE ".*[ &*]([a-z][a-z0-9_]*)\\(" "\\1")
  foreach(name IN LISTS functions)
    mangle(${name} mangled)
    list(APPEND patterns "_ZN${mangled}E*" "_ZN${mangled}B5cxx11E*")
  endforeach()
  string(REGEX MATCHALL "\n(struct|class) [A-Za-z0-9]+ [^;\n]*{" types "${text}")
  list(TRANSFORM types REPLACE "\n(struct|class) ([A-Za-z0-9]+) .*" "\\2")
  foreach(name IN LISTS types)
    mangle(${name} mangled)
    list(APPEND patterns "_ZN${mangled}*" "_ZNK${mangled}*" "_ZT?N${mangled}*")
  endforeach()
endwhile()

set(text "// Everything that Horner offers to C++ programs. docs/cpp.md is the reference.\n#pragma once\n\n")
foreach(header IN LISTS HEADERS)
  string(APPEND text "#include <horner/${header}>\n")
endforeach()
file(WRITE "${OUTPUT}/include/horner/horner.h" "${text}")

list(REMOVE_DUPLICATES patterns)
list(SORT patterns)
list(JOIN patterns ";\n    " patterns)
file(WRITE "${OUTPUT}/public.map" "${patterns};\n")
list(TRANSFORM seen PREPEND "${SOURCE}/")
list(JOIN seen " " seen)
file(WRITE "${OUTPUT}/headers.d" "${OUTPUT}/public.map: ${seen}\n")
