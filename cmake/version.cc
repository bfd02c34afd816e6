// Holds libnezha's place: the library is the whole of the folders' archives, and CMake wants a
// source. `strings libnezha.so | grep nezha-version` names the version of a copy.
namespace {
[[gnu::used]] const char kVersion[] = "nezha-version " NEZHA_VERSION;
}  // namespace
