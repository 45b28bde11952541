# One test program from every *_test.cpp, one benchmark program, and their CTest entries.
# Labels: cpu, cuda (suites named *Cuda*), slow (suites named *Slow*, fuzzers), python.
enable_testing()
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_library(rapidcheck librapidcheck.a REQUIRED)

add_executable(horner_test ${tests})
target_link_libraries(horner_test PRIVATE horner_library GTest::gtest ${rapidcheck})
