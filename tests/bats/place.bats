# Which shard has which block: the trace's line, and what other shards would cost.

load common
load job
load tiny

# Five blocks: 4800, 300, 1200 and 4 parameters, each tensor in its own.
setup_file() {
	for_file
	tiny .
	printf 'input 16\ndense 300\nrelu\ndense 4\n' >tiny.model
	job=(--set job.epochs=6 --set model.block=tensor --set job.eval=never tiny.job)
	serve -w 2 --shards 2
	slow a 1
	slow b 0.5
	ended "$ps" ps
	cp "$state/trace.jsonl" trace
	stop_all
}

setup() {
	for_test
	trace=$BATS_FILE_TMPDIR/trace
}

# placements OPTION...: a line for each that falcon-proj knows of: its name, and the parts
# of the blocks, in per cent, on the shard that has most.
placements() {
	falcon-proj --json "$@" "$trace" >row
	jq -r '.placements[] | "\(.placement) \(.most * 100 | round)"' row
}

# rechained: the lines on stdin, chained anew.
rechained() {
	local h='' line body
	while IFS= read -r line; do
		body=${line%,'"h":'*}
		h=$(printf %s "$h$body" | b2sum -l 256 | cut -c -32)
		printf '%s,"h":"%s"}\n' "$body" "$h"
	done
}

# finds TEXT SED: the audit of the trace that sed has changed says so.
finds() {
	sed "$2" "$trace" | rechained >changed
	cmp -s changed "$trace" && return 1
	same "status" "$(falcon-stat --audit changed >out 2>&1 || echo $?)" 1
	has "$(<out)" "$1"
}

# measured SHARD: the trace, if workers had waited for this one four times as long as for
# the other; 0: for both alike.
measured() {
	jq -c --argjson slow "$1" 'if .ev == "shard" then
		(if .shard == $slow then 4 else 1 end) as $x |
		.took = .blocks * $x * 0.001 | .blame = ($x - 1) * 0.01 else . end' "$trace"
}

@test "the trace says where the blocks are" {
	jq -c 'select(.ev == "place") | [.map, .rule, .runs, .tensors]' "$trace" >is
	same "place" "$(<is)" \
		'[1,"blocks",[[1,0,2],[2,2,3]],[[0,4800],[8192,300],[12288,1200],[16384,4]]]'
	falcon-stat --audit "$trace"
}

@test "the audit holds the map against its rule" {
	finds "place: block 2 is on shard 1; by the rule blocks it is on 2" \
		's/"runs":\[\[1,0,2\],\[2,2,3\]\]/"runs":[[1,0,3],[2,3,2]]/'
	finds "place: no rule is called magic" '/"ev":"place"/s/"blocks"/"magic"/'
	finds "place: map 2, not 1" '/"ev":"place"/s/"map":1/"map":2/'
	# Not a map at all.
	sed 's/\[2,2,3\]/[2,2,2]/' "$trace" | rechained >changed
	same "status" "$(falcon-stat --audit changed >out 2>&1 || echo $?)" 2
	has "$(<out)" "runs: not each block once, in order"
}

@test "what-if: other shards, by each rule" {
	same "three" "$(placements --shards 3 | tr '\n' ' ')" \
		"blocks 40 mxnet 60 byteps 60 tensorflow 60 psld 40 "
	# One that takes ten times as long for a block has none with psld.
	same "two and a slow one" "$(placements --shards '2;1,speed=0.1' | tr '\n' ' ')" \
		"blocks 40 mxnet 60 byteps 60 tensorflow 60 psld 60 "
	jq -e '(.placements | map({(.placement): .}) | add) |
		.psld.slowest < .blocks.slowest and (.psld.slowest - .psld.bound | fabs) < 1e-6 and
		.psld.epoch_s <= .blocks.epoch_s' row
	falcon-proj --shards 3 "$trace" >out
	has "$(<out)" "shards = 3: "
	has "$(<out)" "3 shards of 5 blocks:"
}

@test "what-if: without a shard" {
	measured 0 >alike
	trace=alike
	same "one is left" "$(placements --without shard:2 | head -n 1)" "blocks 100"
	jq -e '.changes | length == 1 and .[0].what == "shard:2" and .[0].by_s >= 0' row
	# So it is, in whatever order tasks then go: each per cent of slowness gives another.
	for ((i = 0; i < 10; i++)); do
		jq -c --argjson i "$i" 'if .ev == "clock" and .worker == "b" then
			.task_s *= 1 + $i / 100 | del(.paces) else . end' alike |
			falcon-proj --json --without shard:2 - |
			jq -e '.changes[0].by_s >= 0'
	done
	same "two of three" "$(placements --shards 3 --without shard:1 | head -n 1)" "blocks 60"
}

@test "shards are as fast as they were, and who is waited for is named" {
	local slow other
	same "each shard has a row" \
		"$(falcon-stat --json "$trace" | jq -c '.shards | map([.shard, .blocks])')" \
		"[[1,2],[2,3]]"
	for slow in 1 2; do
		other=$((3 - slow))
		measured $slow >slow.jsonl
		falcon-proj --json slow.jsonl >row
		jq -e '.findings | map(select(.kind == "shard")) | length == 1' row
		jq -e --arg who "shard $slow, the coordinator" \
			'.findings[] | select(.kind == "shard") | .text | startswith($who)' row
		falcon-stat slow.jsonl >out
		grep -E "^ +$slow +straggler +pace " out
		grep -E "^ +$other +(pioneer|steady) " out
		# Without the slow one more is gained, or less lost, than without the other.
		falcon-proj --json --without "shard:$slow" slow.jsonl >row
		falcon-proj --json --without "shard:$other" slow.jsonl >kept
		jq -e --slurpfile other kept \
			'.changes[0].by_s < $other[0].changes[0].by_s' row
	done
}

@test "what-if: shards that cannot be" {
	local spec got
	for spec in 0 65 '60;5' '2,rate=1' '2,speed=0' ''; do
		got=0
		falcon-proj --shards "$spec" "$trace" >out 2>err || got=$?
		same "status of '$spec' ($(<err))" "$got" 2
		has "$(<err)" "falcon-proj: --shards: "
	done
	for spec in shard:0 shard:3 shard:x; do
		got=0
		falcon-proj --without "$spec" "$trace" >out 2>err || got=$?
		same "status of '$spec' ($(<err))" "$got" 2
		has "$(<err)" "there are shards 1 to 2"
	done
	got=0
	falcon-proj --without shard:1 --without shard:2 "$trace" 2>err || got=$?
	same "status ($(<err))" "$got" 2
	has "$(<err)" "no shard is left"
}

@test "what-if: a trace that has no tensors" {
	grep -v '"ev":"place"' "$trace" >old
	trace=old
	same "three" "$(placements --shards 3 | tr '\n' ' ')" "blocks 40 psld 40 "
}
