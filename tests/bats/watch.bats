# falcon-stat --watch: the live screen, in a terminal of tmux.

bats_require_minimum_version 1.5.0
load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	command -v tmux >/dev/null || skip "tmux is not installed"
	for_test
	tiny .
	job=(tiny.job)
	terminal=falcon-$BATS_TEST_NUMBER-$$
	tm -f /dev/null new-session -d -x 80 -y 24 2>err || skip "no terminals here: $(<err)"
}

teardown() {
	tm kill-server 2>/dev/null || :
	stop_all
}

tm() {
	tmux -L "$terminal" "$@" 3>&-
}

# types COMMAND: in the terminal, whose shell then tells its exit status.
types() {
	tm respawn-pane -k "PATH='$PATH' $*; echo status \$?; exec sleep 1000"
}

# screen: what the terminal shows.
screen() {
	tm capture-pane -p "$@"
}

shows() {
	screen >seen
	grep -Eq -- "$1" seen
}

# seen_soon PATTERN: waits for the pattern to be on the screen.
seen_soon() {
	soon "$1: $(cat seen 2>/dev/null)" shows "$1"
}

# clock: of the screen that was seen last.
clock() {
	sed -n 's/.*, clock \([0-9]*\) of.*/\1/p' seen
}

# beyond CLOCK: whether the screen has come farther.
beyond() {
	shows '^tiny: ' && [ "$(clock)" -gt "$1" ]
}

@test "a running job: workers, curves, policy, events; the screen is resized; q gives it back" {
	serve --min-workers 2 --set job.epochs=400
	work fast --lanes 1 --emulate rate=4000
	slow late 1/4 4000
	types "LC_ALL=C.UTF-8 falcon-stat -k '$keys/observe.key' --watch $ready"
	seen_soon '^tiny: epoch [0-9]+ of 400, clock [0-9]+ of 1600, [0-9]+:[0-5][0-9]:[0-5][0-9] left$'
	seen_soon '^late +straggler +compute +1 +[0-9]+ +[0-9]+ +[0-9]+ +0  [#>.<]{20}$'
	seen_soon '^training loss  [0-9.]+ +[▁▂▃▄▅▆▇█]+$'
	seen_soon '^test loss      [0-9.]+ +[▁▂▃▄▅▆▇█]+$'
	seen_soon '^policy         epsp'
	seen_soon '^ +[0-9.]+ s join fast$'
	same "the last line" "$(tail -n 1 seen)" "q quits"
	same "wider than 80" "$(LC_ALL=C.UTF-8 grep -E '^.{81}' seen)" ""
	[ "$(sed -n '/^WORKER/,/^time:/p' seen | sed -n 2p | cut -d ' ' -f 1)" = late ]
	tm resize-window -x 120 -y 40
	seen_soon 'FALLS  SAMPLES/S  TIME$'
	same "lines" "$(wc -l <seen)" 40
	# A worker that is lost is an event, and its row stays, as the last one.
	kill -KILL "${workers[1]}"
	seen_soon ' s leave late: '
	seen_soon '^late +left +- .* 1 '
	same "the last row" "$(sed -n '/^WORKER/,/^time:/p' seen | tail -n 2 | head -n 1 | cut -d ' ' -f 1)" late
	tm send-keys q
	seen_soon '^status 0$'
	same "what is left of the screen" "$(grep -c '^tiny' seen)" 0
	kill "$ps"
}

@test "a coordinator that goes and comes back; the end of its job" {
	job+=(--set job.epochs=40 --set state.clocks=4)
	at_unix
	work a --lanes 1 --emulate rate=1000
	types "falcon-stat -k '$keys/observe.key' --watch $ready"
	seen_soon 'clock [0-9]+ of 160, .*left$'
	at_clock 10
	killed
	seen_soon '^no connection: trying again; q quits$'
	seen_soon '^tiny: epoch '
	at_unix
	seen_soon ' s restart'
	seen_soon '^tiny: epoch 40 of 40, clock 160 of 160, done$'
	seen_soon '^q quits$'
	tm send-keys C-c
	seen_soon '^status 0$'
}

@test "a trace and a run's folder grow; no colours where none are wanted, no cursor where there is none" {
	serve --set job.epochs=60
	work a --lanes 1 --emulate rate=2000
	at_clock 8
	types "LC_ALL=C falcon-stat --watch state"
	seen_soon '^training loss  [0-9.]+ +[-_.:=+*#]+$'
	screen -e | grep -q $'\x1b\\[32m'
	soon "more clocks" beyond "$(clock)"
	types "NO_COLOR=1 falcon-stat --watch state/trace.jsonl"
	seen_soon '^WORKER'
	same "colours" "$(screen -e | grep -c $'\x1b\\[[39]')" 0
	wait "$ps"
	seen_soon 'clock 240 of 240, done$'
	tm pipe-pane -o "cat >$PWD/bytes"
	types "TERM=dumb falcon-stat --watch state"
	seen_soon '^q quits$'
	tm send-keys q
	seen_soon 'status 0$'
	same "control sequences" "$(tr -d '\n' <bytes | grep -c $'\x1b')" 0
	grep -q '^tiny: epoch 60 of 60' bytes
}

@test "what cannot be watched is said as ever" {
	run -2 falcon-stat --watch tiny.job </dev/null
	same "no terminal" "$output" "falcon-stat: --watch needs a terminal"
	types "falcon-stat --watch tiny.job"
	seen_soon '^status 2$'
	has "$(<seen)" "falcon-stat: tiny.job:1: "
	types "falcon-stat --watch nowhere"
	seen_soon '^status 2$'
	has "$(<seen)" "falcon-stat: nowhere: No such file or directory"
	types "falcon-stat --watch --json state"
	seen_soon '^status 2$'
	serve
	types "falcon-stat -k '$keys/work.key' --watch $ready"
	seen_soon '^status 77$'
}
