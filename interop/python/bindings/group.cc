// SPDX-License-Identifier: Apache-2.0
#include "bindings/group.h"

#include <nezha/errors.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "bindings/arguments.h"
#include "bindings/gil.h"
#include "bindings/reports.h"
#include "bindings/stores.h"

namespace nezha::python {
namespace {

// Returns the groups that are open. The list is guarded by the GIL, and never destroyed.
std::vector<Group*>& open_groups() {
  static auto& groups = *new std::vector<Group*>;
  return groups;
}

bool is_ending = false;  // guarded by the GIL

// Runs at the end of the interpreter, while all threads still get the GIL.
void close_all() {
  is_ending = true;
  while (!open_groups().empty()) open_groups().back()->close();
}

void check_not_ending() {
  if (is_ending) throw InvalidArgument("nezha: the program ends, and has closed all its contexts");
}

// A daemon thread may come here with a context after close_all(). Nothing could close that context:
// its threads, which may call a store in Python, sleep once the interpreter has ended.
std::shared_ptr<Group> group_of(std::shared_ptr<Context> context) {
  if (is_ending) without_gil([&] { context.reset(); });
  check_not_ending();
  return std::make_shared<Group>(std::move(context));
}

std::shared_ptr<Context> join(py::handle store, const ContextOptions& options) {
  check_not_ending();
  auto attentive = std::make_shared<AttentiveStore>(store_of(store));
  return without_gil([&, store = std::move(attentive)]() mutable {
    auto context = Context::create(store, options);
    std::exchange(store, nullptr)->release();
    return context;
  });
}

std::shared_ptr<Group> create(py::handle store, py::handle rank, py::handle size,
                              const std::vector<std::string>& rails, py::handle timeout,
                              py::handle plan_name, const std::vector<double>& shares,
                              py::handle policy_name, py::handle polling_name,
                              const std::string& table, const std::string& ports) {
  constexpr int kMost = std::numeric_limits<int>::max();
  ContextOptions options;
  if (!rank.is_none()) options.rank = static_cast<int>(integer(rank, "rank", 0, kMost));
  if (!size.is_none()) options.size = static_cast<int>(integer(size, "size", 1, kMost));
  options.rails = rails;
  options.timeout = deadline(timeout, "timeout");
  options.plan = plan(plan_name);
  options.shares = shares;
  options.policy = policy(policy_name);
  options.polling = polling(polling_name);
  options.table = table;
  options.ports = ports;
  return group_of(join(store, options));
}

std::shared_ptr<Group> split(const Group& group, py::handle color, py::handle key) {
  const int group_color =
      color.is_none()
          ? Context::kNoColor
          : static_cast<int>(integer(color, "color", 0, std::numeric_limits<int>::max()));
  const int place = static_cast<int>(
      integer(key, "key", std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
  auto made = without_gil([&, context = group.open()]() mutable {
    return std::exchange(context, nullptr)->split(group_color, place);
  });
  return made == nullptr ? nullptr : group_of(std::move(made));
}

template <typename Report>
py::object report(const Group& group, Report (Context::*ask)() const) {
  return to_python(without_gil(
      [&, context = group.open()]() mutable { return (*std::exchange(context, nullptr).*ask)(); }));
}

}  // namespace

bool is_over(const Handle& handle) {
  try {
    return handle.test();
  } catch (const InvalidArgument&) {
    return true;
  }
}

Group::Group(std::shared_ptr<Context> context)
    : context_(std::move(context)),
      rank_(context_->rank()),
      size_(context_->size()),
      timeout_(context_->timeout()) {
  open_groups().push_back(this);
}

Group::~Group() { close(); }

std::shared_ptr<Context> Group::open() const {
  if (context_ == nullptr) throw InvalidArgument("nezha: the context is closed");
  return context_;
}

void Group::close() {
  auto& groups = open_groups();
  groups.erase(std::remove(groups.begin(), groups.end(), this), groups.end());
  auto context = std::exchange(context_, nullptr);
  auto adopted = std::exchange(adopted_, {});
  without_gil([&] {
    context.reset();
    for (Adopted& each : adopted) Handle(std::move(each.handle));  // gives up what is not over
  });
}

void Group::adopt(Handle handle, Buffers buffers) {
  adopted_.push_back({std::move(handle), std::move(buffers)});
}

void Group::sweep() {
  const auto is_done = [](const Adopted& each) { return is_over(each.handle); };
  adopted_.erase(std::remove_if(adopted_.begin(), adopted_.end(), is_done), adopted_.end());
}

py::class_<Group, std::shared_ptr<Group>> add_group(py::module_& module) {
  module.def("close_all", close_all);
  py::class_<Group, std::shared_ptr<Group>> group(module, "Context");
  group.def(py::init(&create))
      .def("split", &split)
      .def("close", &Group::close)
      .def("rails", [](const Group& self) { return report(self, &Context::rails); })
      .def("balance", [](const Group& self) { return report(self, &Context::balance); })
      .def_property_readonly("closed", &Group::is_closed)
      .def_property_readonly("rank", &Group::rank)
      .def_property_readonly("size", &Group::size)
      .def_property_readonly("timeout", [](const Group& self) {
        return static_cast<double>(self.timeout().count()) / 1000;
      });
  return group;
}

}  // namespace nezha::python
