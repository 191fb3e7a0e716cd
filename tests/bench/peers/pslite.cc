// pslite FLOATS CLOCKS: the clocks of bench_plane.sh by ps-lite, for peers.sh.  One of three
// roles, by DMLC_ROLE: a server, which adds up what all workers push, steps once by momentum
// and answers; workers, each of which pushes so many floats and pulls the parameters; and
// the scheduler, which they meet by.  The first worker prints "clock S", a median.
#include "ps/ps.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;

struct Server {
	explicit Server(size_t n) : sum(n), state(n), params(n) {}

	void Handle(const ps::KVMeta &meta, const ps::KVPairs<float> &data,
		    ps::KVServer<float> *server) {
		ps::KVPairs<float> out;
		if (!meta.push) {
			out.keys = data.keys;
			out.vals = params; // shared, not copied
			out.lens = {static_cast<int>(params.size())};
			server->Response(meta, out);
			return;
		}
		const float *v = data.vals.data();
		for (size_t i = 0; i < sum.size(); i++)
			sum[i] = waiting.empty() ? v[i] : sum[i] + v[i];
		waiting.push_back(meta);
		if (waiting.size() < static_cast<size_t>(ps::NumWorkers()))
			return;
		float *p = params.data();
		for (size_t i = 0; i < sum.size(); i++) {
			state[i] = 0.9f * state[i] + sum[i];
			p[i] -= 1e-6f * state[i];
		}
		for (const auto &m : waiting)
			server->Response(m, out);
		waiting.clear();
	}

	std::vector<float> sum, state;
	ps::SArray<float> params;
	std::vector<ps::KVMeta> waiting;
};

void Work(size_t n, int clocks) {
	ps::KVWorker<float> kv(0, 0);
	ps::SArray<ps::Key> key(1, 0);
	ps::SArray<int> len(1, static_cast<int>(n));
	ps::SArray<float> grad(n, 1e-3f), params(n);
	std::vector<double> took;
	for (int i = 0; i < clocks; i++) {
		const auto from = clock_type::now();
		kv.Wait(kv.ZPush(key, grad, len));
		kv.Wait(kv.ZPull(key, &params, &len));
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
