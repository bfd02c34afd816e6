#include "collectives/hosts/direct.h"

#include "collectives/hosts/bcube.h"

namespace nezha {

Schedule direct(int rank, int size) { return bcube(rank, std::vector<int>{size}); }

}  // namespace nezha
