# The rule by which blocks are placed: the law holds over each, and the trace says what it
# made.

load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	for_test
	tiny .
	draw
}

# drawn: a model of a few tensors, most of one block, one perhaps with most of them.
drawn() {
	local n=$((RANDOM % 3 + 2)) i
	echo "input 16"
	for ((i = 0; i < n; i++)); do
		printf 'dense %d\nrelu\n' $((RANDOM % (RANDOM % 2 == 0 ? 400 : 40) + 4))
	done
	echo "dense 4"
}

# placed: the rule, how many shards there are, and blocks of each, as the trace has them.
placed() {
	jq -c 'select(.ev == "place") | [.rule, .shards, (.runs | map(.[2]))]' \
		"$state/trace.jsonl"
}

# said: of the table of --check, on stdin: how many shards have blocks, and how many each.
said() {
	sed '1,/^shard/d' | awk '$2 > 0 { print $2 }' | jq -s -c '[length, .]'
}

@test "the model does not know by which rule its blocks are placed" {
	drawn >tiny.model
	local rule here there all want blocks
	job=(--set job.epochs=2 --set model.block=tensor tiny.job)
	serve
	work a --lanes 1
	judge
	blocks=$(placed | jq -c '.[2]')
	for rule in static:mxnet static:byteps static:tensorflow static:blocks; do
		for all in 1 3 $((RANDOM % 61 + 4)); do
			again
			here=$((RANDOM % all + 1)) there=$((all - here))
			# Of one shard there is no table.
			want="[1,$blocks]"
			[ $all = 1 ] || want=$(falcon-ps --check --shards $all \
				--set "job.placement=$rule" "${job[@]}" 2>err | said)
			serve --shards $here --min-shards $((there > 0)) --set "job.placement=$rule"
			[ $there = 0 ] || start shards falcon-ps --join "$ready" -k "$keys/shard.key" \
				--shards $there
			work b --lanes 1
			work c --lanes 1
			judge
			same "$rule on $here + $there" "$(placed)" "[\"${rule#static:}\",${want#[}"
		done
	done
}

@test "a process that the rule has no block for has none" {
	# Two blocks, and three of one, for five.
	printf 'input 16\ndense 300\nrelu\ndense 4\n' >tiny.model
	job=(--set job.epochs=2 --set model.block=tensor --set job.placement=static:tensorflow
		tiny.job)
	serve --min-shards 2
	start three falcon-ps --join "$ready" -k "$keys/shard.key" --shards 3
	soon "three shards" grep -q "with 3 shards at" ps.err
	start one falcon-ps --join "$ready" -k "$keys/shard.key"
	soon "one more" grep -q "without blocks yet" one.err
	work a --lanes 1
	ended "$ps" ps
	same "where the blocks were" "$(placed)" '["tensorflow",4,[2,1,1,1]]'
}

@test "one tensor with nearly all: it is on one shard, as --check says" {
	# 2048 · 16 + 2048 and 2048 · 4 + 4: 36864 of 45060 in one, of 12 blocks.
	printf 'input 16\ndense 2048\nrelu\ndense 4\n' >tiny.model
	job=(--set model.block=tensor tiny.job)
	local rule
	falcon-ps --check --shards 4 --set job.placement=static:blocks "${job[@]}" >even 2>err
	for rule in mxnet tensorflow; do
		falcon-ps --check --shards 4 --set "job.placement=static:$rule" "${job[@]}" >out 2>err
		sed -n '/^shard/,$p' out | tail -n +2 >rows
		same "rows of $rule ($(<out))" "$(wc -l <rows)" 4
		same "blocks" "$(awk '{ n += $2 } END { print n }' rows)" \
			"$(sed -n '/^shard/,$p' even | tail -n +2 | awk '{ n += $2 } END { print n }')"
		[ "$(awk '$4 > m { m = $4 } END { print int(m) }' rows)" -ge 50 ]
	done
}

@test "a rule that is none, with file and line" {
	sed 's/^\[job\]/[job]\nplacement = static:magic/' tiny.job >bad.job
	local got=0
	falcon-ps --check bad.job 2>err || got=$?
	same "status ($(<err))" "$got" 2
	has "$(<err)" "bad.job:"
	has "$(<err)" "static:magic"
	has "$(<err)" "static:tensorflow"
	same "lines" "$(wc -l <err)" 1
}
