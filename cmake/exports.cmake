# Run as a script: writes OUTPUT, the version script of the package's libhorner.so.
#
#   HORNER_0.1      the public symbols, from the file PUBLIC
#   HORNER_PRIVATE  what libhorner_cuda.so (CUDA; empty: there is none) takes from libhorner.so: no public header declares it
#   all others      are hidden: symbols of torch's and JSON's templates too, which must not meet those of another library
cmake_minimum_required(VERSION 3.25)
file(READ "${PUBLIC}" public)
set(text "HORNER_${VERSION} {\n  global:\n    ${public}  local: *;\n};\n")
if(CUDA)
  execute_process(COMMAND "${NM}" -D --undefined-only "${CUDA}" OUTPUT_VARIABLE undefined
    COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "_Z[A-Za-z0-9]*(6horner|3fmt)[A-Za-z0-9_]*" names "${undefined}")
  # A name without a wildcard goes before one with, so what is public must not stand here.
  string(REGEX REPLACE "[ \n]" "" patterns "${public}")
  list(TRANSFORM patterns REPLACE "\\*$" ".*")
  foreach(pattern IN LISTS patterns)
    list(FILTER names EXCLUDE REGEX "^${pattern}$")
  endforeach()
  list(JOIN names ";\n    " names)
  string(APPEND text "HORNER_PRIVATE {\n  global:\n    ${names};\n} HORNER_${VERSION};\n")
endif()
file(WRITE "${OUTPUT}" "${text}")
