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

teardown() {
	stop_all
}

@test "without a terminal each epoch gets a line" {
	serve --set job.epochs=3
	work a --lanes 1 --emulate rate=250
	wait "$ps"
	same "lines" "$(grep -c '^falcon-ps: tiny: epoch' ps.err)" 3
	grep -Eq '^falcon-ps: tiny: epoch 2 of 3: loss [0-9.]+, accuracy [0-9.]+, [0-9.]+ s$' \
		ps.err
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
		has "$(tail -n 1 bars)" "s left"
	done
	has "$(tail -n 1 bars)" "loss"
}
