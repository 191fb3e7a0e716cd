# A coordinator that was killed goes on from its last snapshot, as if nothing had happened.

bats_require_minimum_version 1.5.0

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
	job=(--set job.epochs=12 --set state.clocks=$((RANDOM % 4 + 1))
		--set state.keep=$((RANDOM % 3 + 1)) tiny.job)
}

# begin [OPTION...]: a coordinator, or the next one, with shards that are drawn.
begin() {
	[ ! -e ps.err ] || cat ps.err >>all.err
	at_unix --shards $((RANDOM % 3 + 1)) "$@"
}

# sums DIR: of the model, of the average, if there is one, and of all versions.
sums() {
	jq -c '[.sha256, .average_sha256, .hash]' "$1/result.json"
	state=$1 versions
}

# undisturbed [OPTION...]: what the job ends with when nothing happens to it.
undisturbed() {
	local state=$BATS_TEST_TMPDIR/calm
	serve "$@"
	work calm --lanes 1
	ended "$ps" ps
	calm=$(sums "$state")
}

# updates: how many the trace tells of.
updates() {
	grep -c '"ev":"update"' "$state/trace.jsonl" || :
}

# more N: whether there are that many by now.
more() {
	[ "$(updates)" -ge "$1" ]
}

# whole TIMES: the job is done, with the model of one that was left alone, and its trace
# says so, and that it went on so often.
whole() {
	same "the model and its average" "$(sums "$state")" "$calm"
	falcon-stat --audit "$state/trace.jsonl"
	same incarnations "$(jq -s -c 'map(select(.ev == "restart") | .incarnation)' \
		"$state/trace.jsonl")" "$(jq -n -c "[range(1; $1 + 1)]")"
	falcon-stat --json "$state/trace.jsonl" >stat.json
	same "the last one" "$(jq -c '[.incarnation, .resumed.clock, .resumed.again]' stat.json)" \
		"$(jq -sc 'map(select(.ev == "restart")) | last |
			[.incarnation, .clock, ([.until - .clock, 0] | max)]' "$state/trace.jsonl")"
	has "$(falcon-stat "$state/trace.jsonl")" "incarnation: $1, since "
	same "lines that count" "$(falcon-stat --json "$state/trace.jsonl" | jq .clocks)" 48
	falcon-proj "$state/trace.jsonl" >report
	has "$(cat report)" "job: tiny, "
	has "$(chain <"$state/trace.jsonl" | tail -n 1)" "$(member chain)"
}

# disturbed OPTION...: kills at places that are drawn.
disturbed() {
	local i at
	undisturbed "$@"
	begin "$@"
	local text
	text=$(stat -c %i "$state/job")
	# So slow that it is not over before the last kill.
	slow a 1 200
	slow b 0.5 200
	for i in 1 2 3; do
		at=$(($(updates) + RANDOM % 9 + 1))
		soon "clocks" more "$at"
		if [ $((RANDOM % 3)) = 0 ]; then
			kill -TERM "$ps"
			ended "$ps" ps
		else
			killed
		fi
		begin "$@"
		has "$(cat ps.err)" "tiny: resumed at clock "
		has "$(cat ps.err)" " s of work are done again"
	done
	# What is the same is not written anew: a full disk would keep the job from going on.
	same "the job's text, the file" "$(stat -c %i "$state/job")" "$text"
	# Who has not come back when it is over is not told so.
	soon "a is back" grep -qF "tiny: a joined" ps.err
	soon "b is back" grep -qF "tiny: b joined" ps.err
	work quick --lanes 1
	ended "$ps" ps
	ended "${workers[1]}" a
	ended "${workers[2]}" b
	whole 3
}

@test "killed at clocks that are drawn: the same model" {
	disturbed
}

@test "with a slack, an optimiser of two states, clipping and an average: the same" {
	local slack=(1/4 2/3 1 2 3)
	disturbed --set "sync.scheme=epsp:${slack[RANDOM % 5]}" --set optimizer.kind=adamw \
		--set optimizer.lr=0.01 --set optimizer.clip=0.5 --set optimizer.ema=0.9
}

@test "what is torn or damaged is named, and the one before is taken" {
	local last
	job+=(--set state.clocks=1 --set state.keep=2)
	undisturbed
	begin
	slow a 1 500
	soon "snapshots" lines 6 '"ev":"update"'
	killed
	printf '{"t":9,"ev":"upd' >>"$state/trace.jsonl"
	last=$(basename "$(printf '%s\n' "$state"/snapshot.0* | tail -n 1)")
	# A byte in the middle; what was begun is nothing.
	printf x | dd of="$state/$last/state.safetensors" bs=1 seek=700 conv=notrunc status=none
	mkdir -p "$state/snapshot.new"
	: >"$state/snapshot.new/state.safetensors"
	begin
	has "$(cat ps.err)" "$last/state.safetensors: is not what its manifest says: the snapshot before"
	has "$(cat ps.err)" "trace.jsonl: its end was torn: 16 bytes cut off"
	work fast --lanes 1
	ended "$ps" ps
	jq -se 'map(select(.ev == "restart")) | .[0].torn == 16' "$state/trace.jsonl"
	whole 1
}

# kept: the clocks of the snapshots that there are.
kept() {
	printf '%s\n' "$state"/snapshot.0* | sed "s/.*snapshot[.]0*\\([0-9]\\)/\\1/"
}

# kept_from N: whether the oldest of two that there are is of clock N or a later one.
kept_from() {
	local all
	mapfile -t all < <(kept)
	[ "${#all[@]}" = 2 ] && [ "${all[0]}" -ge "$1" ]
}

@test "snapshots by seconds alone, so many as are to be kept; who was how fast is known again" {
	local last
	job=(--set job.epochs=12 --set state.clocks=0 --set state.seconds=1 --set state.keep=2
		tiny.job)
	undisturbed
	begin --min-workers 2
	slow a 1 600
	# It says that it is as fast as the other, and is not.
	printf '0 1\n0.1 0.2\n' >later
	work b --lanes 1 --emulate "rate=600,cores=1,trace=$PWD/later"
	soon "two snapshots, and none of before" kept_from 3
	killed
	last=$(kept | tail -n 1)
	# Some clocks a second: they go by the time.
	[ "$(kept | head -n 1)" -lt $((last - 1)) ]
	begin --min-workers 2
	has "$(cat ps.err)" "tiny: resumed at clock $last of 48"
	ended "$ps" ps
	whole 1
	# The first clock that is done again is shared as who came has worked before.
	jq -se --argjson last "$last" '
		(map(.ev == "restart") | index(true)) as $at | .[$at:] |
		map(select(.ev == "ledger" and .clock == $last))[0].grant |
		group_by(.[0]) | map(map(.[2]) | add) | max >= 6 and add == 8' "$state/trace.jsonl"
}

@test "a change of policy behind the snapshot holds again from its clock on" {
	local clock
	# The snapshot of version 0 is the only one.
	job=(--set job.epochs=12 --set state.clocks=1000 tiny.job)
	begin
	slow a 1 500
	soon "some clocks" more 3
	falcon-sync -k "$keys/control.key" unix:sock set scheme=epsp:2
	clock=$(jq .clock "$state/policy.jsonl")
	soon "some more" more $((clock + 3))
	killed
	begin
	has "$(cat ps.err)" "tiny: resumed at clock 0 of 48; "
	ended "$ps" ps
	falcon-stat --audit "$state"
	same "from when it holds" "$(jq -c 'select(.ev == "policy" and .scheme == "epsp:2") |
		[.clock, .version]' "$state/trace.jsonl" | uniq)" "[$clock,$clock]"
	same "lines of the journal" "$(wc -l <"$state/policy.jsonl")" 1
	# What was done twice came out the same, behind the change, too.
	jq -se --argjson c "$clock" 'map(select(.ev == "update")) | group_by(.clock) |
		map(select(length == 2)) |
		length > $c and all(map([.loss, .hash]) | unique | length == 1)' \
		"$state/trace.jsonl"
}

# order VERB...: of a controller.
order() {
	falcon-sync -k "$keys/control.key" unix:sock "$@"
}

# shown: the scheme in force, since when, and who set it.
shown() {
	order --json show | jq -c '[.policy.scheme, .since, .by]'
}

# in_force SCHEME: whether it is in force; since when one is must be what the journal says.
in_force() {
	local is
	is=$(shown)
	has "$(jq -c '[.policy.scheme, .clock, .by]' "$state/policy.jsonl")" "$is" &&
		[[ $is == "[\"$1\","* ]]
}

@test "since when a policy holds is told of the one in force, not of one that is to hold again" {
	job=(--set job.epochs=12 --set state.clocks=1000 tiny.job)
	at_unix
	slow a 1 500
	soon "a clock" more 1
	order set scheme=epsp:1
	[ $((RANDOM % 2)) = 0 ] || order checkpoint >kept
	soon "some clocks" more $(($(updates) + 3))
	order set scheme=epsp:2
	soon "some more" more $(($(updates) + 3))
	order set scheme=epsp:3
	kill -KILL "$pid" "$ps"
	wait "$pid" "$ps" || :
	at_unix
	if [ -e kept ]; then
		in_force epsp:1
	else
		same "the policy" "$(shown)" '["epsp",0,"job"]'
	fi
	slow a 1 500
	soon "the second" in_force epsp:2
	soon "the third" in_force epsp:3
	order set clones=no
	same "the newest" "$(order --json show | jq -c '[.since, .by]')" \
		"$(jq -c '[.clock, .by]' "$state/policy.jsonl" | tail -n 1)"
}

# not_that_journal: a start refuses the one that is there.
not_that_journal() {
	run timeout 20 falcon-ps -x -K "$keys/keyring" -l unix:sock -s "$state" "${job[@]}"
	same "status ($output)" "$status" 2
	[[ $output =~ "policy.jsonl: its line "[12]" differs from the line where the snapshot was taken" ]]
}

@test "a journal that is not the one of the snapshot is refused" {
	job=(--set job.epochs=12 --set state.clocks=1000 tiny.job)
	at_unix
	slow a 1 500
	order set scheme=epsp:1
	order checkpoint
	soon "some clocks" more $((RANDOM % 6 + 2))
	order set scheme=epsp:2
	kill -KILL "$ps"
	wait "$ps" || :
	at_unix
	# The second change may wait by now to hold again, or hold.
	order checkpoint
	kill -KILL "$ps"
	wait "$ps" || :
	cp "$state/policy.jsonl" was
	sed 's/"by":"[^"]*"/"by":"eve"/' was | chain >"$state/policy.jsonl"
	not_that_journal
	rm "$state/policy.jsonl"
	not_that_journal
	cp was "$state/policy.jsonl"
	at_unix
	ended "$ps" ps
	falcon-stat --audit "$state/trace.jsonl"
	same "lines of the journal" "$(wc -l <"$state/policy.jsonl")" 2
}

@test "falcon-sync checkpoint: what was done by then is not done again" {
	local clock
	job=(--set job.epochs=12 --set state.clocks=1000 tiny.job)
	undisturbed
	begin
	slow a 1 500
	soon "some clocks" more $((RANDOM % 9 + 3))
	falcon-sync -k "$keys/control.key" unix:sock checkpoint
	clock=$(basename "$(printf '%s\n' "$state"/snapshot.0* | tail -n 1)")
	clock=$((10#${clock#snapshot.}))
	[ "$clock" -ge 3 ]
	killed
	begin
	has "$(cat ps.err)" "tiny: resumed at clock $clock of 48; "
	# Whoever looks on is told, too.
	falcon-stat -k "$keys/observe.key" unix:sock >table
	[[ $(cat table) =~ "incarnation: 1, since "[0-9.]+" s, resumed at clock $clock, "[0-9]+" clock"s?" done again" ]]
	[[ $(cat table) =~ "clocks: "([0-9]+)" of 48" ]]
	[ "${BASH_REMATCH[1]}" -ge "$clock" ]
	ended "$ps" ps
	whole 1
	run -1 grep '^incarnation' <(falcon-stat calm/trace.jsonl)
	# Where there can be none.
	rm -rf "$state"
	begin --set sync.scheme=asp
	slow b 1 500
	soon "some clocks" more 2
	run falcon-sync -k "$keys/control.key" unix:sock checkpoint
	same "status ($output)" "$status" 1
	has "$output" "rounds of this scheme are not shared"
}

@test "accuracy and seconds of a job are those of all its starts" {
	job=(--set job.epochs=12 --set state.clocks=1000 tiny.job)
	begin
	slow a 1 2000
	soon "evaluations" lines 3 '"ev":"eval"'
	order checkpoint
	kill -KILL "${workers[0]}"
	wait "${workers[0]}" || :
	killed
	begin
	soon "the restart" lines 1 '"ev":"restart"'
	jq -sc '.[:map(select(.ev == "restart"))[0].lines] | map(select(.ev == "eval") |
		[.accuracy, .epoch])[]' "$state/trace.jsonl" >was
	[ "$(wc -l <was)" -ge 3 ]
	# Nobody is there who could evaluate it again.
	falcon-stat --json -k "$keys/observe.key" unix:sock >stat.json
	same "the last accuracy" "$(jq -c '[.accuracy, .epoch]' stat.json)" "$(tail -n 1 was)"
	start look falcon-stat --follow -k "$keys/observe.key" unix:sock
	look=$pid
	work b --lanes 1
	ended "$ps" ps
	ended "$look" look
	same "what is sent of them" "$(sed /restart/q look.out |
		jq -c 'select(.ev == "eval") | [.accuracy, .epoch]')" "$(<was)"
	# From the first worker on; the next one was waited for, too.
	jq -se --argjson s "$(member seconds)" '
		map(select(.ev == "join"))[0].t as $first |
		map(select(.ev == "join"))[1].t as $next | map(select(.ev == "restart"))[0].t as $at |
		(.[-1].t - $first - ($next - $at) - $s) | . < 0.1 and . > -0.1' "$state/trace.jsonl" ||
		same seconds "$(member seconds)" "$(jq -c 'select(.ev | . == "join" or . == "done" or . == "restart") | [.t, .ev]' "$state/trace.jsonl")"
}

# Steps are ordered ahead of what they are made of: there is nearly always one under way.
@test "SIGTERM keeps all that is there, whatever is under way" {
	local i
	job=(--set job.epochs=12 --set state.clocks=1000 --set state.seconds=1000 tiny.job)
	undisturbed
	begin
	slow a 1 200
	slow b 0.5 200
	for i in 1 2 3 4 5; do
		soon "some clocks" more $((i * 6 + RANDOM % 3))
		kill -TERM "$ps"
		ended "$ps" ps
		begin
	done
	work quick --lanes 1
	ended "$ps" ps
	whole 5
}

@test "another job's state is refused with the key that differs, and no trace that is read once" {
	begin
	slow a 1 500
	soon "some clocks" more 6
	killed
	run falcon-ps -x -K "$keys/keyring" -l unix:sock -s "$state" --set job.seed=2 \
		"${job[@]}"
	same "status ($output)" "$status" 2
	has "$output" "$state: holds the state of another job: job.seed is 1, not 2"
	begin
	ended "$ps" ps
	# Only where lines were taken back does it matter.
	want=$(jq -s '(map(.ev) | index("restart")) as $n | if .[$n].lines < $n then 2 else 0 end' \
		"$state/trace.jsonl")
	run falcon-stat --audit - <"$state/trace.jsonl"
	same "status ($output)" "$status" "$want"
	[ "$want" = 0 ] || has "$output" ": restart: the job goes on from line "
	[ "$want" = 0 ] || has "$output" "falcon-stat: standard input:"
	# Done is done.
	run falcon-ps -x -K "$keys/keyring" -l unix:sock -s "$state" "${job[@]}"
	same "status ($output)" "$status" 0
}

# epochs N: the same job, with so many.
epochs() {
	job=("${job[@]/#job.epochs=*/job.epochs=$1}")
}

@test "more epochs go on from a finished job's end: the model of one that had them at first" {
	local first=$((RANDOM % 6 + 1)) some=$((RANDOM % 4 + 1))
	job=(--set optimizer.kind=momentum --set optimizer.momentum=0.9
		--set "sync.scheme=epsp:$((RANDOM % 4))" --set schedule.kind=step
		--set schedule.every=7 --set schedule.gamma=0.9 "${job[@]}")
	[ $((RANDOM % 2)) = 0 ] || job+=(--set job.eval=end)
	echo "epochs: $first, $((first + some)), 12: ${job[*]}"
	undisturbed
	epochs "$first"
	begin
	work a --lanes 1
	ended "$ps" ps
	falcon-stat --audit "$state"
	# Killed in the middle of the second part, and once more longer.
	epochs $((first + some))
	begin
	has "$(cat ps.err)" "tiny: $((first + some)) epochs instead of $first"
	has "$(cat ps.err)" "tiny: resumed at clock $((4 * first)) of $((4 * (first + some))); "
	# So slow that it is killed before its end.
	slow b 1 50
	soon "a clock" more $((4 * first + 1))
	killed
	same "clocks that are done again" \
		"$(jq 'select(.ev == "restart") | .until - .clock' "$state/trace.jsonl")" 0
	epochs 12
	begin
	has "$(cat ps.err)" "tiny: 12 epochs instead of $((first + some))"
	work quick --lanes 1
	ended "$ps" ps
	same "the model" "$(sums "$state")" "$calm"
	falcon-stat --audit "$state"
	falcon-proj "$state/trace.jsonl" >report
	same "lines that count" "$(falcon-stat --json "$state/trace.jsonl" | jq .clocks)" 48
	# Fewer are another job; as many are done.
	epochs $((first + some))
	run timeout 20 falcon-ps -x -K "$keys/keyring" -l unix:sock -s "$state" "${job[@]}"
	same "status ($output)" "$status" 2
	has "$output" "$state: job.epochs is $((first + some)), but the job there has 12, of which 12 are done"
	epochs 12
	run timeout 20 falcon-ps -x -K "$keys/keyring" -l unix:sock -s "$state" "${job[@]}"
	same "status ($output)" "$status" 0
}

@test "more epochs: where the schedule depends on all of them, a line says so" {
	job=(--set schedule.kind=cosine --set job.epochs=2 tiny.job)
	begin
	work a --lanes 1
	ended "$ps" ps
	epochs 3
	begin
	work b --lanes 1
	ended "$ps" ps
	has "$(cat ps.err)" "tiny: 3 epochs instead of 2; by schedule.kind = cosine the learning rate"
	falcon-stat --audit "$state"
	# Without snapshots there is nothing to go on from.
	rm -rf "$state"
	job+=(--set state.seconds=0)
	epochs 2
	begin
	work c --lanes 1
	ended "$ps" ps
	epochs 3
	run timeout 20 falcon-ps -x -K "$keys/keyring" -l unix:sock -s "$state" "${job[@]}"
	same "status ($output)" "$status" 75
	has "$output" "the job was begun there and is to have more epochs; there is no snapshot"
	[ -e "$state/result.json" ]
}

@test "a scheme whose rounds are not shared has no snapshots, and says so" {
	job+=(--set sync.scheme=asp)
	begin
	slow a 1 500
	soon "some clocks" more 3
	kill -TERM "$ps"
	ended "$ps" ps 75
	same "snapshots" "$(find "$state" -name 'snapshot*')" ""
	run falcon-ps -x -K "$keys/keyring" -l unix:sock -s "$state" "${job[@]}"
	same "a start on it ($output)" "$status" 75
	has "$output" "there is no snapshot to go on from: --restart begins"
}

# judged FILE: accuracy and clock of its best evaluation, the first of these, by the lines
# that count.
judged() {
	jq -c 'select(.ev == "eval") | [.accuracy, -.loss, -.version]' "$1" | jq -sc 'max |
		[.[0], -.[2]]'
}

@test "the model of the best evaluation is kept, whatever is evaluated later, and kills do not lose it" {
	local at
	# Of a rate that is too large some epochs are worse than others.
	job+=(--set state.best=yes --set state.keep=1 --set "optimizer.lr=1.$((RANDOM % 90 + 10))")
	undisturbed
	cp calm/best.safetensors calm.best
	same "the result's word" "$(jq -c '[.best_accuracy, .best_clock]' calm/result.json)" \
		"$(judged calm/trace.jsonl)"
	same "its SHA-256" "$(jq -r .best_sha256 calm/result.json)" \
		"$(sha256sum <calm.best | cut -d' ' -f1)"
	same "what it is" "$(falcon-work --eval calm.best tiny.job | cut -d' ' -f1)" \
		"$(judged calm/trace.jsonl | jq '.[0] * 256')"
	begin
	slow a 1 200
	for at in 1 2; do
		soon "clocks" more $(($(updates) + RANDOM % 12 + 1))
		killed
		begin
	done
	work quick --lanes 1
	ended "$ps" ps
	whole 2
	cmp "$state/best.safetensors" calm.best
	has "$(falcon-ps -K "$keys/keyring" -s "$state" "${job[@]}")" "best           $state/best.safetensors (accuracy "
	# Of nothing there is no best one.
	run falcon-ps --check --set job.eval=never --set state.best=yes tiny.job
	same "status ($output)" "$status" 2
	has "$output" "state.best: does nothing for job.eval = never"
}

# modes: of what is in the state folder, but for the lock.
modes() {
	find "$state" -mindepth 1 ! -name lock -printf '%y %m %P\n' | sort -k 3
}

@test "what is kept obeys the umask, and what is replaced keeps its mode" {
	local open
	job+=(--set state.best=yes --set optimizer.ema=0.5)
	mkdir -m 755 "$state"
	umask 077
	touch "$state/model.safetensors.new" # which a crash has left
	chmod 666 "$state/model.safetensors.new"
	begin
	work w --lanes 1
	ended "$ps" ps
	modes
	for name in average.safetensors best.safetensors incarnation job model.safetensors \
		policy.jsonl result.json trace.jsonl; do
		has "$(modes)" "f 600 $name"
	done
	open=$(modes | grep -v '^[fd] [67]00 ' || :)
	same "for others" "$open" ""
	has "$(modes)" "d 700 snapshot."
	chmod 640 "$state"/{model,average,best}.safetensors "$state/job"
	rm -f ps.ready
	begin --set job.epochs=13
	work again --lanes 1
	ended "$ps" ps
	modes
	for name in average.safetensors job model.safetensors; do
		has "$(modes)" "f 640 $name"
	done
	has "$(modes)" "f 600 result.json"
}

# evals FILE: version, right and loss of each evaluation, in order.
evals() {
	jq -c 'select(.ev == "eval") | [.version, .right, .loss]' "$1" | sort -u
}

@test "an evaluation that was under way is counted anew, and comes out the same" {
	# Clocks of 16 samples, each with an evaluation of 256, which takes seconds.
	job=(--set data.samples=16 --set batch.size=16 --set job.epochs=3
		--set state.clocks=1 --set state.keep=1000 tiny.job)
	undisturbed
	begin
	slow a 1 20
	soon "the snapshot" test -d "$state/snapshot.000000000001"
	killed
	same "what was under way" "$(jq .evaluating "$state/snapshot.000000000001/manifest.json")" true
	same "what was told of it" "$(evals "$state/trace.jsonl")" ""
	begin
	work b --lanes 1
	ended "$ps" ps
	same "the model" "$(sums "$state")" "$calm"
	same "evaluations" "$(evals "$state/trace.jsonl")" "$(evals calm/trace.jsonl)"
	same "of them" "$(jq -c 'select(.ev == "eval").version' "$state/trace.jsonl" | tr '\n' ' ')" "1 2 3 "
	falcon-stat --audit "$state"
}

@test "that there can be no snapshot is said at once, and then ever more seldom" {
	job=(--set job.epochs=40 --set state.clocks=1 tiny.job)
	begin
	mkdir -p "$state/snapshot.new/x/y" # which no snapshot makes, nor removes
	work a --lanes 1
	ended "$ps" ps
	has "$(<ps.err)" "tiny: no snapshot of clock "
	[ "$(grep -c "no snapshot of clock" ps.err)" -le $((2 + SECONDS / 10)) ] ||
		same "lines" "$(grep -c "no snapshot of clock" ps.err)" "a few of 160"
}
