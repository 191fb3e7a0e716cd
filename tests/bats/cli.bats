# Bad options and bad files of the programs: one line that names file, line
# or value, and exit status 2, or 1 where the machine is to blame.  Nothing is started.

load common
load tiny

setup_file() {
	falcon-key init "$BATS_FILE_TMPDIR/keys"
}

setup() {
	keys=$BATS_FILE_TMPDIR/keys
	data=/usr/share/datasets/fashion-mnist
	refusals=0
	cd "$BATS_TEST_TMPDIR" || return 1
	umask 077
	tiny .
	sed "s|\.\./models|$root/share/models|" "$root/share/jobs/fashion.job" >fashion.job
	before=$(ls)
}

# refused STATUS LINE COMMAND...: it ends so, saying just this line.
refused() {
	local want=$1 text=$2 got=0 line
	shift 2
	timeout 20 "$@" >"$BATS_FILE_TMPDIR/out" 2>"$BATS_FILE_TMPDIR/err" </dev/null 3>&- || got=$?
	# The need, which is said in each case, is no complaint.
	line=$(grep -v ' needs [0-9]* MiB$' "$BATS_FILE_TMPDIR/err" || :)
	same "what $* says" "$line" "$1: $text"
	same "status of $*" "$got" "$want"
	same "output of $*" "$(cat "$BATS_FILE_TMPDIR/out")" ""
	refusals=$((refusals + 1))
}

ps_refused() {
	local want=$1 text=$2
	shift 2
	refused "$want" "$text" falcon-ps "$@"
}

work_refused() {
	local want=$1 text=$2
	shift 2
	refused "$want" "$text" falcon-work "$@"
}

# counted N: so many refusals, and no file or folder came from them.
counted() {
	same refusals "$refusals" "$1"
	same "files" "$(ls)" "$before"
}

# edited SED TEXT: tiny.job, edited, is refused.
edited() {
	sed "$1" tiny.job >bad.job
	if cmp -s tiny.job bad.job; then
		echo "$1 changes nothing"
		return 1
	fi
	ps_refused 2 "$2" --check bad.job
	rm bad.job
}

@test "falcon-ps: options" {
	ps_refused 2 "--nix: unknown option" --nix tiny.job
	ps_refused 2 "-z: unknown option" -z tiny.job
	ps_refused 2 "--json: given twice" --json -j tiny.job
	ps_refused 2 "--state: given twice" -s a --state b tiny.job
	ps_refused 2 "--keyring: given twice" -K a -K a tiny.job
	ps_refused 2 "--state: missing argument" tiny.job --state
	ps_refused 2 "usage: falcon-ps [OPTION...] JOB"
	ps_refused 2 "b: one operand too many (see --help)" a b
	ps_refused 2 "--max-memory: '1Q' is not a size" --max-memory 1Q tiny.job
	ps_refused 2 "--max-memory: '0' is out of range" --max-memory 0 tiny.job
	ps_refused 2 "--min-workers: 'x' is not a number" -w x tiny.job
	ps_refused 2 "--min-workers: '0' is out of range" -w 0 tiny.job
	ps_refused 2 "--min-workers: '-1' is not a number" -w -1 tiny.job
	ps_refused 2 "--threads: '0' is out of range" --threads 0 tiny.job
	ps_refused 2 "--threads: '1025' is out of range" --threads 1025 tiny.job
	ps_refused 2 "--compress: 'some' is not auto, always or never" --compress some tiny.job
	ps_refused 2 "--ready-fd: '9999' is out of range" --ready-fd 9999 tiny.job
	ps_refused 2 "--trace: 'a.zst': traces are written plain; leave out .zst" \
		--check --trace a.zst tiny.job
	ps_refused 2 "-n: unknown option" -n tiny.job
	counted 19
}

# bad_set WHAT ASSIGNMENT [OPTION...]: it is refused, as what is wrong with it alone.
bad_set() {
	ps_refused 2 "--set: $1" --check --set "$2" "${@:3}" tiny.job
}

@test "falcon-ps: what is wrong with an assignment names it, and no line of the job" {
	bad_set "'x' is not section.key=value" x
	bad_set "a.b: no such key" a.b=c
	bad_set "job.name: 'a ;b' begins a comment, unless in double quotes" "job.name=a ;b"
	bad_set "job.name: 'a?b' has a character that no value has" $'job.name=a\x01b'
	bad_set "job.name: is empty" job.name=
	bad_set "job.name: '$(printf %040d 0)...' is too long" "job.name=$(printf %0100d 0)"
	bad_set "job.name: '$(printf %040d 0)...' is too long" "job.name=$(printf %0200d 0)"
	bad_set "job.epochs: '0' is not in 1..1000000" job.epochs=0
	bad_set "job.seed: '-1' is not a whole number" job.seed=-1
	bad_set "optimizer.lr: 'o.1' is not a number" optimizer.lr=o.1
	bad_set "optimizer.momentum: '2' is not in 0..0.9999" optimizer.momentum=2
	bad_set "job.verify: '5' is not a number with %" job.verify=5
	bad_set "job.eval: 'often' is not one of epoch end never" job.eval=often
	bad_set "data.mean: 'x' is not a number" data.mean=x
	bad_set "data.mean or data.std lists 2 channels, a sample has 1" data.std=1,2
	bad_set "sync.scheme: epsp: 'x' is neither a whole number from 0 to 64 nor a fraction from 1/4096 to 4095/4096" sync.scheme=epsp:x
	bad_set "sync.scheme: epsp:1/64: no task of 8 samples lies within this part of a clock's 64 samples; 1/8 has one" sync.scheme=epsp:1/64
	# What others demand of it, and what it demands of others.
	bad_set "batch.task: is more than batch.size" batch.task=1024
	bad_set "batch.task: is more than batch.size" batch.size=16 --set batch.task=32
	bad_set "data.parts: does nothing for data.partition = shared" data.parts=3
	bad_set "schedule.warmup: '999' is more than the 8 updates of the job" schedule.warmup=999
	bad_set "model.freeze: 'x*' names no tensor" "model.freeze=x*"
	ps_refused 2 "tiny.job: data.parts: missing (data.partition = shared needs none)" --check \
		--set data.partition=worker tiny.job
	ps_refused 2 "tiny.job:15: batch.task: is more than batch.size" --check --set batch.size=4 tiny.job
	counted 24
}

@test "falcon-ps: a closed descriptor of --ready-fd, whoever would get its number" {
	for n in 4 5 6 7 8 9 10 11 12 13 14 15 16; do
		eval "exec $n>&-"
		ps_refused 2 "--ready-fd: '$n': Bad file descriptor" -K "$keys/keyring" \
			-l 127.0.0.1:0 --ready-fd "$n" tiny.job
	done
	counted 13
}

@test "falcon-ps: addresses" {
	ps_refused 2 "'nowhere' is not an address: no port: HOST:PORT is one" -l nowhere tiny.job
	ps_refused 2 "'[::1:7000' is not an address: not [V6]:PORT" -l '[::1:7000' tiny.job
	ps_refused 2 "'h:65536' is not an address: '65536' is not a port" -l h:65536 tiny.job
	ps_refused 2 "'unix:' is not an address: nothing is named" -l unix: tiny.job
	counted 4
	ps_refused 2 "exec:cat: a command cannot be listened on" -K "$keys/keyring" \
		-l exec:cat tiny.job
	ps_refused 1 "192.0.2.1:7000: address not available" -K "$keys/keyring" \
		-l 192.0.2.1:7000 tiny.job
	ps_refused 1 "unix:none/x: No such file or directory" -K "$keys/keyring" \
		-l unix:none/x tiny.job
}

@test "falcon-ps: keyrings; no byte of a key is said" {
	ps_refused 2 "none: no such keyring: falcon-key init DIR makes DIR/keyring" \
		-K none tiny.job
	ps_refused 2 "$keys: Is a directory" -K "$keys" tiny.job
	ps_refused 2 "$keys/work.key:1: a client's key: this is no keyring" \
		-K "$keys/work.key" tiny.job
	sed '2s/.\{20\}$//' "$keys/keyring" >ring
	ps_refused 2 "ring:2: key is not base64 of 32 bytes" -K ring tiny.job
	sed '3s/ work / wrok /' "$keys/keyring" >ring
	ps_refused 2 "ring:3: role is not observe, work, shard, control or all 'wrok'" -K ring tiny.job
	sed '1d' "$keys/keyring" >ring
	ps_refused 2 "ring: no key of the coordinator itself (role self)" -K ring tiny.job
	rm ring
	counted 6
}

@test "falcon-ps: job files" {
	edited 's/^lr = 0.1/lr = o.1/' "bad.job:19: optimizer.lr: 'o.1' is not a number"
	edited 's/^lr = 0.1/lr = -1/' "bad.job:19: optimizer.lr: '-1' is not in 1e-12..1000"
	edited 's/^lr = /learning = /' "bad.job:19: optimizer.learning: no such key; its section has kind lr momentum momentum-per beta1 beta2 eps weight-decay decay lr-scale decay-scale clip ema"
	edited 's/^\[batch/[bitch/' "bad.job:13: [bitch]: no such section; did you mean 'batch'?"
	edited 's/^\(lr = .*\)/\1\n\1/' \
		"bad.job:20: optimizer.lr: '0.1' is a second value, line 19 has the first"
	edited 's/^scheme.*/scheme = spam/' "bad.job:21: sync.scheme: 'spam' is not a scheme (bsp, asp, ssp, epsp, flexrr, syncopt, consgd, dynsgd, wbsp, groups, rennala, ringmaster)"
	edited 's/^epochs = 2/epochs = 0/' "bad.job:4: job.epochs: '0' is not in 1..1000000"
	edited 's/^\[job\]/job/' "bad.job:1: not a section, 'key = value' or comment
falcon-ps: bad.job:22: not a section, 'key = value' or comment
falcon-ps: bad.job:23: sync.hashes: no such key; did you mean 'job.hashes'?"
	edited 's/^epochs = 2/epoch = 2 # two/; s/^lr = 0.1/lr = -1 ; no/' \
		"bad.job:4: job.epoch: no such key; did you mean 'job.epochs'?
falcon-ps: bad.job:19: optimizer.lr: '-1' is not in 1e-12..1000"
	edited '/^name = /d' "bad.job: job.name: missing"
	edited '2s/.*/name = \x01/' "bad.job:2: a control character"
	edited 's/^lr/[schedule]\nkind = constant\nwarmup = 100\n[optimizer]\nlr/' \
		"bad.job: schedule.warmup: '100' is more than the 8 updates of the job"
	ps_refused 2 "none.job: No such file or directory" none.job
	ps_refused 2 "$keys: Is a directory" "$keys"
	same "too much" "$(falcon-ps --check --max-memory 1K tiny.job 2>&1 |
		sed 's/needs [0-9]* bytes/needs so many bytes/' | tail -n 1)" \
		"falcon-ps: tiny.job: needs so many bytes, --max-memory allows 1024"
	counted 14
}

# shards [OPTION...]: what tiny.job needs with them, in bytes.
shards() {
	falcon-ps --check --max-memory 1 "$@" tiny.job 2>&1 |
		sed -n 's/.*needs \([0-9]*\) bytes.*/\1/p'
}

@test "falcon-ps: shards that have no block need nothing" {
	printf 'input 16\ndense 65536\nrelu\ndense 4\n' >tiny.model
	printf 'input 16\ndense 4\n' >small.model
	same "with 5 shards of one block" \
		"$((($(shards --shards 5 --set model.file=small.model) -
			$(shards --set model.file=small.model)) / 1048576))" 0
	# One version more, and all of them in one piece; 5.25 MiB each.
	same "with 5 shards of many blocks, more" "$((($(shards --shards 5) - $(shards)) >> 20))" 10
}

# more SCHEME: MiB that tiny.job needs for a momentum for each pusher, not one.
more() {
	local all=("${momentum[@]}" --min-workers 8 --set "sync.scheme=$1")
	echo $((($(shards "${all[@]}") + 524288 -
		$(shards "${all[@]}" --set optimizer.momentum-per=server)) >> 20))
}

@test "falcon-ps: a momentum for each worker needs memory, and one for all is proposed" {
	local momentum=(--set optimizer.kind=nesterov --set optimizer.momentum=0.9) least
	printf 'input 16\ndense 65536\nrelu\ndense 4\n' >tiny.model
	# 5.25 MiB each.
	same "with 8 workers, more" "$(more asp)" 42
	same "with 4 groups, more" "$(more groups:4)" 21
	same "where all push together, more" "$(more bsp)" 0
	momentum+=(--min-workers 8 --set sync.scheme=asp)
	least=$(shards "${momentum[@]}" --set optimizer.momentum-per=server)
	same "proposed" "$(falcon-ps --check --max-memory $((least + 1048576)) "${momentum[@]}" \
		tiny.job 2>&1 | sed -n 's/needs [0-9]* MiB with/needs so much with/p')" \
		"falcon-ps: tiny.job: needs so much with optimizer.momentum-per = server"
}

@test "falcon-ps: model files" {
	ps_refused 2 "none: No such file or directory" --set model.file=none fashion.job
	printf 'input 1 28 28\nconv 6 kernel=5 pad=2\nrelux\n' >m
	ps_refused 2 "m:3: unknown layer 'relux'" --set model.file=m fashion.job
	printf 'input 1 32 32\nflatten\ndense 10\n' >m
	ps_refused 2 "$data/train-images-idx3-ubyte.gz: samples of 784 values, but the model \
takes 1024" --set model.file=m fashion.job
	printf 'input 1 28 28\nflatten\ndense 5\n' >m
	ps_refused 2 "$data/train-labels-idx1-ubyte.gz: label 9 of sample 0 is not below 5" \
		--set model.file=m fashion.job
	rm m
	counted 4
}

@test "falcon-ps: data files" {
	head -c 100000 "$data/train-images-idx3-ubyte.gz" >cut.gz
	ps_refused 2 "cut.gz: file is truncated" --set data.train-images=cut.gz fashion.job
	zcat "$data/train-images-idx3-ubyte.gz" | head -c 100000 >part
	ps_refused 2 "part: file is truncated" --set data.train-images=part fashion.job
	head -c 10 part >short
	ps_refused 2 "short: file is truncated" --set data.train-images=short fashion.job
	zcat "$data/train-labels-idx1-ubyte.gz" >odd
	printf '\372' | dd of=odd bs=1 seek=200 conv=notrunc status=none
	ps_refused 2 "odd: label 250 of sample 192 is not below 10" \
		--set data.train-labels=odd fashion.job
	ps_refused 2 "$data/t10k-labels-idx1-ubyte.gz: 10000 labels for the 60000 samples of \
$data/train-images-idx3-ubyte.gz" --set "data.train-labels=$data/t10k-labels-idx1-ubyte.gz" \
		fashion.job
	ps_refused 2 "none: No such file or directory" --set data.test-images=none fashion.job
	rm cut.gz part short odd
	counted 6
}

@test "falcon-ps: what cannot be written" {
	ps_refused 1 "none/x: No such file or directory" -K "$keys/keyring" \
		-l 127.0.0.1:0 --trace none/x tiny.job
	ps_refused 1 "none/s: No such file or directory" -K "$keys/keyring" \
		-l 127.0.0.1:0 -s none/s tiny.job
	for prog in falcon-ps falcon-work; do
		run "$prog" --help
		same "status of $prog --help" "$status" 0
		has "$output" "Usage: $prog"
		run bash -c "$prog --help >/dev/full"
		same "$prog on a full disk" "$status $output" \
			"1 $prog: standard output: No space left on device"
	done
}

@test "falcon-work: options" {
	local at=127.0.0.1:1
	work_refused 2 "usage: falcon-work [OPTION...] ADDR[,ADDR...] | --eval MODEL JOB | --exec COMMAND --try JOB | --predict MODEL JOB SAMPLES"
	work_refused 2 "b: one operand too many (see --help)" a b
	work_refused 2 "--nix: unknown option" --nix $at
	work_refused 2 "-l: unknown option" -l 1 $at
	work_refused 2 "--lanes: given twice" --lanes 1 --lanes 1 $at
	work_refused 2 "--verbose: given twice" -vv $at
	work_refused 2 "--lanes: '0' is not MIN:MAX, or a number" --lanes 0 $at
	work_refused 2 "--lanes: '4:2' is not MIN:MAX, or a number" --lanes 4:2 $at
	work_refused 2 "--lanes: '1:' is not MIN:MAX, or a number" --lanes 1: $at
	work_refused 2 "--lanes: '1:99999999999' is not MIN:MAX, or a number" \
		--lanes 1:99999999999 $at
	work_refused 2 "--name: 'a b' is not 1 to 63 of A-Z a-z 0-9 . _ -" --name 'a b' $at
	work_refused 2 "--compress: 'x' is not auto, always or never" --compress x $at
	work_refused 2 "--max-memory: '-1' is not a size" --max-memory -1 $at
	work_refused 2 "--max-memory: '0' is out of range" --max-memory 0 $at
	work_refused 2 "--json: only with --eval" --json $at
	local with=(-k "$keys/work.key" "$at")
	work_refused 2 "--emulate: rate=SAMPLES_PER_SECOND is missing" --emulate speed=1 "${with[@]}"
	work_refused 2 "--emulate: rate is given twice" --emulate rate=1,rate=2 "${with[@]}"
	work_refused 2 "--emulate: 'x' is not KEY=VALUE" --emulate x "${with[@]}"
	work_refused 2 "--emulate: speed: '1/0' is not a fraction such as 0.25 or 1/4" \
		--emulate rate=1,speed=1/0 "${with[@]}"
	work_refused 2 "--emulate: cores: '0' is not 1 to 1024" --emulate rate=1,cores=0 "${with[@]}"
	work_refused 2 "'nowhere' is not an address: no port: HOST:PORT is one" nowhere
	counted 21
}

@test "falcon-proj: options" {
	local option
	for option in lanes task batch window; do
		refused 2 "--$option: '0' is out of range" falcon-proj "--$option" 0
		refused 2 "--$option: '4294967296' is out of range" \
			falcon-proj "--$option" 4294967296
	done
	refused 2 "--min-gain: '101' is not from 0 to 100" falcon-proj -p --min-gain 101
	# What would do nothing.
	refused 2 "--min-gain: only with --policy" falcon-proj --min-gain 5
	refused 2 "--allow-model: only with --policy" falcon-proj --what-if all --allow-model
	refused 2 "--window: only with --follow" falcon-proj -p --window 10
	refused 2 "--seed: only with --workers" falcon-proj --seed 1
	counted 13
}

@test "falcon-work: keys" {
	local at=127.0.0.1:1 hidden
	work_refused 2 "none: No such file or directory" -k none $at
	work_refused 77 "$keys/observe.key: a key of role observe may not work" \
		-k "$keys/observe.key" $at
	hidden=$(env -u FALCON_KEY HOME=/none XDG_CONFIG_HOME=/none falcon-work $at 2>&1 || :)
	has "$hidden" "no key: give --key FILE"
	sed 's/.\{20\}$//' "$keys/work.key" >cut.key
	work_refused 2 "cut.key:1: coordinator's key is not base64 of 32 bytes" -k cut.key $at
	rm cut.key
	counted 3
}

@test "falcon-work --eval: files" {
	printf '\377\0\0\0\0\0\0\0{}' >m
	work_refused 2 "none.job: No such file or directory" --eval m none.job
	work_refused 2 "none: No such file or directory" --eval none tiny.job
	work_refused 2 "--predict: SAMPLES are missing (see --help)" --predict m tiny.job
	work_refused 2 "none: No such file or directory" --predict m tiny.job none
	refused 2 "m: ends within the header" falcon-work --eval m tiny.job
	rm m
	counted 5
}

@test "falcon-ps --check warns where late gradients meet momentum" {
	local check=(falcon-ps --check --set optimizer.kind=nesterov
		--set optimizer.momentum=0.9 "$root/share/jobs/fashion.job")
	run "${check[@]}" --set sync.scheme=epsp:2
	same "exit status" "$status" 0
	has "$output" "falcon-ps: fashion: warning: slack 2 with momentum 0.9: stable"
	has "$output" "learning rates are up to 17 times lower"
	run "${check[@]}" --set sync.scheme=asp --min-workers 2
	has "$output" "asp of 2 workers with momentum 0.9"
	run "${check[@]}" --set sync.scheme=asp
	has "$output" "asp of 4 workers, if so many come, with momentum 0.9"
	same "lines" "$("${check[@]}" --set sync.scheme=epsp 2>&1 >/dev/null | wc -l)" 1
	run "${check[@]}" --set sync.scheme=epsp:2 --set optimizer.momentum=0 \
		--set optimizer.kind=adamw --set optimizer.beta1=0.95
	has "$output" "warning: slack 2 with beta1 0.95: stable learning rates are up to 154"
}
