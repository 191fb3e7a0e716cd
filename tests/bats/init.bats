# model.init: weights to begin with, and names and shapes of a job that has no layers.

load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	for_test
	tiny .
	job=(tiny.job)
}

# tensors JSON FLOATS: a safetensors file of this header; each float is 0.5.
tensors() {
	local n=${#1}
	printf %b "$(printf '\\0%o\\0%o' $((n % 256)) $((n / 256)))" '\0\0\0\0\0\0'
	printf %s "$1"
	printf '\0\0\0\077%.0s' $(seq "$2")
}

# one NAME SHAPE BEGIN END: a tensor of such a header.
one() {
	printf '"%s":{"dtype":"F32","shape":[%s],"data_offsets":[%s,%s]}' "$@"
}

# no_layers: tiny.job trains names and shapes alone.
no_layers() {
	tensors "{$(one net.out.bias 4 256 272),$(one net.out.weight 4,16 0 256)}" 68 >init
	sed -i 's/^file = .*/init = init/' tiny.job
}

@test "--check prints the tensors, in the order of the flat vector" {
	falcon-ps --check tiny.job >layers
	same "tensors of layers" "$(<layers)" "tensor    shape  values
0.weight  4x16       64
0.bias    4           4"
	no_layers
	falcon-ps --check tiny.job >names
	same "tensors of a file" "$(<names)" "tensor          shape  values
net.out.weight  4x16       64
net.out.bias    4           4"
	# Headers of so many bytes begin as a pickle does, or UTF-16.
	for n in 640 896 65279; do
		tensors "$(printf "%-${n}s" "{$(one net.out.bias 4 256 272),$(one net.out.weight \
			4,16 0 256)}")" 68 >init
		falcon-ps --check tiny.job >padded
		same "tensors behind $n bytes" "$(<padded)" "$(<names)"
		cp init set.safetensors
		run falcon-ps --check --set data.format=safetensors --set data.train=set.safetensors \
			--set data.features=net.out.weight --set data.label=none tiny.job
		[[ $output != *"save it"* ]] || same "what is said" "$output" "another thing"
	done
}

# refusal TEXT OPTION...: --check ends with 2 and this one line.
refusal() {
	local want=$1 got=0
	shift
	falcon-ps --check "$@" tiny.job >out 2>err || got=$?
	same "status ($(<err))" "$got" 2
	same "what is said" "$(<err)" "falcon-ps: $want"
	same "what is printed" "$(<out)" ""
}

@test "files that are no weights of the model are refused" {
	refusal "none: No such file or directory" --set model.init=none
	tensors "{$(one 0.weight 4,16 0 256),$(one 0.bais 4 256 272)}" 68 >init
	refusal "init: has no tensor '0.bias', which the model has" --set model.init=init
	tensors "{$(one 0.weight 16,4 0 256),$(one 0.bias 4 256 272)}" 68 >init
	refusal "init: tensor '0.weight' has the shape [16,4], but the model wants [4,16]" --set model.init=init
	tensors "{$(one 0.weight 4,16 0 256),$(one 0.bias 4 256 272)}" 68 >init
	printf '\0\0\200\177' | dd of=init bs=1 conv=notrunc status=none \
		seek=$(($(stat -c %s init) - 8))
	refusal "init: value 2 of tensor '0.bias' is not finite" --set model.init=init
	no_layers
	refusal "init: its SHA-256 is $(sha256sum <init | cut -d' ' -f1), not model.init-sha256" \
		--set "model.init-sha256=$(printf '0%.0s' $(seq 64))"
	refusal "--set: model.init-sha256: is not 64 digits of 0-9a-f" \
		--set model.init-sha256=00
	sed -i '/^init = /d' tiny.job
	refusal "tiny.job: model.file: missing, and so is model.init"
}

@test "a worker with layers only refuses a job of names and shapes" {
	local got=0
	no_layers
	serve
	work plain
	builtin wait "$pid" || got=$?
	same "status" "$got" 1
	has "$(<plain.err)" "tiny: the job has no model.file, only names and shapes: its gradients are another program's to make"
	same "lines" "$(wc -l <plain.err)" 1
	got=0
	falcon-work --eval init tiny.job 2>eval.err || got=$?
	same "status of --eval" "$got" 2
	same "--eval" "$(<eval.err)" "falcon-work: tiny.job: the job has no model.file"
}

@test "--predict says of each sample what --eval counts" {
	serve
	work plain
	wait "$ps"
	falcon-work --predict "$state/model.safetensors" tiny.job images >said
	same "lines" "$(wc -l <said)" 256
	same "what is no label and probability" "$(grep -cvxE '[0-3] (0\.[0-9]{6}|1\.000000)' said || :)" 0
	right=$(tail -c 256 labels | od -An -v -tu1 -w1 | paste - said |
		awk '$1 == $2 { n++ } END { print n + 0 }')
	same "right" "$right" "$(falcon-work --eval "$state/model.safetensors" tiny.job | cut -d' ' -f1)"
	# Packed, through a pipe.
	same "of a pipe" "$(gzip <images |
		falcon-work --predict "$state/model.safetensors" tiny.job /dev/stdin | sha256sum)" \
		"$(sha256sum <said)"
	same "of standard input" "$(gzip <images |
		falcon-work --predict "$state/model.safetensors" tiny.job - | sha256sum)" \
		"$(sha256sum <said)"
	# What the bytes are, not what they are called: an array of NumPy.
	{
		printf '\223NUMPY\1\0v\0%-117s\n' \
			"{'descr': '|u1', 'fortran_order': False, 'shape': (256, 4, 4)}"
		tail -c 4096 images
	} >x.npy
	same "of an array" "$(falcon-work --predict "$state/model.safetensors" tiny.job x.npy |
		sha256sum)" "$(sha256sum <said)"
	same "of a packed one, by a pipe" "$(gzip <x.npy |
		falcon-work --predict "$state/model.safetensors" tiny.job /dev/stdin | sha256sum)" \
		"$(sha256sum <said)"
	got=0
	falcon-work --predict "$state/model.safetensors" tiny.job tiny.job 2>err || got=$?
	same "status of a text" "$got" 2
	same "what is said" "$(<err)" "falcon-work: tiny.job: not an IDX file, nor a .npy one"
	got=0
	falcon-work --predict "$state/model.safetensors" tiny.job labels 2>err || got=$?
	same "status of other samples" "$got" 2
	same "what is said" "$(<err)" "falcon-work: labels: one dimension only: labels, not samples?"
	got=0
	falcon-work --predict "$state/model.safetensors" tiny.job - <labels 2>err || got=$?
	same "status of these, by standard input" "$got" 2
	same "what is said" "$(<err)" \
		"falcon-work: standard input: one dimension only: labels, not samples?"
}

@test "training begins with the weights of model.init" {
	tensors "{$(one 0.weight 4,16 0 256),$(one 0.bias 4 256 272)}    " 68 >init
	job=(--set model.init=init --set optimizer.lr=1e-12 "${job[@]}")
	serve
	work plain
	wait "$ps"
	same "weights" "$(tail -c 272 "$state/model.safetensors" | sha256sum)" \
		"$(tail -c 272 init | sha256sum)"
	has "$(<"$state/job")" "init-sha256 = $(sha256sum <init | cut -d' ' -f1)"
	# The state is that of these very weights.
	printf '\0\0\0\076' | dd of=init bs=1 conv=notrunc status=none \
		seek=$(($(stat -c %s init) - 4))
	got=0
	falcon-ps -jx -K "$keys/keyring" -l 127.0.0.1:0 -s "$state" "${job[@]}" 2>err || got=$?
	same "status of other weights" "$got" 2
	has "$(<err)" "init: model.init-sha256 is $(of_file init), but $state was begun with "
}

# halves: from, the tensors of tiny.model as F16, each value 0.5, made by somebody else.
halves() {
	local h
	h='{"__metadata__":{"format":"pt"},"0.bias":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}'
	h+=',"0.weight":{"dtype":"F16","shape":[4,16],"data_offsets":[8,136]}}'
	tensors "$h" 1 | head -c -4 >from
	printf '\0\070%.0s' $(seq 68) | cat - >>from
}

# of_file FILE: its SHA-256.
of_file() {
	sha256sum <"$1" | cut -d' ' -f1
}

# not_that_state NAMED IS OPTION...: a start with these weights refuses the state that is there.
not_that_state() {
	run timeout 20 falcon-ps -K "$keys/keyring" -l unix:sock -s "$state" "${@:3}"
	same "status ($output)" "$status" 2
	has "$output" "falcon-ps: $1: model.from-sha256 is $2, but $state was begun with $(of_file from)"
}

@test "--from: a job begins with weights of elsewhere, and its state is that of these" {
	halves
	tensors "{$(one 0.weight 4,16 0 256),$(one 0.bias 4 256 272)}" 68 >floats
	job=(--set job.epochs=9 --set state.clocks=1 --set optimizer.lr=1e-12 --from from tiny.job)
	at_unix
	slow a 1 500
	soon "some clocks" lines 3 '"ev":"update"'
	killed
	# Without them, or with others, it is another job.
	not_that_state --from none "${job[@]:0:6}" tiny.job
	not_that_state floats "$(of_file floats)" "${job[@]:0:6}" --from floats tiny.job
	# The same ones from another place are the same.
	mv from elsewhere
	job=("${job[@]/#from/elsewhere}")
	at_unix
	has "$(<ps.err)" "tiny: resumed at clock "
	ended "$ps" ps
	same "weights" "$(tail -c 272 "$state/model.safetensors" | sha256sum)" \
		"$(tail -c 272 floats | sha256sum)"
	same "in the trace" "$(jq -r 'select(.ev == "job").from' "$state/trace.jsonl")" \
		"$(of_file elsewhere)"
	falcon-stat --audit "$state"
	sed -i "s/^from-sha256 = .*/from-sha256 = $(of_file floats)/" "$state/job"
	run falcon-stat --audit "$state"
	same "status of an audit" "$status" 1
	has "$output" "job: from-sha256 is $(of_file floats), but the trace says"
}

@test "--from: what is not of the model is refused with the tensor, what it is and what is wanted" {
	refusal "none: No such file or directory" --from none
	tensors "{$(one 0.weight 8,8 0 256),$(one 0.bias 4 256 272)}" 68 >from
	refusal "from: tensor '0.weight' has the shape [8,8], but the model wants [4,16]" --from from
	tensors "{$(one 0.weight 4,16 0 256),$(one 0.bias 4 256 272),$(one more 1 272 276)}" 69 >from
	refusal "from: tensor 'more' is none of the model's" --from from
	tensors "{$(one 0.weight 4,16 0 256),$(one 0.bias 4 256 272 | sed s/F32/I32/)}" 68 >from
	refusal "from: tensor '0.bias' is I32, but F32, F16 or BF16 is wanted" --from from
	refusal "--set: model.from-sha256: --from is to name the file with the SHA-256 $(of_file from)" \
		--set "model.from-sha256=$(of_file from)"
	halves
	refusal "from: its SHA-256 is $(of_file from), not model.from-sha256" --from from \
		--set "model.from-sha256=$(of_file tiny.job)"
	# Names and shapes of model.init hold, too.
	no_layers
	refusal "from: has no tensor 'net.out.weight', which the model has" --from from
}
