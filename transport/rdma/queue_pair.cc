// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"

namespace nezha::rdma {
namespace {

absl::Status pair_error(const Adapter& adapter, absl::string_view what, int error) {
  return absl::AbortedError(
      absl::StrCat(adapter.choice().device, ": ", what, ": ", strerror(error)));
}

ibv_mtu enum_of(int bytes) {
  if (bytes >= 4096) return IBV_MTU_4096;
  if (bytes >= 2048) return IBV_MTU_2048;
  if (bytes >= 1024) return IBV_MTU_1024;
  return bytes >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

}  // namespace

absl::StatusOr<std::unique_ptr<QueuePair>> QueuePair::create(std::shared_ptr<Adapter> adapter,
                                                             const Depth& depth, Client* client) {
  std::unique_ptr<QueuePair> pair(new QueuePair(std::move(adapter), depth));
  if (absl::Status status = pair->open(client); !status.ok()) return status;
  return pair;
}

absl::Status QueuePair::open(Client* client) {
  const auto serial = adapter_->add(client, static_cast<int>(depth_.sends + depth_.receives));
  if (!serial.ok()) return serial.status();
  serial_ = *serial;
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = adapter_->completions();
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = 1;
  wanted.cap = {.max_send_wr = depth_.sends,
                .max_recv_wr = depth_.receives,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = kInline};
  pair_ = adapter_->verbs().create_qp(adapter_->domain(), &wanted);
  if (pair_ == nullptr) {  // a device may have no inline data
    wanted.cap.max_inline_data = 0;
    pair_ = adapter_->verbs().create_qp(adapter_->domain(), &wanted);
  }
  if (pair_ == nullptr) return pair_error(*adapter_, "making a queue pair", errno);
  most_inline_ = wanted.cap.max_inline_data;
  std::random_device random;
  first_packet_ = random() & 0xffffff;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = static_cast<uint8_t>(adapter_->choice().port.number);
  attributes.qp_access_flags = adapter_->sink_access() | IBV_ACCESS_REMOTE_READ;
  if (adapter_->choice().is_iwarp) {
    return modify(attributes, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, "start");
  }
  return modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                "start");
}

void QueuePair::destroy() noexcept {
  if (pair_ != nullptr) adapter_->verbs().destroy_qp(pair_);
  pair_ = nullptr;
  if (serial_ != 0) adapter_->remove(serial_);
  serial_ = 0;
}

Greeting QueuePair::greeting() const {
  const Choice& choice = adapter_->choice();
  return {.pair = pair_->qp_num,
          .first_packet = first_packet_,
          .gid = choice.gid.gid,
          .lid = choice.port.lid,
          .is_infiniband = choice.port.is_infiniband,
          .is_iwarp = choice.is_iwarp,
          .mtu = static_cast<uint8_t>(enum_of(choice.port.mtu)),
          .reads = adapter_->reads_answered()};
}

absl::Status QueuePair::modify(ibv_qp_attr& attributes, int mask, const char* to) {
  const int error = adapter_->verbs().modify_qp(pair_, &attributes, mask);
  if (error == 0) return absl::OkStatus();
  return pair_error(*adapter_, absl::StrCat("preparing a queue pair to ", to), error);
}

absl::Status QueuePair::connect(const Greeting& peers) {
  const Choice& choice = adapter_->choice();
  const int mtu = std::min(static_cast<int>(enum_of(choice.port.mtu)), static_cast<int>(peers.mtu));
  mtu_ = size_t{128} << mtu;
  most_reads_ = std::clamp(std::min<int>(adapter_->reads_asked(), peers.reads), 1, 16);
  if (choice.is_iwarp) return absl::OkStatus();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(mtu);
  attributes.dest_qp_num = peers.pair;
  attributes.rq_psn = peers.first_packet;
  attributes.max_dest_rd_atomic = adapter_->reads_answered();
  attributes.min_rnr_timer = 1;
  ibv_ah_attr& path = attributes.ah_attr;
  path.port_num = static_cast<uint8_t>(choice.port.number);
  path.dlid = peers.lid;
  path.is_global = choice.port.is_infiniband ? 0 : 1;
  path.grh.dgid = peers.gid;
  path.grh.sgid_index = static_cast<uint8_t>(choice.gid.index);
  path.grh.hop_limit = 64;
  absl::Status status = modify(attributes,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                               "receive");
  if (!status.ok()) return status;
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = first_packet_;
  attributes.timeout = kTimeout;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = 0;  // credits ensure that there is always a receive
  attributes.max_rd_atomic = static_cast<uint8_t>(most_reads_);
  return modify(attributes,
                IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
                "send");
}

absl::Status QueuePair::receive(uint32_t id, const ibv_sge& into) {
  if (pair_ == nullptr) return absl::CancelledError("the queue pair has ended");
  ibv_sge place = into;
  ibv_recv_wr work{};
  work.wr_id = whole_id(id);
  work.sg_list = &place;
  work.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  const int error = adapter_->verbs().post_recv(pair_, &work, &refused);
  return error == 0 ? absl::OkStatus() : pair_error(*adapter_, "posting a receive", error);
}

absl::Status QueuePair::send(uint32_t id, const ibv_sge& from) {
  ibv_sge place = from;
  ibv_send_wr work{};
  work.wr_id = whole_id(id);
  work.sg_list = &place;
  work.num_sge = 1;
  work.opcode = IBV_WR_SEND;
  if (from.length <= most_inline_) work.send_flags = IBV_SEND_INLINE;
  return post(work);
}

absl::Status QueuePair::read(uint32_t id, const ibv_sge& into, uint64_t address, uint32_t key) {
  ibv_sge place = into;
  ibv_send_wr work{};
  work.wr_id = whole_id(id);
  work.sg_list = &place;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_READ;
  work.wr.rdma = {.remote_addr = address, .rkey = key};
  return post(work);
}

absl::Status QueuePair::post(ibv_send_wr& work) {
  if (pair_ == nullptr) return absl::CancelledError("the queue pair has ended");
  ibv_send_wr* refused = nullptr;
  const int error = adapter_->verbs().post_send(pair_, &work, &refused);
  return error == 0 ? absl::OkStatus() : pair_error(*adapter_, "posting a send", error);
}

}  // namespace nezha::rdma
