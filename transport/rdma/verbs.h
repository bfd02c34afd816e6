// SPDX-License-Identifier: Apache-2.0
// The functions of libibverbs that the rdma rail calls. They are in a table, so that a unit test
// can replace them on a machine without an RDMA device.
#pragma once

#include <infiniband/verbs.h>

namespace nezha::rdma {

// Each entry does what ibv_NAME(3) does; ibv_query_device(3) and the others say what they return.
struct Verbs {
  ibv_device** (*get_device_list)(int* count);
  void (*free_device_list)(ibv_device** list);
  const char* (*get_device_name)(ibv_device* device);
  ibv_context* (*open_device)(ibv_device* device);
  int (*close_device)(ibv_context* context);
  int (*query_device)(ibv_context* context, ibv_device_attr* attributes);
  int (*query_port)(ibv_context* context, uint8_t port, ibv_port_attr* attributes);
  ssize_t (*query_gid_table)(ibv_context* context, ibv_gid_entry* entries, size_t count);
  ibv_fork_status (*is_fork_initialized)();
  int (*get_async_event)(ibv_context* context, ibv_async_event* event);
  void (*ack_async_event)(ibv_async_event* event);

  ibv_pd* (*alloc_pd)(ibv_context* context);
  int (*dealloc_pd)(ibv_pd* domain);
  ibv_mr* (*reg_mr)(ibv_pd* domain, void* memory, size_t bytes, int access);
  int (*dereg_mr)(ibv_mr* region);

  ibv_comp_channel* (*create_comp_channel)(ibv_context* context);
  int (*destroy_comp_channel)(ibv_comp_channel* channel);
  ibv_cq* (*create_cq)(ibv_context* context, int entries, void* user, ibv_comp_channel* channel);
  int (*resize_cq)(ibv_cq* queue, int entries);
  int (*destroy_cq)(ibv_cq* queue);
  int (*poll_cq)(ibv_cq* queue, int count, ibv_wc* completions);
  int (*req_notify_cq)(ibv_cq* queue, int solicited_only);
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** queue, void** user);
  void (*ack_cq_events)(ibv_cq* queue, unsigned count);

  ibv_qp* (*create_qp)(ibv_pd* domain, ibv_qp_init_attr* attributes);
  int (*modify_qp)(ibv_qp* pair, ibv_qp_attr* attributes, int mask);
  int (*destroy_qp)(ibv_qp* pair);
  int (*post_send)(ibv_qp* pair, ibv_send_wr* work, ibv_send_wr** refused);
  int (*post_recv)(ibv_qp* pair, ibv_recv_wr* work, ibv_recv_wr** refused);
};

// Returns the library's own functions.
const Verbs& libibverbs();

}  // namespace nezha::rdma
