// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/verbs.h"

namespace nezha::rdma {

// Lambdas wrap what is an inline function or a macro in libibverbs.
const Verbs& libibverbs() {
  static constexpr Verbs kVerbs = {
      .get_device_list = [](int* count) { return ibv_get_device_list(count); },
      .free_device_list = &ibv_free_device_list,
      .get_device_name = &ibv_get_device_name,
      .open_device = &ibv_open_device,
      .close_device = &ibv_close_device,
      .query_device = &ibv_query_device,
      .query_port =
          [](ibv_context* context, uint8_t port, ibv_port_attr* attributes) {
            return ibv_query_port(context, port, attributes);
          },
      .query_gid_table =
          [](ibv_context* context, ibv_gid_entry* entries, size_t count) {
            return ibv_query_gid_table(context, entries, count, 0);
          },
      .is_fork_initialized = &ibv_is_fork_initialized,
      .get_async_event = &ibv_get_async_event,
      .ack_async_event = &ibv_ack_async_event,
      .alloc_pd = &ibv_alloc_pd,
      .dealloc_pd = &ibv_dealloc_pd,
      .reg_mr = [](ibv_pd* domain, void* memory, size_t bytes,
                   int access) { return ibv_reg_mr(domain, memory, bytes, access); },
      .dereg_mr = &ibv_dereg_mr,
      .create_comp_channel = &ibv_create_comp_channel,
      .destroy_comp_channel = &ibv_destroy_comp_channel,
      .create_cq =
          [](ibv_context* context, int entries, void* user, ibv_comp_channel* channel) {
            return ibv_create_cq(context, entries, user, channel, 0);
          },
      .resize_cq = &ibv_resize_cq,
      .destroy_cq = &ibv_destroy_cq,
      .poll_cq = [](ibv_cq* queue, int count,
                    ibv_wc* completions) { return ibv_poll_cq(queue, count, completions); },
      .req_notify_cq = [](ibv_cq* queue,
                          int solicited_only) { return ibv_req_notify_cq(queue, solicited_only); },
      .get_cq_event = &ibv_get_cq_event,
      .ack_cq_events = &ibv_ack_cq_events,
      .create_qp = &ibv_create_qp,
      .modify_qp = &ibv_modify_qp,
      .destroy_qp = &ibv_destroy_qp,
      .post_send = [](ibv_qp* pair, ibv_send_wr* work,
                      ibv_send_wr** refused) { return ibv_post_send(pair, work, refused); },
      .post_recv = [](ibv_qp* pair, ibv_recv_wr* work,
                      ibv_recv_wr** refused) { return ibv_post_recv(pair, work, refused); },
  };
  return kVerbs;
}

}  // namespace nezha::rdma
