# cable.bash: hosts that are network namespaces, and cables between them of a rate and a
# time, for benches that run as root, with share/crew and its $dir, and with $bin, which has
# bench/delay.  The hosts are theirs, with names that nobody else has, and they remove them.
# shellcheck disable=SC2154 # those two

# cable HOST ADDRESS HOST ADDRESS MBIT MS: lays one between two hosts that there are, each
# with its address of /24; so many Mbit/s each way, and so many ms there and back.  Each
# host's end is called `cable`.  Fails: that is refused.
cable() {
	local host
	ip link add cable netns "$1" type veth peer name cable netns "$3" &&
		ip -n "$1" addr add "$2/24" dev cable &&
		ip -n "$3" addr add "$4/24" dev cable || return
	for host in "$1" "$3"; do
		ip -n "$host" link set lo up && ip -n "$host" link set cable up &&
			tc -n "$host" qdisc replace dev cable root \
				tbf rate "$5mbit" burst 32kb latency 400ms &&
			later "$host" cable "$6" || return
	done
}

# later HOST CABLE MS: half of this is the time that what comes in by it has been under way.
later() {
	local said fd
	ip netns exec "$1" iptables-legacy -t mangle -A PREROUTING -i "$2" \
		-j NFQUEUE --queue-num 1 || return
	mkfifo "$dir/delay.$1"
	exec {fd}<>"$dir/delay.$1"
	member "delay.$1" ip netns exec "$1" "$bin/bench/delay" 1 \
		"$(awk -v ms="$3" 'BEGIN { print ms / 2 }')" >&"$fd"
	read -r -t 20 -u "$fd" said && [ "$said" = ready ]
}

# passed HOST CABLE: the bytes that have come in and gone out there by now.
passed() {
	ip -n "$1" -s -j link show "$2" | jq '.[0].stats64 | .rx.bytes + .tx.bytes'
}
