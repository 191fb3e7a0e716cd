# Which shard has which block: the trace's line, and who is waited for.

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
	jq -c 'select(.ev == "place") | [.map, .rule, .runs]' "$trace" >is
	same "place" "$(<is)" \
		'[1,"blocks",[[1,0,2],[2,2,3]]]'
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
	done
}
