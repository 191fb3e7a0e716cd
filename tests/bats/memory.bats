# What programs say that they need of memory, against what they had at their peak.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
	unset MALLOC_PERTURB_ # pages that nobody writes take no memory
}

setup() {
	for_test
	! sanitized || skip "a sanitizer needs memory of its own"
	draw
	tiny tiny
}

# sized PARAMS: the model has about so many.
sized() {
	local wide
	wide=$(awk -v n="$1" 'BEGIN { print int(sqrt(n + 117)) - 11 }')
	printf 'input 16\ndense %s\nrelu\ndense %s\nrelu\ndense 4\n' "$wide" "$wide" \
		>tiny/tiny.model
}

# covers NAME: what it said is at least its peak.
covers() {
	need=$(sed -n 's/.*needs \([0-9]*\) MiB.*/\1/p' "$1.err" | head -n 1)
	peak=$(<"$1.peak")
	echo "# $1: needs $need MiB, had $((peak >> 10)) MiB: $((need * 102400 / peak)) %"
	[ "$peak" -le $((need << 10)) ]
}

# holds NAME: and at most 1.3 times that.
holds() {
	local need peak
	covers "$1" && [ $((need * 10240)) -le $((peak * 13)) ]
}

# worker LANES: one of so many, named by them.
worker() {
	start "lanes$1" "$bin/tests/peak" "lanes$1.peak" falcon-work -k "$keys/work.key" \
		--cache none -n "lanes$1" --lanes "$1" "$ready"
	eval "lanes$1=$pid"
}

# train_by LANES... [-- OPTION...]: a job of two epochs, a snapshot each clock, and workers of
# so many lanes.
train_by() {
	local lanes=() n
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		lanes+=("$1")
		shift
	done
	rm -rf state ps.ready
	start_ready ps "$bin/tests/peak" ps.peak falcon-ps -x -K "$keys/keyring" -l unix:sock \
		-s state -w "${#lanes[@]}" --set batch.task=4 --set state.clocks=1 \
		--set optimizer.lr=1e-6 "${@:2}" tiny/tiny.job
	ps=$pid
	for n in "${lanes[@]}"; do
		worker "$n"
	done
	ended "$ps" ps
	for n in "${lanes[@]}"; do
		eval "ended \"\$lanes$n\" lanes$n"
	done
}

# train [OPTION...]: such a job of two workers.
train() {
	train_by 1 2 -- "$@"
}

# about PARAMS SCHEME: a model of about so many, under this rule, by a drawn optimiser.  What
# others do leaves a worker less where tasks move: it holds for who has all of them.
about() {
	local n
	sized $(($1 * (90 + RANDOM % 21) / 100))
	drawn "sgd" "momentum --set optimizer.momentum=0.9" adamw
	echo "# $(sed -n 2p tiny/tiny.model) $one $2"
	# shellcheck disable=SC2206 # words
	local how=(--set optimizer.kind=$one --set "sync.scheme=$2")
	train "${how[@]}"
	holds ps
	for n in 1 2; do
		if [ "$2" = bsp ]; then
			holds "lanes$n"
		else
			covers "lanes$n"
			train_by "$n" -- "${how[@]}"
			holds "lanes$n"
		fi
	done
}

@test "about 50 thousand parameters, bsp" {
	about 50000 bsp
}

@test "about 50 thousand parameters, epsp" {
	drawn epsp epsp:1
	about 50000 "$one"
}

@test "about a million parameters, bsp" {
	about 1000000 bsp
}

@test "about a million parameters, epsp" {
	drawn epsp epsp:1
	about 1000000 "$one"
}

@test "about four million parameters, bsp" {
	about 4000000 bsp
}

@test "about four million parameters, epsp" {
	drawn epsp epsp:1
	about 4000000 "$one"
}

# apart PARAMS SCHEME: a model of about so many, one or three processes of shards, a drawn
# optimiser.
apart() {
	local n far
	sized $(($1 * (90 + RANDOM % 21) / 100))
	drawn "sgd" "momentum --set optimizer.momentum=0.9" adamw
	local rule=$one
	drawn 1 3
	far=$one
	echo "# $(sed -n 2p tiny/tiny.model) $rule $2, $far far"
	# shellcheck disable=SC2086 # words
	start_ready ps "$bin/tests/peak" ps.peak falcon-ps -x -K "$keys/keyring" \
		-l unix:sock -s state -w 2 --min-shards "$far" --set batch.task=4 \
		--set state.clocks=1 --set optimizer.lr=1e-6 --set optimizer.kind=$rule \
		--set "sync.scheme=$2" tiny/tiny.job
	ps=$pid
	for n in $(seq "$far"); do
		start "shard$n" "$bin/tests/peak" "shard$n.peak" falcon-ps --join "$ready" \
			-k "$keys/shard.key" -l "unix:far$n"
		eval "shard$n=$pid"
	done
	worker 1
	worker 2
	ended "$ps" ps
	# The first figure is for all shards, if they all were there.
	covers ps
	sed -i 's/needs [0-9]* MiB, \([0-9]*\) while/needs \1 MiB while/' ps.err
	holds ps
	for n in $(seq "$far"); do
		eval "ended \"\$shard$n\" shard$n"
		sed -i 's/ need / needs /' "shard$n.err"
		holds "shard$n"
	done
	covers lanes1
	covers lanes2
}

@test "shards of other processes, about 50 thousand parameters" {
	apart 50000 bsp
}

@test "shards of other processes, about a million parameters and a slack" {
	apart 1000000 epsp:1
}

@test "shards of other processes, about four million parameters" {
	drawn bsp epsp
	apart 4000000 "$one"
}

# refuses COMMAND...: with a MiB less than it says that it needs.  What libraries take differs
# by some pages from run to run, which may be the next MiB: each run is held to its own word.
refuses() {
	local most=$((need - 1)) own
	for _ in 1 2 3; do
		run "${@:1:$#-1}" --max-memory "${most}M" "${!#}"
		own=$(sed -n 's/.*recompute needs \([0-9]*\) MiB.*/\1/p' <<<"$output")
		echo "# first $need MiB, now $own: $most allowed, status $status"
		[ "$own" -ge $((need - 1)) ]
		[ "$own" -le $((need + 1)) ]
		if [ "$own" -gt "$most" ]; then
			same status "$status" 1
			same lines "$(grep -c 'bytes, --max-memory allows' <<<"$output")" 1
			return
		fi
		same "status of one that has what it needs" "$status" 0
		most=$((own - 1))
	done
	false
}

# anew SIZE: a run of a model of about so many parameters is computed anew.
anew() {
	sized $(($1 * (90 + RANDOM % 21) / 100))
	drawn bsp epsp:1
	train --set "sync.scheme=$one" --set state.keep=2 --set optimizer.kind=adamw
	stat=(falcon-stat --audit --recompute 100% -C tiny)
	"$bin/tests/peak" stat.peak "${stat[@]}" state >stat.out 2>stat.err
	has "$(<stat.out)" ': equal'
	holds stat
	covers stat
	refuses "${stat[@]}" state
	run -0 "${stat[@]}" --max-memory $(((need + 1) << 20)) state
	has "$output" ': equal'
}

@test "computing anew a run of about a million parameters" {
	anew 1000000
}

@test "computing anew a run of about two million parameters" {
	anew 2000000
}

# bytes_of COMMAND...: what the job needs, as it says it where nothing is allowed.
bytes_of() {
	"$@" --max-memory 1 2>&1 | sed -n 's/.*needs \([0-9]*\) bytes.*/\1/p'
}

@test "another slack, another shard: who has no room for it leaves, and who has says so" {
	sized 1000000
	start_ready ps falcon-ps -x -K "$keys/keyring" -l unix:sock -s state \
		--set batch.task=4 --set job.epochs=40 --set optimizer.lr=1e-6 \
		--set sync.scheme=bsp tiny/tiny.job
	ps=$pid
	work=(falcon-work -k "$keys/work.key" --cache none --lanes 1)
	# What libraries take of it differs by some pages.
	allowed=$(($(bytes_of "${work[@]}" "$ready") + (1 << 20)))
	start held "${work[@]}" -n held --max-memory "$allowed" "$ready"
	held=$pid
	start free "$bin/tests/peak" free.peak "${work[@]}" -n free "$ready"
	free=$pid
	state=state soon "a clock" lines 1 '"ev":"clock"'
	printf '{"scheme":"epsp:3"}' |
		falcon-sync -k "$keys/control.key" "$ready" --allow-model apply -
	ended "$held" held 1
	has "$(<held.err)" "--max-memory allows $allowed: leaving"
	same "lines that say so" "$(grep -c leaving held.err)" 1
	has "$(<ps.err)" "held left: the job came to need more memory than it has"
	start far falcon-ps --join "$ready" -k "$keys/shard.key" -l unix:far
	soon "a stream to it" grep -qz "now needs.*now needs" free.err
	falcon-sync -k "$keys/control.key" "$ready" stop
	ended "$free" free
	has "$(<free.err)" "job tiny now needs"
	need=$(sed -n 's/.*now needs \([0-9]*\) MiB.*/\1/p' free.err | tail -n 1)
	[ "$(<free.peak)" -le $((need << 10)) ]
}

# held_to MIB STATUS COMMAND...: it says what it needs first, ends so, and had no more.
held_to() {
	local most=$1 status=$2 peak
	shift 2
	rm -f held.peak
	run "-$status" "$bin/tests/peak" held.peak "$1" --max-memory "${most}M" "${@:2}"
	peak=$(<held.peak)
	echo "# $1: $most MiB, had $((peak >> 10)) MiB: ${lines[*]:0:2}"
	[[ "${lines[0]}" =~ ^"$1: needs "[0-9]+" MiB beside its input"$ ]]
	[ "$peak" -le $((most << 10)) ]
	run -1 "$1" --max-memory 1 "${@:2}"
	[[ "$output" =~ ^"$1: needs "[0-9]+" bytes, --max-memory allows 1"$ ]]
}

@test "programs that read files are held to what they may have" {
	head -c 15000000 /dev/zero | tr '\0' a >line
	for most in 16 18 20; do
		held_to "$most" 1 falcon-proj line
		held_to "$most" 1 falcon-stat line
		held_to "$most" 1 falcon-stat --audit line
	done
	held_to 64 2 falcon-proj line
	held_to 64 2 falcon-stat line
	held_to 20 0 falcon-key show "$keys/keyring"
}

@test "a short line of a trace that counts a million tasks is named where they have no memory" {
	local all=1048576
	cat >short <<-END
		{"t":0,"ev":"job","name":"j","hash":"a","seed":"1","epochs":1,"batch":$all,"task":1,"samples":$all,"test":0,"params":1,"blocks":1,"shards":1,"clocks_per_epoch":1,"clocks":1,"scheme":"epsp","audit":"claims","hashes":0,"numerics":"fast","optimizer":"sgd","incarnation":0,"version":"0"}
		{"t":0,"ev":"join","worker":"a","id":1,"lanes":[1,1],"cores":1,"fingerprint":"f"}
		{"t":1,"ev":"ledger","round":0,"clock":0,"first":0,"tasks":$all,"samples":$all,"version":0,"blocks":1,"kind":"grad","end":"applied","grant":[[1,0,$all]],"move":[],"clone":[],"regrant":[],"lost":[],"contrib":[{"c":[1,1],"tasks":[[0,$all]],"blocks":1}]}
	END
	run -1 falcon-stat --audit --max-memory 24M short
	has "$output" "falcon-stat: short:3: ledger: out of memory"
}
