# Where blocks are by a file: the law holds over any, and the trace says what it made.

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

# parted N: writes the file `map`, which gives blocks to N shards, as they are drawn.
parted() {
	local i left=$blocks n
	for ((i = 1; i < $1; i++)); do
		n=$((RANDOM % (left + 1)))
		echo $n
		left=$((left - n))
	done >map
	echo "$left" >>map
}

@test "the model does not know where its blocks are" {
	drawn >tiny.model
	local here there all want blocks
	job=(--set job.epochs=2 --set model.block=tensor tiny.job)
	serve
	work a --lanes 1
	judge
	blocks=$(placed | jq '.[2] | add')
	job=(--set job.placement=file:map "${job[@]}")
	for all in 1 2 3 $((RANDOM % 61 + 4)); do
		again
		parted "$all"
		here=$((RANDOM % all + 1)) there=$((all - here))
		want=$(jq -s -c 'map(select(. > 0)) | [length, .]' map)
		# Of one shard there is no table.
		[ "$all" = 1 ] || same "what --check says" \
			"$(falcon-ps --check --shards "$all" "${job[@]}" 2>err | said)" "$want"
		serve --shards $here --min-shards $((there > 0))
		[ $there = 0 ] || start shards falcon-ps --join "$ready" -k "$keys/shard.key" \
			--shards $there
		work b --lanes 1
		work c --lanes 1
		judge
		same "on $here + $there" "$(placed)" "[\"file\",${want#[}"
	done
}

@test "a process that the file has no block for has none; the last one has the rest" {
	# Five blocks: two, and three of one.
	printf 'input 16\ndense 300\nrelu\ndense 4\n' >tiny.model
	job=(--set job.epochs=2 --set model.block=tensor --set job.placement=file:map tiny.job)
	printf '2\n1\n1\n1\n0\n' >map
	serve --min-shards 2
	start three falcon-ps --join "$ready" -k "$keys/shard.key" --shards 3
	soon "three shards" grep -q "with 3 shards at" ps.err
	start one falcon-ps --join "$ready" -k "$keys/shard.key"
	soon "one more" grep -q "without blocks yet" one.err
	work a --lanes 1
	ended "$ps" ps
	same "where the blocks were" "$(placed)" '["file",4,[2,1,1,1]]'
	falcon-ps --check --shards 3 "${job[@]}" 2>err >out
	same "fewer shards than lines" "$(said <out)" "[3,[2,1,2]]"
	falcon-ps --check --shards 6 "${job[@]}" 2>err >out
	same "more" "$(said <out)" "[4,[2,1,1,1]]"
}

@test "a placement that cannot be, with file, line and value" {
	local value got
	printf 'input 16\ndense 300\nrelu\ndense 4\n' >tiny.model
	# refused WHAT [OPTION...]: one line of --check says this.
	refused() {
		got=0
		falcon-ps --check "${@:2}" 2>err || got=$?
		same "status ($(<err))" "$got" 2
		same "lines" "$(wc -l <err)" 1
		has "$(<err)" "$1"
	}
	sed '0,/^\[job\]/s//[job]\nplacement = magic/' tiny.job >bad.job
	refused "bad.job:2: job.placement: 'magic' is not one of blocks psld file:PATH" bad.job
	refused "'file:' is not one of blocks psld file:PATH" --set job.placement=file: tiny.job
	refused "none: " --set job.placement=file:none tiny.job
	job=(--set job.placement=file:map tiny.job)
	for value in '1\nx' '1\n' '1\n-1' '9'; do
		printf '%b\n' "$value" >map
		refused map: "${job[@]}"
	done
	has "$(<err)" "'9': not a shard's number of blocks, of 2"
	printf '1\n0\n' >map
	refused "map: 1 block in all, the model has 2" "${job[@]}"
	printf '1\n%.0s' {1..65} >map
	refused "map:65: '1': not a shard's number of blocks, of 2; at most 64 shards" "${job[@]}"
}
