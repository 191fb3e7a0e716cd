# model.block = tensor: tensors that share no block, in whole jobs.

load common
load job
load tiny

setup_file() {
	for_file
	cc -O2 -DINPUTS=16 -DCLASSES=4 -o "$BATS_FILE_TMPDIR/softmax" "$root/examples/exec/softmax.c" -lm
}

setup() {
	for_test
	tiny "$BATS_TEST_TMPDIR/tiny"
	job=(--set job.epochs=10 --set model.block=tensor "$BATS_TEST_TMPDIR/tiny/tiny.job")
	# 4800, 300, 1200 and 4 values: two blocks as one vector, five by tensor.
	wide='input 16\ndense 300\nrelu\ndense 4\n'
	sed -i 's/^file = .*/&\nblock = vector/' tiny/tiny.job
}

@test "--check says what it costs in blocks" {
	printf %b "$wide" >tiny/tiny.model
	falcon-ps --check "${job[@]}" 2>err >out
	has "$(<err)" "tiny: 6304 parameters in 5 blocks (2 without model.block = tensor), "
	falcon-ps --check tiny/tiny.job 2>err
	has "$(<err)" "tiny: 6304 parameters in 2 blocks, "
}

@test "freezing all of it is refused, whatever lies between" {
	local got=0
	printf %b "$wide" >tiny/tiny.model
	sed -i 's/^block = .*/block = tensor\nfreeze = */' tiny/tiny.job
	falcon-ps --check tiny/tiny.job 2>err || got=$?
	same "status ($(<err))" "$got" 2
	has "$(<err)" "leaves nothing to train"
}

@test "one worker" {
	printf %b "$wide" >tiny/tiny.model
	serve
	work alone --lanes 1
	judge wide
	same "blocks" "$(jq -r 'select(.ev == "job").blocks' "$state/trace.jsonl")" 5
}

@test "three workers, one of them killed, on three shards" {
	printf %b "$wide" >tiny/tiny.model
	serve --min-workers 3 --shards 3
	slow a 1 2000
	slow b 0.5 2000
	slow c 0.3 2000
	at_clock 10
	kill -KILL "$pid"
	judge wide
}

@test "AdamW, clipped, some of it frozen: one worker, three workers" {
	local with=(--set optimizer.kind=adamw --set optimizer.lr=0.01 --set optimizer.clip=1
		--set optimizer.ema=0.9 --set model.freeze=0.bias)
	printf %b "$wide" >tiny/tiny.model
	sed -i 's/^kind = sgd/&\nclip = 0\nema = 0/; s/^block = .*/&\nfreeze = 2.bias/' tiny/tiny.job
	serve "${with[@]}"
	work alone --lanes 1
	judge adamw
	again
	serve --min-workers 3 --shards 2 "${with[@]}"
	slow a 1 2000
	slow b 0.5 2000
	slow c 0.3 2000
	judge adamw
}

@test "a trainer gets the same model, and gives the losses of the built-in net" {
	serve
	work c --exec "exec '$BATS_FILE_TMPDIR/softmax'"
	judge c
	jq -s '[.[] | select(.ev == "eval").loss]' "$state/trace.jsonl" >c.losses
	again
	serve
	work net --lanes 1
	judge net
	jq -s '[.[] | select(.ev == "eval").loss]' "$state/trace.jsonl" >net.losses
	jq -es '.[0] as $a | .[1] | [length == 10, (to_entries[] |
		(.value - $a[.key]) * (.value - $a[.key]) < 1e-10)] | all' c.losses net.losses
}
