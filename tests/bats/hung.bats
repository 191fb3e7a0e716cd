# Workers that hang, and answer all the while: the job goes on with those that work.

load common
load job
load tiny

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

teardown() {
	stop_all
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
	jq -se 'map(select(.ev == "clock" and .clock == 2 and .worker != "honest")) |
		all(.[]; .share > 1)' "$state/trace.jsonl"
}

@test "epsp: two real workers of three hang while they answer" {
	two_of_three_hang epsp
}

@test "bsp: two real workers of three hang while they answer" {
	two_of_three_hang bsp
}
