# figures.bash: for benches in bash that take their figures in turns; $dir is then a folder
# of theirs, and $bench what figures begin with.

# say NAME VALUE UNIT [TARGET]: a figure; the target is the most that it should be, or, with
# a + before it, the least.
say() {
	printf '%-36s %12.4g %s\n' "$bench.$1" "$2" "$3"
	[ -z "${4-}" ] || awk -v name="$1" -v v="$2" -v t="$4" 'BEGIN {
		least = t ~ /^[+]/; sub(/^[+]/, "", t); v += 0; t += 0
		printf "target %s %s: %s: %s\n", least ? ">=" : "<=", t, name,
			(least ? v >= t : v <= t) ? "met" : "missed" }'
}

# keep FILE VALUE: of a turn; middle FILE: the median of them.
keep() { echo "$2" >>"$dir/$1.turns"; }
middle() { sort -g "$dir/$1.turns" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
calc() { awk "BEGIN { printf \"%.9g\", $1 }"; }

# value NAME: of the lines "name value unit".
value() { awk -v name="$1" '$1 == name { print $2 }'; }

# took TRACE: seconds of a median clock, of what a worker computed in one, and clocks.
took() {
	jq -rs 'def median: sort | .[(length - 1) / 2 | floor];
		(map(select(.ev == "update").t)) as $t |
		[([range(3; $t | length) as $v | $t[$v] - $t[$v - 1]] | median),
		(map(select(.ev == "clock" and .clock > 2).compute) | median),
		($t | length)] | @tsv' "$1"
}

# at_listen: ${at[@]} is what falcon-ps is told: to be at $listen, or, by TCP, at a free port.
at_listen() {
	at=(-l "${listen:-127.0.0.1:0}")
	[ -n "${listen-}" ] || at+=(--seal-all)
}

# images MODEL WORKERS: a job on Fashion-MNIST by so many workers of one lane, a task of 64
# for each in a clock, at $listen, or by TCP; $rate: samples a second.  Not in a
# subshell, which would not end what it began.
images() {
	local i time at model=$1 workers=$2 batch=$((64 * $2))
	at_listen
	rm -rf "$dir/fashion"
	serve ps "$bin/falcon-ps" -x -K "$dir/keys/keyring" "${at[@]}" -s "$dir/fashion" \
		-w "$workers" --set model.file="../models/$model" --set job.epochs=1 \
		--set job.eval=never --set schedule.warmup=0 --set batch.size="$batch" \
		--set batch.task=64 --set data.samples=$((500 * batch < 60000 ? 500 * batch : 60000)) \
		--set state.clocks=0 --set state.seconds=0 \
		share/jobs/fashion.job >/dev/null 2>"$dir/ps.err"
	for ((i = 0; i < workers; i++)); do
		member "$model.$i" "$bin/falcon-work" -k "$dir/keys/work.key" -n "w$i" \
			--lanes 1 --cache "$dir/cache.$i" "$address"
	done
	done_by ps
	for ((i = 0; i < workers; i++)); do
		done_by "$model.$i"
	done
	read -r time _ < <(took "$dir/fashion/trace.jsonl")
	rate=$(calc "$batch / $time")
}
