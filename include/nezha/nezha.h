// SPDX-License-Identifier: Apache-2.0
/// All of nezha's public headers.
#pragma once

#include "nezha/algorithm.h"
#include "nezha/allgather.h"
#include "nezha/allreduce.h"
#include "nezha/alltoall.h"
#include "nezha/barrier.h"
#include "nezha/broadcast.h"
#include "nezha/context.h"
#include "nezha/environment.h"
#include "nezha/errors.h"
#include "nezha/gather.h"
#include "nezha/handle.h"
#include "nezha/interfaces.h"
#include "nezha/launch.h"
#include "nezha/redis_store.h"
#include "nezha/reduce.h"
#include "nezha/reduce_scatter.h"
#include "nezha/scatter.h"
#include "nezha/send_recv.h"
#include "nezha/types.h"
#include "nezha/version.h"
