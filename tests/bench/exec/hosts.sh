#!/bin/bash
# hosts.sh: LeNet-5 on Fashion-MNIST by the trainer in PyTorch of examples/ on unequal hosts with
# 1 Gbit/s each, one worker on each: the time to the same loss, and of all updates, under EPSP and
# by PyTorch's DistributedDataParallel over Gloo.  The hosts are network namespaces; both take the
# time of machines of RATE samples a second times their SPEEDS.
#
# The loss is the mean of that of 8 updates, of 256 samples each; LOSS is where to.
# BENCH_HOSTS=1: without namespaces, on the loopback.  FALCON_BIN names the folder of the
# programs.
set -euo pipefail
cd "$(dirname "$0")/../../.."
bin=${FALCON_BIN:-build/release}
rate=${RATE:-400} to=${LOSS:-0.9} updates=${UPDATES:-80}
read -ra speeds <<<"${SPEEDS:-1 1/2 1/4}"
export PYTHONPATH=share PYTHONDONTWRITEBYTECODE=1 LR=0.05
trainer=examples/exec/fashion.py
hosts=()
. share/crew
clean_up() {
	dismiss
	for host in "${hosts[@]}"; do
		ip netns del "$host"
	done
	rm -rf "$dir"
}

# make_hosts: a namespace for each, and one for the switch between them; 1: not here.
make_hosts() {
	local switch=falcon-switch.$$ host i
	ip netns add "$switch" && hosts+=("$switch") &&
		ip -n "$switch" link add bridge type bridge && ip -n "$switch" link set bridge up || return
	for i in "${!speeds[@]}"; do
		host=falcon-$i.$$
		ip netns add "$host" && hosts+=("$host") &&
			ip link add wire netns "$host" type veth peer name "wire$i" netns "$switch" &&
			ip -n "$host" addr add "10.77.0.$((i + 1))/24" dev wire &&
			ip -n "$host" link set lo up && ip -n "$host" link set wire up &&
			ip -n "$switch" link set "wire$i" master bridge up || return
		tc -n "$host" qdisc add dev wire root tbf rate 1gbit burst 128kb latency 50ms &&
			tc -n "$switch" qdisc add dev "wire$i" root tbf rate 1gbit burst 128kb \
				latency 50ms || return
	done
}

# at HOST COMMAND...: in a shell of its own, which becomes the command: who ends the one
# ends the other.
at() {
	local host=$1
	shift
	[ ${#hosts[@]} -eq 0 ] || set -- ip netns exec "${hosts[host + 1]}" "$@"
	exec "$@"
}

if [ "${BENCH_HOSTS:-2}" = 1 ]; then
	master=127.0.0.1
elif make_hosts 2>"$dir/why"; then
	master=10.77.0.1 GLOO_SOCKET_IFNAME=wire
	export GLOO_SOCKET_IFNAME
else
	echo "hosts: NOT SHOWN: $(tail -n 1 "$dir/why")"
	exit 0
fi

"$bin/falcon-key" init "$dir/keys"
serve ps at 0 "$bin/falcon-ps" -x -K "$dir/keys/keyring" -l "$master:0" -s "$dir/ps" \
	-w "${#speeds[@]}" --set job.epochs=1 --set job.eval=never --set schedule.min-lr=$LR \
	--set schedule.warmup=0 --set data.samples=$((updates * 256)) --set optimizer.lr=$LR \
	share/jobs/fashion.job >/dev/null 2>"$dir/ps.err"
workers=() ranks=()
for i in "${!speeds[@]}"; do
	workers+=("w$i") ranks+=("r$i")
	member "w$i" at "$i" "$bin/falcon-work" -k "$dir/keys/work.key" -n "w$i" \
		--cache none --exec "exec /usr/bin/python3 $trainer" \
		--emulate "rate=$rate,cores=1,speed=${speeds[i]}" "$address"
done
done_by ps "${workers[@]}"
jq -r 'select(.ev == "update") | "\(.t) \(.loss)"' "$dir/ps/trace.jsonl" >"$dir/epsp"
# From where all are here: the end of the first update, less what each later one took.
begin=$(jq -s '[.[] | select(.ev == "join")] | last.t' "$dir/ps/trace.jsonl")

export WORLD_SIZE=${#speeds[@]} MASTER_ADDR=$master MASTER_PORT=29500
for i in "${!speeds[@]}"; do
	RANK=$i member "r$i" at "$i" /usr/bin/python3 tests/bench/exec/ddp.py \
		"$(awk "BEGIN { print $rate * ${speeds[i]} }")" 256 "$updates" \
		"$trainer" >"$dir/ddp.$i"
done
done_by "${ranks[@]}"

# reached FILE BEGIN: seconds until the mean loss of 8 updates is small enough.
reached() {
	awk -v to="$to" -v begin="$2" '
	{ sum += $2 - last[NR % 8]; last[NR % 8] = $2 }
	NR >= 8 && sum / 8 <= to { print $1 - begin; found = 1; exit }
	END { exit !found }' "$1" || {
		echo "hosts: ${1##*/}: the loss never was $to" >&2
		exit 1
	}
}
# ended FILE BEGIN: seconds of all updates.
ended() {
	awk -v begin="$2" 'END { print $1 - begin }' "$1"
}
epsp=$(reached "$dir/epsp" "$begin")
ddp=$(reached "$dir/ddp.0" 0)
awk -v epsp="$epsp" -v ddp="$ddp" -v loss="$to" -v epsp_all="$(ended "$dir/epsp" "$begin")" \
	-v ddp_all="$(ended "$dir/ddp.0" 0)" 'BEGIN {
	form = "%-36s %12.4f %s\n"
	printf form, "exec.hosts.loss", loss, "nats"
	printf form, "exec.hosts.epsp", epsp, "s"
	printf form, "exec.hosts.ddp", ddp, "s"
	printf form, "exec.hosts.ddp-to-epsp", ddp / epsp, "ratio"
	printf form, "exec.hosts.all.epsp", epsp_all, "s"
	printf form, "exec.hosts.all.ddp", ddp_all, "s"
	printf form, "exec.hosts.all.ddp-to-epsp", ddp_all / epsp_all, "ratio" }'
