# How far a job is: a bar that fits the terminal, a line for each epoch elsewhere.

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

@test "without a terminal each epoch gets a line" {
	serve --set job.epochs=3
	work a --lanes 1 --emulate rate=250
	wait "$ps"
	same "lines" "$(grep -c '^falcon-ps: tiny: epoch' ps.err)" 3
	grep -Eq '^falcon-ps: tiny: epoch 2 of 3: training loss [0-9.]+, test loss [0-9.]+, accuracy [0-9.]+, [0-9.]+ s$' \
		ps.err
}

@test "without -x, what a coordinator of a job that is done waits for is said" {
	start_ready ps falcon-ps -K "$keys/keyring" -l unix:sock -s state tiny.job
	local ps=$pid
	work a
	ended "$pid" a
	soon "the line" grep -q '^falcon-ps: tiny: is done: .* get answers until SIGTERM' ps.err
	falcon-stat -k "$keys/observe.key" unix:sock
	kill -TERM "$ps"
	ended "$ps" ps
}

@test "what is lost by whole tasks is said when workers have joined" {
	serve --set job.epochs=1000
	work a --lanes 1 --emulate rate=250
	soon "the first line" grep -q '1 lane of 1 worker, .* % is lost' ps.err
	work b --lanes 1 --emulate rate=250
	soon "the second line" grep -q '2 lanes of 2 workers, .* % is lost' ps.err
	same lines "$(grep -c ' is lost as tasks are whole' ps.err)" 2
}

# on_terminal COLUMNS: what a coordinator draws there, while its job takes 3 seconds.
on_terminal() {
	mkfifo address
	TERM=xterm script -qefc "stty cols $1; exec falcon-ps -jx -K '$keys/keyring' -l 127.0.0.1:0 \
		-s state --ready-fd 4 tiny.job 4>address >/dev/null" drawn >/dev/null </dev/null &
	started+=($!)
	read -r -t 30 ready <address
	work a --lanes 1 --emulate rate=170
	wait "${started[0]}"
	rm -r address state
}

@test "the bar fits the terminal" {
	command -v script >/dev/null || skip "no script(1)"
	script -qc true /dev/null </dev/null >/dev/null || skip "no terminals here"
	local columns
	for columns in 40 80 132; do
		started=()
		on_terminal "$columns"
		# Drawn from its first column on, without what moves and colours.
		sed 's/\x1b\[[0-9;]*[mK]//g' drawn | tr '\r' '\n' | grep '^tiny' >bars
		[ "$(wc -l <bars)" -ge 5 ]
		same "wider than $columns" "$(awk -v most="$columns" 'length >= most' bars)" ""
		# What is said in between is broken between words.
		sed 's/\x1b\[[0-9;]*[mK]//g' drawn | tr -d '\n' | tr '\r' '\n' |
			grep -v '^Script' >all
		same "lines wider than $columns" "$(awk -v most="$columns" 'length > most' all)" ""
		grep -q '^falcon-ps: tiny: 1 lane of 1 worker, ' all
		has "$(tail -n 1 bars)" "s left"
	done
	has "$(tail -n 1 bars)" "training loss"
	has "$(tail -n 1 bars)" ", epoch 2 of 2, accuracy "
	same "losses that are none" "$(grep -c 'loss 0\.0000' bars)" 0
}

# shown COLUMNS COMMAND...: what it prints on a terminal of so many.
shown() {
	local columns=$1
	shift
	TERM=xterm script -qefc "stty cols $columns; $*" /dev/null </dev/null | tr -d '\r'
}

@test "tables and what is said fit the terminal" {
	command -v script >/dev/null || skip "no script(1)"
	script -qc true /dev/null </dev/null >/dev/null || skip "no terminals here"
	serve --min-workers 2
	work a-worker-with-a-name --lanes 1
	work another --lanes 1
	wait "$ps"
	local trace=state/trace.jsonl columns command
	falcon-stat "$trace" >piped
	same "columns" "$(grep -c '^WORKER  *CLASS  *CAUSE  *CLOCK  *LANES  *SHARE  *TASKS  *IN  *OUT  *COMPUTE%  *PUSH%  *PULL%  *WAIT%  *SAMPLES/S$' piped)" 1
	for columns in 40 80 132; do
		for command in falcon-stat "falcon-stat --audit" "falcon-stat --history" \
			falcon-proj "falcon-proj --what-if all"; do
			shown "$columns" "$command" "$trace" >seen
			same "$command: wider than $columns" \
				"$(awk -v most="$columns" 'length > most' seen)" ""
			[ -s seen ]
		done
		shown "$columns" falcon-stat "$trace" >seen
		grep -q '^WORKER  *CLASS' seen
		shown "$columns" falcon-stat --json "$trace" | jq -e '.workers | length == 2'
	done
	# As without a terminal.
	diff seen piped
	# watch(1) reads from a pipe, and says how many columns it has.
	for command in falcon-stat "falcon-stat --history" falcon-proj; do
		COLUMNS=80 $command "$trace" >seen
		same "$command: wider than 80" "$(awk 'length > 80' seen)" ""
		grep -Eq '^(WORKER|EPOCH) ' seen
	done
}

@test "a worker tells how far the job is, where it is to say more" {
	serve
	work a --lanes 1 --emulate rate=40 -v
	wait "$ps"
	grep -Eq '^falcon-work: tiny: epoch 2 of 2, clock [5-8] of 8: [0-9.]+ tasks a second$' \
		a.err
}

# renamed NAME...: the trace as if its workers had these names.
renamed() {
	jq -c --argjson to "$(jq -nc '$ARGS.positional' --args "$@")" '
		(if .ev == "join" then .worker = $to[.id - 1] else . end) |
		if .ev == "clock" then .worker = $to[.id - 1] else . end | del(.h)' \
		state/trace.jsonl
}

@test "names are whole, or cut so that no two look alike" {
	serve --min-workers 2
	work one --lanes 1
	work two --lanes 1
	wait "$ps"
	draw
	local same columns command at name=()
	same=$(printf 'rack%.0s' {1..15})
	at=$((RANDOM % 60))
	name=("${same:0:at}1${same:at}a" "${same:0:at}2${same:at}a")
	renamed "${name[@]}" >long
	for command in falcon-stat falcon-proj; do
		"$command" long >piped
		for columns in 0 1; do
			grep -q "^${name[columns]} " piped
		done
		command -v script >/dev/null && script -qc true /dev/null </dev/null >/dev/null ||
			continue
		for columns in 80 200; do
			shown "$columns" "$command" long |
				# A row that is too long goes on, indented.
				awk '/^WORKER/ { n = 2; next } !/^ / && n-- > 0 { print $1 }' |
				sort -u >seen
			same "$command on $columns columns: $(<seen)" "$(wc -l <seen)" 2
		done
		sort <(printf '%s\n' "${name[@]}") | diff - seen
	done
}

@test "of one thing nobody says that it is many" {
	job+=(--set job.epochs=1 --set batch.size=256 --set batch.task=256)
	falcon-ps --check "${job[@]}" --set optimizer.kind=adagrad >said 2>&1
	serve
	work alone --lanes 1
	ended "$ps" ps
	local trace=state/trace.jsonl
	{
		cat ps.err alone.err
		falcon-stat "$trace"
		falcon-stat --audit "$trace"
		falcon-stat --history "$trace"
		falcon-proj "$trace"
		falcon-proj --what-if groups:2 "$trace"
		falcon-proj --what-if all --workers 1 "$trace"
	} >>said 2>&1
	has "$(<said)" "audit: ok: 1 clock, 1 task, "
	same "of one" "$(grep -E '(^|[^0-9.,:])1 [a-z]+s\b' said | grep -v '1 is ' || :)" ""
}

@test "the demo fits the terminal" {
	command -v script >/dev/null || skip "no script(1)"
	script -qc true /dev/null </dev/null >/dev/null || skip "no terminals here"
	small_demo
	local columns
	draw
	for columns in 40 80 $((41 + RANDOM % 100)); do
		TERM=xterm script -qefc "stty cols $columns; exec '$root/share/demo'" drawn \
			>/dev/null </dev/null
		sed 's/\x1b\[[0-9;]*[mK]//g' drawn | tr '\r' '\n' | grep -v '^Script ' >seen
		# But for the models' sums, which are whole.
		same "wider than $columns" "$(grep -v "'s model" seen |
			awk -v most="$columns" 'length > most')" ""
		tr -s ' \n' ' ' <seen >words
		has "$(<words)" "samples/s; 1 epoch of "
		has "$(<words)" "do not believe the speeds"
		has "$(<words)" "This machine was too busy for its part"
		has "$(<words)" "EPSP's model"
		has "$(<words)" "The same model, bit by bit."
	done
}
