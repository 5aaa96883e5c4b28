# CMAKE_UNITY_BUILD=ON, as tools/build.sh sets it, compiles up to eight files of a room as one: headers are read and
# inline functions compiled once for all of them. Names in the anonymous namespaces of a room must then differ.

# A room is one static library, expedite_<name>, made of every .cpp in its folder.
# LINKS are the rooms and libraries that it stands on, visible to whoever links the room.
add_library(expedite_options INTERFACE)
target_include_directories(expedite_options INTERFACE ${CMAKE_SOURCE_DIR})
# gcc 12 sees overlapping copies in std::string's own code (-Wrestrict), where there are none.
target_compile_options(expedite_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  -Wno-sign-conversion -Wno-missing-field-initializers $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> -fno-math-errno)
if(EXPEDITE_SANITIZE)
  target_compile_options(expedite_options INTERFACE -fsanitize=${EXPEDITE_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(expedite_options INTERFACE -fsanitize=${EXPEDITE_SANITIZE})
endif()

# Code under a fuzzer reports what it covers.
if(EXPEDITE_FUZZ)
  target_compile_options(expedite_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

function(expedite_room name)
  cmake_parse_arguments(PARSE_ARGV 1 ROOM "" "" "LINKS")
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_library(expedite_${name} STATIC ${sources})
  target_link_libraries(expedite_${name} PUBLIC expedite_options ${ROOM_LINKS})
endfunction()

# One test program per room, expedite_<name>_test, made of every *_test.cpp in tests/<name>.
function(expedite_room_test name)
  cmake_parse_arguments(PARSE_ARGV 1 TEST "" "" "LINKS")
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*_test.cpp)
  add_executable(expedite_${name}_test ${sources})
  target_link_libraries(expedite_${name}_test PRIVATE ${TEST_LINKS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(expedite_${name}_test PRIVATE
    EXPEDITE_FIXTURES="${CMAKE_SOURCE_DIR}/tests/fixtures")
  gtest_discover_tests(expedite_${name}_test TEST_PREFIX ${name}: DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 300 LABELS unit)
endfunction()
