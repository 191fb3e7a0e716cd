# Workers that hang, and answer all the while: the job goes on with those that work.

load common
load job
load tiny

bats_require_minimum_version 1.5.0

setup_file() {
	for_file
}

setup() {
	for_test
	tiny tiny
	job=(tiny/tiny.job)
	# After half a second one of its tasks takes a quarter of an hour.
	printf '0 1\n0.5 0.00001\n' >hang
}

# two_of_three_hang SCHEME: the job ends, in time, with the parameters of the law.
two_of_three_hang() {
	serve -w 3 --set job.epochs=10 --set sync.scheme="$1"
	slow honest 1 800
	for i in 1 2; do
		work "hangs$i" --lanes 1 --emulate "rate=800,cores=1,trace=$PWD/hang"
	done
	ended "$ps" ps
	for i in "${workers[@]}"; do
		wait "$i"
	done
	same "versions" "$(jq -r 'select(.ev == "done") | .version' "$state/trace.jsonl")" 40
	falcon-stat --audit "$state/trace.jsonl"
	# They did their part before, and nothing but trials since.
	jq -se 'map(select(.ev == "clock" and .clock >= 35)) |
		([.[] | select(.worker == "honest") | .done] | add) >= 38 and
		all(.[] | select(.worker != "honest"); .share <= 1)' "$state/trace.jsonl"
	jq -se 'map(select(.ev == "ledger"))[0].grant | group_by(.[0]) |
		length == 3 and all(.[]; (map(.[2]) | add) > 1)' \
		"$state/trace.jsonl"
	# Everybody is told.
	falcon-stat "$state/trace.jsonl" >table
	for i in 1 2; do
		# Why depends on when its lanes last were seen to move.
		grep -Eq "^falcon-ps: tiny: hangs$i owes [a-z ]+ for [0-9.]+ s, (its lanes stand still|it sends nothing|it takes too long)" \
			ps.err
		has "$(grep "^hangs$i " table)" suspect
		has "$(cat table)" "suspect hangs$i: for "
	done
	run -1 grep -q '^honest .*suspect' table
	same "suspects" "$(falcon-stat --json "$state/trace.jsonl" |
		jq -c '[.workers[] | select(.suspect) | [.worker, .class]] | sort')" \
		'[["hangs1","suspect"],["hangs2","suspect"]]'
	falcon-stat --audit "$state/trace.jsonl" >audit
	grep -q "^audit: not proven, .*suspected [0-9]" audit
}

@test "epsp: two real workers of three hang while they answer" {
	two_of_three_hang epsp
}

@test "bsp: two real workers of three hang while they answer" {
	two_of_three_hang bsp
}

@test "who stands still, works again and is killed is told of" {
	serve -w 2 --set job.epochs=4000
	slow stays 1 3000
	slow other 1 3000
	soon "some clocks" lines 8 '"ev":"update"'
	kill -STOP "${workers[1]}"
	soon "the suspect" grep -Eq \
		"^falcon-ps: tiny: other owes (a task|part of a push|an evaluation) for [0-9.]+ s, it does not answer: its" ps.err
	falcon-stat -k "$keys/observe.key" "$ready" >table
	has "$(grep '^other ' table)" suspect
	grep -Eq '^suspect other: for [0-9.]+ s, it does not answer$' table
	# Somebody who asks much later is told, too.
	at_clock $(($(grep -c '"ev":"ledger"' "$state/trace.jsonl") + 120))
	falcon-stat -k "$keys/observe.key" "$ready" >table
	has "$(grep '^other ' table)" suspect
	kill -CONT "${workers[1]}"
	soon "that it is back" grep -Eq "^falcon-ps: tiny: other is back after [0-9.]+ s: its work came" ps.err
	soon "some clocks more" lines 1 '"ev":"back","worker":"other"'
	falcon-stat -k "$keys/observe.key" "$ready" >table
	run -1 grep -q '^other .*suspect' table
	kill -KILL "${workers[1]}"
	soon "that it is gone" grep -q "tiny: other left: " ps.err
	falcon-stat -k "$keys/observe.key" "$ready" >table
	has "$(grep '^other ' table)" left
	falcon-sync -k "$keys/control.key" "$ready" stop
	wait "$ps" || same "status" "$?" 75
	same "the trace" "$(jq -r 'select(.ev == "suspect" or .ev == "back" or .ev == "leave") | "\(.ev) \(.worker)"' \
		"$state/trace.jsonl" | head -n 3 | xargs)" "suspect other back other leave other"
	falcon-stat --audit --partial "$state/trace.jsonl"
}
