// pslite FLOATS CLOCKS: the clocks of bench_plane.sh by ps-lite, for peers.sh.  One of three
// roles, by DMLC_ROLE: a server, which adds up what all workers push, steps once by momentum
// and answers; workers, each of which pushes so many floats and pulls the parameters; and
// the scheduler, which they meet by.  The first worker prints "clock S", a median.
//
// Larger models travel by keys of a million floats, each pulled as soon as its push is
// answered, so that both directions and the server are at work at once.
#include "ps/ps.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;

constexpr size_t kFloats = 1 << 20; // of a key

struct Server {
	explicit Server(size_t n) : sum(n), state(n), params(n) {}

	void Handle(const ps::KVMeta &meta, const ps::KVPairs<float> &data,
		    ps::KVServer<float> *server) {
		const size_t key = data.keys[0], from = key * kFloats;
		const size_t n = std::min(kFloats, sum.size() - from);
		ps::KVPairs<float> out;
		if (!meta.push) {
			out.keys = data.keys;
			out.vals = params.segment(from, from + n); // shared, not copied
			out.lens = {static_cast<int>(n)};
			server->Response(meta, out);
			return;
		}
		const float *v = data.vals.data();
		float *to = sum.data() + from;
		auto &wait = waiting[key];
		for (size_t i = 0; i < n; i++)
			to[i] = wait.empty() ? v[i] : to[i] + v[i];
		wait.push_back(meta);
		if (wait.size() < static_cast<size_t>(ps::NumWorkers()))
			return;
		float *p = params.data() + from, *slot = state.data() + from;
		for (size_t i = 0; i < n; i++) {
			slot[i] = 0.9f * slot[i] + to[i];
			p[i] -= 1e-6f * slot[i];
		}
		for (const auto &m : wait)
			server->Response(m, out);
		wait.clear();
	}

	std::vector<float> sum, state;
	ps::SArray<float> params;
	std::map<size_t, std::vector<ps::KVMeta>> waiting; // by key
};

void Work(size_t n, int clocks) {
	const size_t keys = (n + kFloats - 1) / kFloats;
	ps::KVWorker<float> kv(0, 0);
	ps::SArray<float> grad(n, 1e-3f), params(n);
	std::vector<ps::SArray<float>> grads, to;
	std::vector<ps::SArray<ps::Key>> key;
	std::vector<ps::SArray<int>> len;
	for (size_t k = 0; k < keys; k++) {
		const size_t from = k * kFloats, end = std::min(n, from + kFloats);
		grads.push_back(grad.segment(from, end));
		to.push_back(params.segment(from, end));
		key.emplace_back(1, static_cast<ps::Key>(k));
		len.emplace_back(1, static_cast<int>(end - from));
	}
	std::vector<double> took;
	for (int i = 0; i < clocks; i++) {
		const auto from = clock_type::now();
		std::vector<int> push, pull;
		for (size_t k = 0; k < keys; k++)
			push.push_back(kv.ZPush(key[k], grads[k], len[k]));
		for (size_t k = 0; k < keys; k++) {
			kv.Wait(push[k]);
			pull.push_back(kv.ZPull(key[k], &to[k], &len[k]));
		}
		for (int p : pull)
			kv.Wait(p);
		took.push_back(std::chrono::duration<double>(clock_type::now() - from).count());
	}
	std::sort(took.begin(), took.end());
	if (ps::MyRank() == 0)
		std::printf("clock %.9g\n", took[(took.size() - 1) / 2]);
}

} // namespace

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	const size_t n = std::strtoul(argv[1], nullptr, 10);
	Server state(ps::Environment::Get()->find("DMLC_ROLE") == std::string("server") ? n : 0);
	ps::Start(0);
	ps::KVServer<float> *server = nullptr;
	if (ps::IsServer()) {
		server = new ps::KVServer<float>(0);
		server->set_request_handle(
			[&state](const ps::KVMeta &m, const ps::KVPairs<float> &d,
				 ps::KVServer<float> *s) { state.Handle(m, d, s); });
		ps::RegisterExitCallback([server]() { delete server; });
	}
	if (ps::IsWorker())
		Work(n, std::atoi(argv[2]));
	ps::Finalize(0, true);
	return 0;
}
