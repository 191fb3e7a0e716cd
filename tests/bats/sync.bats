# falcon-sync on real jobs: who may, what is refused, what holds from when on, and that no
# change harms the ledger.

load common
load job
load tiny

# 80 clocks, of 64 samples each.
long=(--set job.epochs=20)

setup_file() {
	for_file
	# What the law says comes out of the job, whoever works on it and however.
	tiny "$BATS_FILE_TMPDIR/tiny"
	job=("$BATS_FILE_TMPDIR/tiny/tiny.job" "${long[@]}")
	serve
	work alone --lanes 1
	ended "$ps" ps
	member sha256 >"$BATS_FILE_TMPDIR/sha256"
	stop_all
	# For the last test, as it takes 10 seconds.
	{
		local got=0
		falcon-sync -k "$keys/control.key" unix:none show 2>"$BATS_FILE_TMPDIR/none.err" ||
			got=$?
		echo "$got" >"$BATS_FILE_TMPDIR/none.status"
	} >/dev/null 3>&- &
}

setup() {
	for_test
	umask 077
	tiny .
	job=(tiny.job "${long[@]}")
}

teardown_file() {
	stop_all
}

# begin [RATE]: the job with two workers, each so many samples a second, in its 3rd clock.
begin() {
	local rate=${1:-1600}
	serve
	slow fast 1 "$rate"
	slow slow 1/2 "$rate"
	at_clock 2
}

# sync OPERAND...: asks this coordinator.
sync() {
	falcon-sync --key "$keys/control.key" "$ready" "$@"
}

# answers STATUS STDOUT STDERR COMMAND...: how it ends and just what it says, with CLOCK for
# the numbers of clocks.
answers() {
	local want=$1 out=$2 err=$3 got=0
	shift 3
	"$@" >said.out 2>said.err 3>&- || got=$?
	sed -i 's/clock [0-9]*/clock CLOCK/; s/now [0-9]*/now CLOCK/' said.out said.err
	same "what $* says" "$(cat said.err)" "$err"
	same "output of $*" "$(cat said.out)" "$out"
	same "status of $*" "$got" "$want"
}

# refused STATUS LINE OPERAND...: by this program, before anybody is asked.
refused() {
	local want=$1 text=$2
	shift 2
	ready=127.0.0.1:1 answers "$want" "" "falcon-sync: $text" sync "$@" </dev/null
}

# done_well [CLOCKS]: the job ends, sooner by one more worker, and its ledger is right.
done_well() {
	local clocks=${1:-80}
	work hurry --lanes 1
	ended "$ps" ps
	run falcon-stat --audit "$state"
	same "status of the audit ($output)" "$status" 0
	has "$output" "audit: ok: $clocks clocks, $((8 * clocks)) tasks,"
}

# unharmed: it ends, and as if nobody had asked for anything.
unharmed() {
	done_well
	same sha256 "$(member sha256)" "$(cat "$BATS_FILE_TMPDIR/sha256")"
}

# reached CLOCK: whether the next clock is this one, or later.
reached() {
	[ "$(sync --json show | jq .clock)" -ge "$1" ]
}

# set_scheme SCHEME: sets it, and waits until it has held for 3 clocks.
set_scheme() {
	local clock
	clock=$(sync --json set "scheme=$1" | jq -e 'select(.changes != []) | .clock')
	soon "3 clocks of $1" reached $((clock + 3))
}

# policies: scheme and origin of each policy line of the trace.
policies() {
	jq -r 'select(.ev == "policy") | .scheme + " " + .by' "$state/trace.jsonl"
}

@test "keys of another role are refused, and the job goes on" {
	local role
	begin
	for role in work observe shard; do
		answers 77 "" "falcon-sync: $keys/$role.key: a key of role $role may not control" \
			falcon-sync -k "$keys/$role.key" "$ready" stop
		# What the key's file says of its role is no matter to the coordinator.
		sed "s/ $role / control /" "$keys/$role.key" >forged.key
		chmod 600 forged.key
		answers 77 "" \
			"falcon-sync: $ready: refused: a key of role $role may not send CONTROL" \
			falcon-sync -k forged.key "$ready" set scheme=asp
	done
	answers 77 "" "falcon-sync: $keys/work.key: a key of role work may not observe" \
		falcon-sync -k "$keys/work.key" "$ready" watch
	unharmed
	same policies "$(policies)" "epsp job"
	same journal "$(cat "$state/policy.jsonl")" ""
}

@test "wrong words are refused before anybody is asked" {
	refused 2 "'spin' is not show, set, apply, watch, drain, pause, resume, export, checkpoint or stop" spin
	refused 2 "usage: falcon-sync ADDR set KEY=VALUE..." set
	refused 2 "usage: falcon-sync ADDR apply FILE|-" apply
	refused 2 "usage: falcon-sync ADDR pause" pause now
	refused 2 "--dry-run: only with set and apply" --dry-run stop
	refused 2 "--min-dwell: only with set and apply" --min-dwell 0 drain a
	refused 2 "--min-dwell: '4294967296' is out of range" --min-dwell 4294967296 set clones=no
	refused 2 "--allow-model: only with apply" --allow-model set scheme=asp
	refused 2 "--json: only with show, set and apply" --json export m
	refused 2 "drain: 'a b' is not 1 to 63 of A-Z a-z 0-9 . _ -" drain 'a b'
	refused 2 "'clones' is not KEY=VALUE" set clones
	refused 2 "speed: no such key: scheme, clones, lanes.NAME, share.NAME, exclude.NAME or site.NAME" \
		set speed=1
	refused 2 "lanes.: no such key: scheme, clones, lanes.NAME, share.NAME, exclude.NAME or site.NAME" \
		set lanes.=1:2
	refused 2 "clones: 'maybe' is not yes or no" set clones=maybe
	refused 2 "clones: given twice" set clones=no clones=no
	refused 2 "lanes.a: '4:1' is not MIN:MAX, 1 <= MIN <= MAX <= 1024, or auto" set lanes.a=4:1
	refused 2 "lanes.a: '4' is not MIN:MAX, 1 <= MIN <= MAX <= 1024, or auto" set lanes.a=4
	refused 2 "share.a: '-1' is not a number from 0 to 1000, or auto" set share.a=-1
	refused 2 "exclude.a: '1' is not yes or no" set clones=no exclude.a=1
	refused 2 "site.a: 'new york' is not 1 to 63 of A-Z a-z 0-9 . _ -, or auto" \
		set site.a='new york'
	refused 2 "scheme: ssp: 'x' is not a whole number from 0 to 64" set scheme=ssp:x
	refused 2 "scheme: epsp: '1/1' is neither a whole number from 0 to 64 nor a fraction from 1/4096 to 4095/4096" \
		set scheme=epsp:1/1
	answers 2 "" "falcon-sync: 'nowhere' is not an address: no port: HOST:PORT is one" \
		falcon-sync nowhere show
}

# bad TEXT LINE: a file of this text is refused so.
bad() {
	printf '%s' "$1" >p.json
	refused 2 "p.json:$2" apply p.json
}

@test "wrong policy files are refused with their line and value" {
	refused 2 "none.json: No such file or directory" apply none.json
	bad '' " empty"
	bad '{"scheme": "ssp:3"' "1:18: '}' expected near end of file"
	bad '{"scheme": 3}' "1: scheme: '3' is not a string"
	bad $'{\n"clones": 1}' "1: clones: '1' is not true or false"
	bad '{"speed": 1}' "1: speed: '1' stands under no key of a policy"
	bad '{"worker": {}}' "1: worker: '{}' stands under no key of a policy; did you mean 'workers'?"
	bad '[1]' "1: policy: '[1]' is not an object"
	bad '{"workers": {"a": {"lanes": [4, 1]}}}' \
		"1: workers.a.lanes: '[4,1]' is not [MIN,MAX], 1 <= MIN <= MAX <= 1024, or null"
	bad '{"workers": {"a": {"share": "x"}}}' \
		"1: workers.a.share: '\"x\"' is not a number from 0 to 1000 or null"
	bad $'{"clones": false}\n{"clones": true}\n{"clones": nil}' "3:14: invalid token near 'nil'"
	bad '{"clones": true, "clones": false}' "1:25: duplicate object key near '\"clones\"'"
}

@test "a dry run tells what would change, and changes nothing" {
	begin
	answers 0 "scheme: epsp -> dynsgd:3 (model), not done
clones: yes -> no (neutral), not done
lanes.slow: auto -> 1:2 (neutral), not done" "" \
		sync --dry-run set scheme=dynsgd clones=no lanes.slow=1:2
	answers 0 "scheme: epsp -> bsp (neutral), not done" "" sync --dry-run set scheme=bsp
	answers 0 "nothing to change" "" sync --dry-run set scheme=epsp:0
	same policy "$(sync --json show | jq -c '[.policy, .since, .by]')" \
		'[{"scheme":"epsp","clones":true},0,"job"]'
	# So it is with what the README shows.
	local change changes=()
	mapfile -t changes < <(sed -n 's/^ *falcon-sync .* set //p' "$BATS_TEST_DIRNAME/../../README.md")
	same "changes in the README" "$((${#changes[@]} > 1))" 1
	for change in "${changes[@]}"; do
		same "$change" "$(sync --dry-run set "${change//vm1/slow}" | sed 's/^.*(/(/')" "(neutral), not done"
	done
	unharmed
	same policies "$(policies)" "epsp job"
}

@test "who follows a job is told when the trace ends, and the job does not" {
	start_ready ps falcon-ps -jx -K "$keys/keyring" -l 127.0.0.1:0 -s "$state" \
		--min-shards 1 tiny.job
	ps=$pid
	answers 75 "" "falcon-stat: $ready: later: the job waits for its shards" \
		falcon-stat -f -k "$keys/observe.key" "$ready"
	answers 75 "" "falcon-sync: $ready: later: the job waits for its shards" sync show
	kill -TERM "$ps"
	wait "$ps" || :
	local how
	local -A code=([TERM]=0 [KILL]=1)
	local -A word=([TERM]="the trace ends before the job: it may go on" [KILL]="closed by the peer")
	for how in TERM KILL; do
		rm -rf ps.ready "$state"
		begin
		start "stat$how" falcon-stat -f -k "$keys/observe.key" "$ready"
		local stat=$pid
		start "watch$how" falcon-sync -k "$keys/observe.key" "$ready" watch
		local watch=$pid
		soon "who follows" grep -q policy "stat$how.out"
		soon "the watcher" grep -q policy "watch$how.out"
		kill "-$how" "$ps"
		wait "$ps" || :
		ended "$stat" "stat$how" "${code[$how]}"
		ended "$watch" "watch$how" "${code[$how]}"
		has "$(<"stat$how.err")" "${word[$how]}"
		has "$(<"watch$how.err")" "${word[$how]}"
		stop_all
	done
}

@test "all schemes in one job, each from its policy line on" {
	local scheme schemes="bsp asp ssp:2 epsp:2 consgd:1 dynsgd:3 wbsp groups:2 syncopt:1 \
groups:2,quorum=2,grace=0.05 groups:2,mode=delta,quorum=2 flexrr:1 \
bsp,shares=speed ringmaster:2 rennala:4 epsp"
	job=(tiny.job --set job.epochs=5000)
	begin 1200
	start watch falcon-sync -k "$keys/observe.key" "$ready" watch
	local watch=$pid
	for scheme in $schemes; do
		set_scheme "$scheme"
	done
	answers 0 "" "" sync stop
	ended "$ps" ps 75
	falcon-stat --audit --partial "$state/trace.jsonl"
	ended "$watch" watch
	same "policies" "$(policies | sed 's/ .*//' | xargs)" "epsp $schemes"
	same "what was watched" "$(jq -r 'select(.ev == "policy") | .scheme' watch.out | xargs)" \
		"epsp $schemes"
	# What a round has tells by which scheme it was made.
	jq -nr 'def owned: IN("asp", "ssp", "consgd", "dynsgd", "wbsp", "flexrr", "syncopt", "rennala", "ringmaster");
		def delta: IN("consgd", "dynsgd", "wbsp");
		reduce inputs as $l ({n: 0};
			if $l.ev == "policy" then
				.n += 1 | .s = ($l.scheme | sub("[:,].*"; "")) | .from = $l.clock
			elif $l.ev == "ledger" then
				.rounds[.n - 1] += 1 |
				if ($l | has("owner")) == (.s | owned) and
					($l | has("group")) == (.s == "groups") and
					($l.kind // "grad" | . == "delta") == (.s | delta) and
					$l.clock >= .from
				then . else .wrong += ["\(.s): \($l)"] end
			else . end) |
		(.wrong // [])[], "\(.n) policies, of each 2 rounds or more: \(.rounds | min >= 2)"' \
		"$state/trace.jsonl" >told
	same "rounds under their policies" "$(cat told)" \
		"17 policies, of each 2 rounds or more: true"
}

@test "changes between bsp and epsp leave the model as it is" {
	local scheme
	begin
	for scheme in bsp epsp ssp:0 bsp; do
		set_scheme "$scheme"
	done
	answers 0 "clones: yes -> no (neutral), from clock CLOCK on
lanes.fast: auto -> 1:2 (neutral), from clock CLOCK on
share.slow: auto -> 0.5 (neutral), from clock CLOCK on" "" \
		sync set share.slow=0.5 lanes.fast=1:2 clones=no
	answers 0 "exclude.slow: no -> yes (neutral), from clock CLOCK on" "" \
		sync set exclude.slow=yes
	set_scheme epsp:0
	unharmed
	same classes "$(policies | sort | uniq -c | xargs)" \
		"4 bsp control 2 epsp control 1 epsp job 1 ssp:0 control"
}

@test "the journal outlives a kill of the coordinator" {
	begin
	sync set scheme=ssp:2 clones=no
	killed
	stop_all
	same "lines of the journal" "$(wc -l <"$state/policy.jsonl")" 1
	# As if the next change had been torn by it.
	printf '{"clock":9,"ver' >>"$state/policy.jsonl"
	rm ps.ready
	job+=(--restart)
	begin
	has "$(cat ps.err)" "tiny: goes on with the policy ssp:2, set by 'control'"
	same policy "$(sync --json show | jq -c '[.policy, .by]')" \
		'[{"scheme":"ssp:2","clones":false},"control"]'
	sync set clones=yes
	same "lines of the journal" "$(jq -r .by "$state/policy.jsonl" | xargs)" \
		"control control"
	done_well
	same policies "$(policies | head -n 1)" "ssp:2 control"
}

@test "a damaged journal is refused with its line" {
	serve
	stop_all
	local change='{"clock":1,"version":1,"by":"a","time":1,"policy":{"scheme":"spam"}}'
	chain <<<"$change" >"$state/policy.jsonl"
	start again falcon-ps -x -K "$keys/keyring" -l 127.0.0.1:0 -s "$state" "${job[@]}"
	ended "$pid" again 2
	has "$(cat again.err)" "policy.jsonl:1: scheme: 'spam' is not a scheme"
	# A line that somebody else wrote, or that is not where it was.
	chain <<<"${change/spam/asp}"$'\n'"${change/spam/bsp}" >whole
	sed 's/"a"/"b"/' whole >"$state/policy.jsonl"
	start again falcon-ps -x -K "$keys/keyring" -l 127.0.0.1:0 -s "$state" "${job[@]}"
	ended "$pid" again 2
	has "$(cat again.err)" "policy.jsonl:1: it does not chain the line before"
	sed 1d whole >"$state/policy.jsonl"
	start again falcon-ps -x -K "$keys/keyring" -l 127.0.0.1:0 -s "$state" "${job[@]}"
	ended "$pid" again 2
	has "$(cat again.err)" "policy.jsonl:1: it does not chain the line before"
}

@test "a pipe: neutral keys are taken, the others refused with the reason" {
	begin
	answers 1 "clones: yes -> no (neutral), from clock CLOCK on
scheme: epsp -> bsp (neutral), from clock CLOCK on" \
		"falcon-sync: standard input:2: scheme: 'asp' may alter the model: --allow-model" \
		sync --min-dwell 0 apply - <<-END
			{"clones": false}
			{"scheme": "asp"}

			{"scheme": "bsp"}
		END
	answers 0 "scheme: bsp -> asp (model), from clock CLOCK on" "" \
		sync --min-dwell 0 --allow-model apply - <<<'{"scheme": "asp"}'
	# What is no policy ends it; what was before it holds.
	answers 2 "clones: no -> yes (neutral), from clock CLOCK on" \
		"falcon-sync: standard input:2: clones: '1' is not true or false" \
		sync --min-dwell 0 apply - <<-END
			{"clones": true}
			{"clones": 1}
			{"clones": false}
		END
	done_well
}

@test "a pipe that stays open ends with the job" {
	mkfifo pipe
	begin
	start pipe bash -c 'exec falcon-sync -k "$0" "$1" apply - <>pipe' \
		"$keys/control.key" "$ready"
	local pipe=$pid
	# Word by word, as a program writes them.
	printf '{"clones":' >pipe
	printf ' false}\n' >pipe
	soon "the change" grep -q "clones: yes -> no (neutral)" pipe.out
	done_well
	ended "$pipe" pipe
}

@test "a key that was changed just now is let alone by a pipe" {
	begin
	sync set clones=no
	answers 1 "" "falcon-sync: standard input:1: clones: 'yes': changed at clock CLOCK, \
now CLOCK: --min-dwell 10" sync apply - <<<'{"clones": true}'
	answers 1 "" "falcon-sync: clones: 'yes': changed at clock CLOCK, now CLOCK: \
--min-dwell 1000" sync --min-dwell 1000 set clones=yes
	answers 0 "clones: no -> yes (neutral), from clock CLOCK on" "" sync set clones=yes
	local clock
	clock=$(sync --json show | jq .since)
	soon "10 clocks" reached $((clock + 10))
	answers 0 "clones: yes -> no (neutral), from clock CLOCK on" "" \
		sync apply - <<<'{"clones": false}'
	unharmed
}

@test "drain: that worker leaves, the others go on" {
	begin
	answers 1 "" "falcon-sync: 'nobody' is no worker of this job" sync drain nobody
	answers 0 "" "" sync drain slow
	ended "${workers[1]}" slow
	has "$(cat ps.err)" "falcon-ps: 'slow' drained by 'control' at clock"
	unharmed
}

@test "pause and resume" {
	local clock
	begin
	answers 0 "" "" sync pause
	clock=$(sync --json show | jq .clock)
	same paused "$(sync show | awk '/^paused/ { print $2 }')" yes
	# A dozen clocks would pass.
	for _ in $(seq 40); do
		sync show >/dev/null
	done
	same clock "$(sync --json show | jq .clock)" "$clock"
	# A change needs no rounds.
	answers 0 "scheme: epsp -> bsp (neutral), from clock CLOCK on" "" sync set scheme=bsp
	same clock "$(sync --json show | jq -c '[.clock, .paused]')" "[$clock,true]"
	answers 0 "" "" sync resume
	soon "the next clocks" reached $((clock + 2))
	unharmed
	same holds "$(jq -r 'select(.ev == "hold") | .why + " " + .by' "$state/trace.jsonl" |
		xargs)" "paused control policy control resumed control"
	has "$(cat ps.err)" "falcon-ps: paused by 'control' at clock $clock"
	has "$(cat ps.err)" "falcon-ps: resumed by 'control' at clock $clock"
}

@test "a job that is paused says so, with what to type" {
	begin
	answers 0 "" "" sync pause
	soon "that it is paused" grep -q "tiny: for [0-9]* s, it is paused: falcon-sync resume" ps.err
	answers 0 "" "" sync resume
	soon "that it goes on" grep -q "tiny: goes on after [0-9]* s" ps.err
	unharmed
}

@test "slack and momentum: a warning, and only where they meet" {
	job=(tiny.job "${long[@]}" --set optimizer.kind=nesterov --set optimizer.momentum=0.9)
	begin
	answers 0 "scheme: epsp -> bsp (neutral), from clock CLOCK on" "" sync set scheme=bsp
	run sync --json set scheme=epsp:2
	same "status ($output)" "$status" 0
	has "$output" '"warning":"slack 2 with momentum 0.9: stable'
	has "$output" "learning rates are up to 17 times lower"
	[[ $output != *"falcon-sync: warning"* ]]
	run sync --dry-run set scheme=epsp:3
	same "status ($output)" "$status" 0
	has "$output" "falcon-sync: warning: slack 3 with momentum 0.9: stable"
	done_well
}

@test "export: a model that can be judged, while training goes on" {
	local n
	# Of 1.3 MB, so that it comes in many pieces.
	printf 'input 16\ndense 16000\nrelu\ndense 4\n' >tiny.model
	job=(tiny.job --set job.epochs=10 --set optimizer.lr=0.0001)
	# It does not end before all has been asked.
	begin 200
	answers 0 "" "" sync export now.safetensors
	n=$(od -An -t u8 -N 8 now.safetensors | tr -d ' ')
	dd if=now.safetensors bs=1 skip=8 count="$n" status=none >header
	same "its mode" "$(stat -c %a now.safetensors)" 600
	same job "$(jq -r .__metadata__.job header)" tiny
	[ "$(jq -r .__metadata__.version header)" -ge 2 ]
	same bytes "$(stat -c %s now.safetensors)" \
		"$((8 + n + $(jq '[.[] | .data_offsets? // empty | .[1]] | max' header)))"
	run bash -c "falcon-work --json --eval now.safetensors tiny.job 2>eval.err"
	same "status of --eval ($output)" "$status" 0
	same samples "$(jq .total <<<"$output")" 256
	sync export - >out
	same "to stdout" "$(head -c 40 out | tail -c 30)" "$(head -c 40 now.safetensors | tail -c 30)"
	answers 1 "" "falcon-sync: none/x: No such file or directory" sync export none/x
	# What becomes of it there is not known here.
	has "$(cat ps.err)" " sent to 'control' at clock"
	done_well 40
}

@test "stop: the coordinator ends with status 75; whoever looks on or holds a pipe, with 0" {
	begin
	mkfifo pipe-all pipe-control
	local role of=()
	for role in all control observe; do
		start "stat-$role" falcon-stat --follow --key "$keys/$role.key" "$ready"
		of+=("$pid stat-$role")
		[ $role = observe ] && continue
		start "pipe-$role" bash -c 'exec falcon-sync -k "$0" "$1" apply - <>"$2"' \
			"$keys/$role.key" "$ready" "pipe-$role"
		of+=("$pid pipe-$role")
		printf '{"clones": true}\n' >"pipe-$role"
	done
	for role in "${of[@]}"; do
		soon "$role" test -s "${role#* }.out"
	done
	answers 0 "" "" sync stop
	ended "$ps" ps 75
	for role in "${of[@]}"; do
		# shellcheck disable=SC2086 # two words
		ended $role
		same "said by ${role#* }" "$(cat "${role#* }.err")" ""
	done
	has "$(cat ps.err)" "falcon-ps: stopped by 'control' at clock"
	same hold "$(jq -r 'select(.ev == "hold") | .why + " " + .by' "$state/trace.jsonl")" \
		"stopped control"
	run falcon-stat --audit --partial "$state/trace.jsonl"
	same "status of the audit ($output)" "$status" 0
}

@test "a coordinator that is not there is tried for 10 seconds" {
	soon "an answer" test -s "$BATS_FILE_TMPDIR/none.status"
	same "what it says" "$(cat "$BATS_FILE_TMPDIR/none.err")" \
		"falcon-sync: unix:none: no such file or directory; trying again
falcon-sync: unix:none: no such file or directory"
	same status "$(cat "$BATS_FILE_TMPDIR/none.status")" 75
}

# The boundary may wait for workers that are kept out, or that hang: who has them let in
# again, or kept out, must be heard.
@test "beside a scheme that waits, other keys are changed" {
	# No boundary is near but that of a clock, in which both have tasks.
	job+=(--set job.eval=never)
	begin
	kill -STOP "${workers[@]}"
	start change falcon-sync --key "$keys/control.key" "$ready" set scheme=bsp
	local change=$pid
	waits() { sync show | grep -q "^next scheme *bsp"; }
	soon "a change that waits" waits
	sync show --json | jq -e '.next_scheme == "bsp" and .next_by == "control"'
	answers 1 "" "falcon-sync: a change by 'control' waits for its boundary" \
		sync set scheme=ssp:1
	answers 0 "clones: yes -> no (neutral), not done" "" sync set --dry-run clones=no
	# Who names the scheme that holds wants that, and not the one that waits.
	answers 1 "" "falcon-sync: a change by 'control' waits for its boundary" \
		sync set scheme=epsp exclude.slow=yes
	answers 0 "exclude.slow: no -> yes (neutral), from clock CLOCK on" "" \
		sync set exclude.slow=yes
	kill -CONT "${workers[@]}"
	ended "$change" change
	has "$(<change.out)" "scheme: epsp -> bsp"
	sync show --json | jq -e '.next_scheme == null and .policy.scheme == "bsp" and
		.policy.workers.slow.exclude'
	sync set exclude.slow=no
	unharmed
}
